"""The DynamoDB table on a laptop: moto answers, a file beside it remembers.

Responsible for keeping the items of one table across restarts, `kill -9` included, and for answering one call after
another. What DynamoDB does with a call is moto's business; other tables and table settings are not kept.

The file is a journal of after-images in JSON lines. A line is a list with one entry per item a call has touched:
`{"put": item}` or `{"delete": key}`, both in DynamoDB's JSON. A line is written before the call is answered, so what
was answered survives the death of the process (not of the machine: there is no fsync per call). At start the last
image of each item is put into moto, and the file is replaced by one that holds nothing else.
"""

import argparse
import asyncio
import fcntl
import json
import logging
import os
import signal
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from io import BytesIO
from pathlib import Path
from typing import Any

from moto.moto_server.werkzeug_app import create_backend_app

from local.child import serve_child

log = logging.getLogger("table")

Json = dict[str, Any]

# moto keeps tables per account and region, which it reads from the signature. On a laptop there is one table,
# whatever credentials and region a client happens to have.
SIGNATURE = "AWS4-HMAC-SHA256 Credential=local/20260101/us-east-1/dynamodb/aws4_request, SignedHeaders=, Signature="


class JournalError(Exception):
    """The journal cannot be used; the message says why and what to do."""


class Journal:
    """The file with the after-images. `items` are the living items found in it when it was opened.

    Raises JournalError when another process holds the file or when a line other than the last is damaged.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        path.parent.mkdir(parents=True, exist_ok=True)
        # The lock is a file of its own because the journal itself is replaced by another one at each start.
        self._lock = open(f"{path}.lock", "w")  # noqa: SIM115 - held until the process ends
        try:
            fcntl.flock(self._lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            raise JournalError(
                f"{path} is in use by another process: stop the other stack, or give this one its own file"
            ) from None
        living: dict[str, Json] = {}
        for changes in self._lines():
            for change in changes:
                if "put" in change:
                    living[_identity(change["put"])] = change["put"]
                else:
                    living.pop(_identity(change["delete"]), None)
        self.items = list(living.values())
        self._compact()
        self._file = path.open("ab")

    def append(self, changes: list[Json]) -> None:
        """Writes the after-images of one call as one line, all or (when the process is killed in it) nothing."""
        self._file.write(_line(changes))
        self._file.flush()

    def _lines(self) -> Iterator[list[Json]]:
        content = self.path.read_bytes() if self.path.exists() else b""
        *lines, torn = content.split(b"\n")
        if torn:
            # Killed while writing: the call was never answered, so nobody counts on it.
            log.warning("%s: dropped an unfinished last line of %d bytes", self.path, len(torn))
        for number, line in enumerate(lines, start=1):
            try:
                yield json.loads(line)
            except ValueError:
                raise JournalError(
                    f"{self.path}: line {number} is damaged; repair it, or move the file away to start empty"
                ) from None

    def _compact(self) -> None:
        new = self.path.with_name(self.path.name + ".new")
        with new.open("wb") as file:
            file.writelines(_line([{"put": item}]) for item in self.items)
            file.flush()
            os.fsync(file.fileno())
        new.replace(self.path)


def _line(changes: list[Json]) -> bytes:
    return json.dumps(changes, ensure_ascii=False, separators=(",", ":")).encode() + b"\n"


def _identity(item: Json) -> str:
    return json.dumps([item["pk"], item["sk"]])


def _key(item: Json) -> Json:
    return {"pk": item["pk"], "sk": item["sk"]}


@dataclass
class Answer:
    """What goes back to a caller: HTTP status, header fields, body."""

    status: int
    headers: list[tuple[str, str]]
    body: bytes


class Table:
    """The table as an ASGI app. A journal that cannot be written ends the process.

    moto reads, checks a condition and writes without a lock (four threads that race to create one item with
    `attribute_not_exists` have several winners), so calls must not overlap. Here they cannot: the event loop
    answers one completely before it looks at the next.
    """

    def __init__(self, name: str, journal: Journal) -> None:
        self.name = name
        self.journal = journal
        self._moto = create_backend_app("dynamodb")
        self._create()
        self._load()

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        if scope["type"] != "http":
            return
        body = b""
        more = True
        while more:
            message = await receive()
            if message["type"] == "http.disconnect":
                return
            body += message.get("body", b"")
            more = message.get("more_body", False)
        target = dict(scope["headers"]).get(b"x-amz-target", b"").decode("latin-1")
        answer = self.call(target.partition(".")[2], body)
        headers = [(name.lower().encode("latin-1"), value.encode("latin-1")) for name, value in answer.headers]
        await send({"type": "http.response.start", "status": answer.status, "headers": headers})
        await send({"type": "http.response.body", "body": answer.body})

    def call(self, operation: str, body: bytes) -> Answer:
        """One DynamoDB call (`PutItem`, …) with its JSON body, journalled when it changed this table's items."""
        answer = self._ask(operation, body)
        if answer.status == 200:
            changes = list(self._changes(operation, json.loads(body or b"{}")))
            if changes:
                try:
                    self.journal.append(changes)
                except OSError as error:
                    # moto is now ahead of the file. Going on would show items that the next start does not have.
                    log.error("%s cannot be written (%s): ending", self.journal.path, error)
                    os.kill(os.getpid(), signal.SIGTERM)
                    message = {"__type": "InternalServerError", "message": "the table's journal cannot be written"}
                    return Answer(500, [("content-type", "application/x-amz-json-1.0")], json.dumps(message).encode())
        return answer

    def _changes(self, operation: str, request: Json) -> Iterator[Json]:
        """The after-image of every item of this table that a successful call has touched."""
        match operation:
            case "PutItem" | "UpdateItem" | "DeleteItem":
                writes = [(operation.removesuffix("Item"), request)]
            case "BatchWriteItem":
                writes = [
                    (kind.removesuffix("Request"), write | {"TableName": table})
                    for table, requests in request["RequestItems"].items()
                    for entry in requests
                    for kind, write in entry.items()
                ]
            case "TransactWriteItems":
                writes = [pair for entry in request["TransactItems"] for pair in entry.items()]
            case _:
                return
        for kind, write in writes:
            if write["TableName"].rpartition("/")[2] != self.name:
                continue
            if kind == "Put":
                yield {"put": write["Item"]}
            elif kind == "Delete":
                yield {"delete": _key(write["Key"])}
            elif kind == "Update":
                read = json.dumps({"TableName": self.name, "Key": write["Key"], "ConsistentRead": True})
                yield {"put": json.loads(self._ask("GetItem", read.encode()).body)["Item"]}

    def _create(self) -> None:
        self._must(
            "CreateTable",
            TableName=self.name,
            KeySchema=[{"AttributeName": "pk", "KeyType": "HASH"}, {"AttributeName": "sk", "KeyType": "RANGE"}],
            AttributeDefinitions=[{"AttributeName": name, "AttributeType": "S"} for name in ("pk", "sk")],
            BillingMode="PAY_PER_REQUEST",
        )
        self._must(
            "UpdateTimeToLive",
            TableName=self.name,
            TimeToLiveSpecification={"Enabled": True, "AttributeName": "expires_at"},
        )

    def _load(self) -> None:
        # 25 is DynamoDB's limit for one BatchWriteItem.
        for start in range(0, len(self.journal.items), 25):
            puts = [{"PutRequest": {"Item": item}} for item in self.journal.items[start : start + 25]]
            self._must("BatchWriteItem", RequestItems={self.name: puts})
        self.journal.items.clear()

    def _must(self, operation: str, **request: Any) -> None:
        answer = self._ask(operation, json.dumps(request).encode())
        if answer.status != 200:
            raise JournalError(f"{operation} at start: {answer.status} {answer.body.decode(errors='replace')}")

    def _ask(self, operation: str, body: bytes) -> Answer:
        """One call to moto's WSGI app."""
        started: list[tuple[int, list[tuple[str, str]]]] = []
        environ = {
            "REQUEST_METHOD": "POST",
            "SCRIPT_NAME": "",
            "PATH_INFO": "/",
            "QUERY_STRING": "",
            "SERVER_NAME": "localhost",
            "SERVER_PORT": "80",
            "SERVER_PROTOCOL": "HTTP/1.1",
            "CONTENT_TYPE": "application/x-amz-json-1.0",
            "CONTENT_LENGTH": str(len(body)),
            "HTTP_HOST": "localhost",
            "HTTP_AUTHORIZATION": SIGNATURE,
            "HTTP_X_AMZ_TARGET": f"DynamoDB_20120810.{operation}",
            "wsgi.version": (1, 0),
            "wsgi.url_scheme": "http",
            "wsgi.input": BytesIO(body),
            "wsgi.errors": sys.stderr,
            "wsgi.multithread": False,
            "wsgi.multiprocess": False,
            "wsgi.run_once": False,
        }

        def start_response(status: str, headers: list[tuple[str, str]], exc_info: Any = None) -> Any:
            started.append((int(status[:3]), headers))

        content = b"".join(self._moto(environ, start_response))
        status, headers = started[-1]
        return Answer(status, headers, content)


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m local.table", description=__doc__.splitlines()[0])
    parser.add_argument("--port", type=int, default=0, help="port on 127.0.0.1; 0 takes a free one")
    parser.add_argument("--data", type=Path, required=True, help="file that keeps the items")
    parser.add_argument("--table", default="threads", help="name of the table (default: threads)")
    arguments = parser.parse_args()
    logging.basicConfig(level=logging.WARNING, format="%(name)s: %(message)s")
    try:
        table = Table(arguments.table, Journal(arguments.data))
        asyncio.run(serve_child(table, arguments.port))
    except (JournalError, OSError) as error:
        sys.exit(f"table: {error}")


if __name__ == "__main__":
    main()
