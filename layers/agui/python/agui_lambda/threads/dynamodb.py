"""Threads in DynamoDB: stores and loads, and decides nothing.

One table, one partition per thread. `pk` names owner, agent and thread; `sk` is `meta`, or `m#` and the message's key:

    meta          head (S), lease (S), leased_until (N), updated_at (N)
    m#00000003#…  previous (S), body (S: the message as JSON, or B: the same, deflated)

JSON is kept as text, never as DynamoDB maps, which know no floats and no empty sets. Reads are consistent.
"""

from __future__ import annotations

import asyncio
import json
import logging
import time
import zlib
from collections.abc import Callable, Sequence
from hashlib import sha256
from typing import Any, TypeVar
from urllib.parse import quote

from agui_lambda.errors import MessageTooLarge, ThreadUnavailable
from agui_lambda.threads.thread import Link, Stored, ThreadKey

logger = logging.getLogger(__name__)

T = TypeVar("T")

META = "meta"
MESSAGE = "m#"
COMPRESS_FROM = 4_096
"""Bytes of JSON from which deflating pays: DynamoDB bills writes by the kilobyte."""
ITEM_LIMIT = 390_000
"""Bytes of one message; an item may have 409,600 with its keys and names."""
BATCH = 25
"""Items that one BatchWriteItem takes."""
AT_ONCE = 4
"""Batches under way together when a client brings a long history."""


class DynamoDBStore:
    """The threads in `table`. boto3 is imported with the first use, in a thread, and so is every call made."""

    def __init__(self, table: str) -> None:
        self._table = table
        self._client: Any = None
        self._lock = asyncio.Lock()

    async def warm_up(self) -> None:
        """Makes the client, once."""
        async with self._lock:
            if self._client is None:
                self._client = await asyncio.to_thread(_make_client)

    async def load(self, key: ThreadKey) -> Stored:
        query = {
            "TableName": self._table,
            "KeyConditionExpression": "pk = :pk",
            "ExpressionAttributeValues": {":pk": {"S": partition(key)}},
            # Not the key, which would come again with every message.
            "ProjectionExpression": "sk, previous, body, head, leased_until",
            "ConsistentRead": True,
        }
        items: list[dict[str, Any]] = []
        while True:
            page = await self._call("query", query)
            items += page["Items"]
            if "LastEvaluatedKey" not in page:
                break
            query["ExclusiveStartKey"] = page["LastEvaluatedKey"]
        meta = items.pop() if items and items[-1]["sk"]["S"] == META else {}
        return Stored(
            head=meta["head"]["S"] if "head" in meta else None,
            links={link.key: link for link in map(_link, items)},
            leased_until=float(meta["leased_until"]["N"]) if "leased_until" in meta else 0.0,
        )

    async def write(self, key: ThreadKey, links: Sequence[Link]) -> None:
        pk = {"S": partition(key)}
        await self._write_all([{"PutRequest": {"Item": {"pk": pk, **_item(link)}}} for link in links])

    async def delete(self, key: ThreadKey, links: Sequence[Link]) -> None:
        pk = {"S": partition(key)}
        keys = ({"pk": pk, "sk": {"S": MESSAGE + link.key}} for link in links)
        await self._write_all([{"DeleteRequest": {"Key": item_key}} for item_key in keys])

    async def take(self, key: ThreadKey, loaded_head: str | None, head: str | None, lease: str, until: float) -> bool:
        now = time.time()
        values = {":lease": {"S": lease}, ":until": _number(until), ":now": _number(now)}
        same_head = "attribute_not_exists(head)"
        if loaded_head is not None:
            same_head = "head = :loaded"
            values[":loaded"] = {"S": loaded_head}
        free = "(attribute_not_exists(leased_until) OR leased_until < :now)"
        changes = ["lease = :lease", "leased_until = :until", "updated_at = :now"]
        # The last part: boto3 repeats a request whose answer was lost, which then meets its own lease.
        condition = f"({same_head} AND {free}) OR lease = :lease"
        return await self._update(key, changes, head, values, condition) is None

    async def publish(self, key: ThreadKey, head: str | None, lease: str, until: float | None) -> bool:
        values = {":lease": {"S": lease}, ":now": _number(time.time())}
        changes = ["updated_at = :now"]
        remove = " REMOVE lease, leased_until" if until is None else ""
        if until is not None:
            values[":until"] = _number(until)
            changes.append("leased_until = :until")
        found = await self._update(key, changes, head, values, "lease = :lease", remove)
        # The same here: a head is as unique as the run that writes it, so one that is there was published.
        return found is None or (head is not None and found.get("head", {}).get("S") == head)

    async def _update(
        self,
        key: ThreadKey,
        changes: list[str],
        head: str | None,
        values: dict[str, Any],
        condition: str,
        remove: str = "",
    ) -> dict[str, Any] | None:
        """Changes `meta`. None when that is done, else the item for which the condition does not hold."""
        if head is None:
            remove = f"{remove}, head" if remove else " REMOVE head"
        else:
            changes = [*changes, "head = :head"]
            values[":head"] = {"S": head}
        try:
            await self._call(
                "update_item",
                {
                    "TableName": self._table,
                    "Key": {"pk": {"S": partition(key)}, "sk": {"S": META}},
                    "UpdateExpression": f"SET {', '.join(changes)}{remove}",
                    "ConditionExpression": condition,
                    "ExpressionAttributeValues": values,
                    "ReturnValuesOnConditionCheckFailure": "ALL_OLD",
                },
            )
        except _ConditionFailed as failed:
            return failed.item
        return None

    async def _write_all(self, requests: list[dict[str, Any]]) -> None:
        # Several at once, as nothing of it is visible yet; not all, as a partition takes a thousand writes a second.
        for start in range(0, len(requests), BATCH * AT_ONCE):
            some = requests[start : start + BATCH * AT_ONCE]
            await asyncio.gather(*(self._write_batch(some[at : at + BATCH]) for at in range(0, len(some), BATCH)))

    async def _write_batch(self, requests: list[dict[str, Any]]) -> None:
        for delay in (0.05, 0.1, 0.2, 0.4, 0.8, None):
            answer = await self._call("batch_write_item", {"RequestItems": {self._table: requests}})
            requests = answer.get("UnprocessedItems", {}).get(self._table, [])
            if not requests:
                return
            if delay is not None:
                await asyncio.sleep(delay)
        raise ThreadUnavailable(f"{len(requests)} messages were not taken by the table")

    async def _call(self, operation: str, parameters: dict[str, Any]) -> Any:
        """The answer. Raises _ConditionFailed, and ThreadUnavailable for everything else."""
        from botocore.exceptions import BotoCoreError, ClientError

        await self.warm_up()
        call: Callable[..., Any] = getattr(self._client, operation)
        try:
            return await asyncio.to_thread(call, **parameters)
        except ClientError as error:
            if error.response["Error"]["Code"] == "ConditionalCheckFailedException":
                raise _ConditionFailed(error.response.get("Item", {})) from None
            raise ThreadUnavailable(f"{operation}: {error}") from error
        except BotoCoreError as error:
            raise ThreadUnavailable(f"{operation}: {error}") from error


