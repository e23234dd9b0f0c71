"""The local table: what was answered is still there after any death of the process, and calls never overlap."""

import json
import resource
import subprocess
import sys
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import boto3
import pytest
from botocore.config import Config
from botocore.exceptions import ClientError

from local.table import Journal, JournalError

ROOT = Path(__file__).resolve().parents[2]


class Running:
    """A table process with a client of its own."""

    def __init__(self, data: Path) -> None:
        self.process = subprocess.Popen(
            [sys.executable, "-m", "local.table", "--port", "0", "--data", str(data)],
            cwd=ROOT,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        line = self.process.stdout.readline()
        if not line.startswith("ready "):
            self.process.wait()
            raise RuntimeError(self.process.stderr.read())
        self.url = line.split()[1]
        self.client = self.connect()

    def connect(self, region: str = "us-east-1", key: str = "k") -> Any:
        return boto3.client(
            "dynamodb",
            endpoint_url=self.url,
            region_name=region,
            aws_access_key_id=key,
            aws_secret_access_key="s",
            config=Config(retries={"total_max_attempts": 1}),
        )

    def put(self, sk: str, **attributes: Any) -> None:
        self.client.put_item(TableName="threads", Item=key(sk) | attributes)

    def items(self) -> dict[str, Any]:
        found = self.client.query(
            TableName="threads",
            KeyConditionExpression="pk = :pk",
            ExpressionAttributeValues={":pk": {"S": "t"}},
        )["Items"]
        return {item["sk"]["S"]: item for item in found}

    def kill(self) -> str:
        """Ends it as hard as possible; returns what it had logged."""
        self.process.kill()
        return self.process.communicate()[1]


def key(sk: str) -> dict[str, Any]:
    return {"pk": {"S": "t"}, "sk": {"S": sk}}


@pytest.fixture
def data(tmp_path: Path) -> Path:
    return tmp_path / "folder" / "threads.jsonl"


@pytest.fixture
def start(data: Path) -> Iterator[Callable[[], Running]]:
    started: list[Running] = []

    def start() -> Running:
        started.append(Running(data))
        return started[-1]

    yield start
    for table in started:
        if table.process.poll() is None:
            table.kill()


def test_every_kind_of_write_survives_a_kill(start: Callable[[], Running]) -> None:
    table = start()
    table.put("put", text={"S": "Grüße 🌊\n"}, data={"B": b"\x00\xff"}, count={"N": "1.50"}, set={"SS": ["a", "b"]})
    table.put("updated", n={"N": "1"})
    table.client.update_item(
        TableName="threads",
        Key=key("updated"),
        UpdateExpression="SET n = n + :one, m = :m",
        ExpressionAttributeValues={":one": {"N": "1"}, ":m": {"M": {"x": {"L": [{"NULL": True}]}}}},
    )
    table.put("deleted")
    table.client.delete_item(TableName="threads", Key=key("deleted"))
    table.put("unbatched")
    table.client.batch_write_item(
        RequestItems={
            "threads": [{"PutRequest": {"Item": key("batched")}}, {"DeleteRequest": {"Key": key("unbatched")}}]
        }
    )
    table.put("transacted away")
    table.client.transact_write_items(
        TransactItems=[
            {"Put": {"TableName": "threads", "Item": key("transacted")}},
            {"Delete": {"TableName": "threads", "Key": key("transacted away")}},
            {
                "Update": {
                    "TableName": "threads",
                    "Key": key("upserted"),
                    "UpdateExpression": "ADD n :one",
                    "ExpressionAttributeValues": {":one": {"N": "1"}},
                }
            },
            {
                "ConditionCheck": {
                    "TableName": "threads",
                    "Key": key("put"),
                    "ConditionExpression": "attribute_exists(pk)",
                }
            },
        ]
    )
    before = table.items()
    assert set(before) == {"put", "updated", "batched", "transacted", "upserted"}
    assert before["updated"]["n"] == {"N": "2"}
    table.kill()
    assert start().items() == before


def test_nothing_answered_is_lost_when_it_is_killed_while_writing(start: Callable[[], Running], data: Path) -> None:
    table = start()
    answered: list[str] = []

    def write() -> None:
        try:
            for number in range(10_000):
                table.put(f"{number:05}", text={"S": "x" * 20_000})
                answered.append(f"{number:05}")
        except Exception:  # the connection breaks in one way or another
            return

    with ThreadPoolExecutor() as pool:
        writing = pool.submit(write)
        while len(answered) < 5 and not writing.done():
            pass
        table.kill()
    start().kill()
    kept = Journal(data).items  # all of it; a query would stop at 1 MB
    assert {item["sk"]["S"] for item in kept} >= set(answered)
    assert len(answered) >= 5


def test_a_torn_last_line_is_dropped_and_logged(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    path = tmp_path / "journal"
    path.write_bytes(b'[{"put":{"pk":{"S":"t"},"sk":{"S":"a"}}}]\n[{"put":{"pk":{"S":"t"},"sk":{"S":"to')
    journal = Journal(path)
    assert journal.items == [key("a")]
    assert "unfinished last line of 37 bytes" in caplog.text
    journal.append([{"put": key("b")}])
    del journal
    assert Journal(path).items == [key("a"), key("b")]


def test_a_line_cut_anywhere_takes_nothing_else_with_it(tmp_path: Path) -> None:
    first, second = ([{"put": key(sk) | {"text": {"S": "é"}}}] for sk in ("a", "b"))
    path = tmp_path / "journal"
    journal = Journal(path)
    journal.append(first)
    whole = len(path.read_bytes())
    journal.append(second)
    content = path.read_bytes()
    del journal
    for length in range(whole, len(content)):
        path.write_bytes(content[:length])
        assert [item["sk"]["S"] for item in Journal(path).items] == ["a"]


def test_a_damaged_line_in_the_middle_is_refused_not_skipped(tmp_path: Path) -> None:
    path = tmp_path / "journal"
    path.write_bytes(b'[{"put":{"pk":{"S":"t"}\n[]\n')
    with pytest.raises(JournalError, match="line 1 is damaged"):
        Journal(path)
    assert path.read_bytes().startswith(b"[{")


def test_a_start_leaves_one_line_per_living_item(tmp_path: Path) -> None:
    path = tmp_path / "journal"
    journal = Journal(path)
    for number in range(10):
        journal.append([{"put": key("same") | {"n": {"N": str(number)}}}])
    journal.append([{"put": key("gone")}])
    journal.append([{"delete": key("gone")}])
    del journal
    Journal(path)
    assert [json.loads(line) for line in path.read_bytes().splitlines()] == [[{"put": key("same") | {"n": {"N": "9"}}}]]


def test_a_second_process_on_the_same_file_is_told_so(start: Callable[[], Running], data: Path) -> None:
    table = start()
    table.put("mine")
    with pytest.raises(RuntimeError, match="in use by another process"):
        start()
    assert set(table.items()) == {"mine"}


def test_of_those_who_race_to_create_an_item_one_wins(start: Callable[[], Running], data: Path) -> None:
    table = start()
    clients = [table.connect() for _ in range(4)]

    def create(client: Any) -> str:
        try:
            client.put_item(TableName="threads", Item=key("lease"), ConditionExpression="attribute_not_exists(pk)")
        except ClientError as error:
            return error.response["Error"]["Code"]
        return "created"

    with ThreadPoolExecutor(4) as pool:
        outcomes = sorted(pool.map(create, clients))
    assert outcomes == ["ConditionalCheckFailedException"] * 3 + ["created"]
    assert len(data.read_bytes().splitlines()) == 1  # what failed is not in the journal


def test_one_table_for_every_region_and_key_with_its_ttl(start: Callable[[], Running]) -> None:
    table = start()
    table.put("a")
    other = table.connect(region="eu-central-1", key="another")
    assert other.get_item(TableName="threads", Key=key("a"))["Item"] == key("a")
    ttl = other.describe_time_to_live(TableName="threads")["TimeToLiveDescription"]
    assert ttl == {"TimeToLiveStatus": "ENABLED", "AttributeName": "expires_at"}
    assert other.describe_table(TableName="threads")["Table"]["BillingModeSummary"]["BillingMode"] == "PAY_PER_REQUEST"


def test_it_ends_quietly_with_its_stdin(start: Callable[[], Running]) -> None:
    table = start()
    table.put("a")
    out, err = table.process.communicate()
    assert (table.process.returncode, out, err) == (0, "", "")


@pytest.mark.skipif(not hasattr(resource, "prlimit"), reason="needs prlimit (Linux)")
def test_it_ends_when_the_journal_cannot_be_written(start: Callable[[], Running], data: Path) -> None:
    table = start()
    # A file that may not grow is what a full disk looks like to a process.
    resource.prlimit(table.process.pid, resource.RLIMIT_FSIZE, (0, 0))
    with pytest.raises(ClientError, match="journal cannot be written"):
        table.put("a")
    table.process.wait(10)
    assert "cannot be written" in table.process.stderr.read()
    assert data.read_bytes() == b""