class _ConditionFailed(Exception):
    """The condition of an update does not hold for `item`."""

    def __init__(self, item: dict[str, Any]) -> None:
        self.item = item


def partition(key: ThreadKey) -> str:
    """`owner#agent#thread`, each part quoted so that none can pose as another, and a long one by its hash."""
    return "#".join(_part(part) for part in (key.owner, key.agent, key.thread_id))


def _part(text: str) -> str:
    quoted = quote(text, safe="", errors="surrogatepass")
    return quoted if len(quoted) <= 256 else "sha256:" + sha256(quoted.encode()).hexdigest()


def _item(link: Link) -> dict[str, Any]:
    text = json.dumps(link.message, separators=(",", ":"), ensure_ascii=False)
    try:
        body = text.encode()
    except UnicodeEncodeError:  # a lone surrogate has no UTF-8, but an escape
        body = json.dumps(link.message, separators=(",", ":")).encode()
    attribute = {"S": body.decode()} if len(body) < COMPRESS_FROM else {"B": zlib.compress(body, 1)}
    if len(next(iter(attribute.values()))) > ITEM_LIMIT:
        raise MessageTooLarge(f"message {link.message['id']} has {len(body)} bytes")
    item = {"sk": {"S": MESSAGE + link.key}, "body": attribute}
    return item if link.previous is None else {**item, "previous": {"S": link.previous}}


def _link(item: dict[str, Any]) -> Link:
    """A message that cannot be read is replaced by an activity without content, which no model and no client is shown:
    the rest of the thread can still be used."""
    key = item["sk"]["S"].removeprefix(MESSAGE)
    try:
        body = item["body"]
        message = json.loads(body["S"] if "S" in body else zlib.decompress(body["B"]))
    except (KeyError, ValueError, zlib.error):
        logger.exception("item %s of a thread cannot be read", key)
        message = {"id": f"unreadable-{key}", "role": "activity", "activityType": "unreadable", "content": {}}
    return Link(key, item["previous"]["S"] if "previous" in item else None, int(key.partition("#")[0]), message)


def _number(seconds: float) -> dict[str, str]:
    return {"N": f"{seconds:.3f}"}


def _make_client() -> Any:
    import boto3
    from botocore.config import Config

    config = Config(
        connect_timeout=2,
        read_timeout=5,
        max_pool_connections=50,
        retries={"mode": "standard", "total_max_attempts": 4},
        # DynamoDB checks what it gets; to check it here as well is half the work of a large write.
        parameter_validation=False,
    )
    return boto3.client("dynamodb", config=config)
