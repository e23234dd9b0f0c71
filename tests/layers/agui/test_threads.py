"""Threads in DynamoDB: what is published, who may write, and what survives."""

import asyncio
from collections.abc import Iterator
from typing import Any

import pytest

from agui_lambda.errors import MessageTooLarge, ThreadBusy, ThreadLost, ThreadUnavailable
from agui_lambda.threads import thread as threads
from agui_lambda.threads.dynamodb import DynamoDBStore, partition
from agui_lambda.threads.thread import Thread, ThreadKey
from local.child import start_child
from tests.agent_server import TABLE, assistant, moto_table, user

pytestmark = pytest.mark.anyio

KEY = ThreadKey("owner", "/", "t1")


@pytest.fixture
def table(monkeypatch: pytest.MonkeyPatch) -> Iterator[Any]:
    monkeypatch.setenv("AWS_DEFAULT_REGION", "us-east-1")
    with moto_table() as client:
        yield client


@pytest.fixture
def store(table) -> DynamoDBStore:
    return DynamoDBStore(TABLE)


async def turn(store: DynamoDBStore, sent: list, *answer: dict, key: ThreadKey = KEY) -> list[str]:
    """One run; returns the ids the model was shown."""
    thread = await Thread.take(store, key, sent)
    shown = [message["id"] for message in thread.messages]
    await thread.give_back(answer)
    return shown


async def test_each_turn_sees_the_ones_before_it(store):
    assert await turn(store, [user("q1", "1")], assistant("a1", "2")) == ["1"]
    assert await turn(store, [user("q2", "3")], assistant("a2", "4")) == ["1", "2", "3"]
    assert await turn(store, []) == ["1", "2", "3", "4"]


async def test_a_client_that_sends_everything_doubles_nothing(store, table):
    history: list = []
    for n in range(10):
        history.append(user(f"q{n}", f"q{n}"))
        await turn(store, history, answer := assistant(f"a{n}", f"a{n}"))
        history.append(answer)
    items = table.scan(TableName=TABLE)["Items"]
    assert len(items) == 20 + 1  # the messages and meta


@pytest.mark.parametrize(
    "content",
    [
        "",
        "emoji 😀",
        "\ud83d half",
        "x" * 5_000,
        "0.1 1e400 \x00",
        [{"type": "text", "text": "t", "metadata": {"n": 2**63, "f": 0.1, "e": "", "l": [], "z": None}}],
    ],
)
async def test_a_message_comes_back_as_it_was(store, content):
    message = user(content, "1")
    await turn(store, [message])
    thread = await Thread.take(store, KEY, [])
    assert thread.messages == [message]


async def test_a_message_that_no_item_can_hold_is_refused_before_the_thread_is_taken(store):
    noise = "".join(chr(0x4E00 + (n * 7919) % 20_000) for n in range(400_000))
    with pytest.raises(MessageTooLarge):
        await Thread.take(store, KEY, [user(noise, "1")])
    assert await turn(store, [user("small", "2")]) == ["2"]


async def test_the_question_is_safe_before_the_answer_begins(store):
    """A run that dies here leaves its question and, for as long as its lease lasts, its claim."""
    await Thread.take(store, KEY, [user("q1", "1")])
    stored = await store.load(KEY)
    assert [link.message["id"] for link in stored.links.values()] == ["1"]
    assert stored.head in stored.links


async def test_a_second_run_is_refused_while_the_first_goes_on(store):
    first = await Thread.take(store, KEY, [user("q1", "1")])
    with pytest.raises(ThreadBusy):
        await Thread.take(store, KEY, [user("q2", "2")])
    await first.give_back([assistant("a1", "3")])
    assert await turn(store, []) == ["1", "3"]


async def test_of_many_runs_at_once_one_gets_the_thread(monkeypatch, tmp_path):
    """On the local table: moto itself lets several conditional updates through when threads race."""
    table = await start_child(["-m", "local.table", "--table", TABLE, "--data", str(tmp_path / "threads.jsonl")])
    monkeypatch.setenv("AWS_ENDPOINT_URL_DYNAMODB", table.url)
    for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY"):
        monkeypatch.setenv(name, "local")
    monkeypatch.setenv("AWS_DEFAULT_REGION", "us-east-1")
    store = DynamoDBStore(TABLE)
    attempts = await asyncio.gather(
        *(Thread.take(store, KEY, [user(f"q{n}", f"{n}")]) for n in range(5)), return_exceptions=True
    )
    winners = [attempt for attempt in attempts if isinstance(attempt, Thread)]
    assert len(winners) == 1
    assert all(isinstance(attempt, ThreadBusy) for attempt in attempts if attempt not in winners)
    [winner] = winners
    shown = [message["id"] for message in winner.messages]
    await winner.give_back([])
    assert await turn(store, []) == shown
    assert len(shown) == 1
    await table.stop()


async def test_a_run_that_lost_its_lease_cannot_publish(store, monkeypatch):
    monkeypatch.setattr(threads, "LEASE_SECONDS", -1.0)  # a lease that has run out when it is taken
    lost = await Thread.take(store, KEY, [user("q1", "1")])
    monkeypatch.setattr(threads, "LEASE_SECONDS", 30.0)
    taken = await Thread.take(store, KEY, [user("q2", "2")])
    with pytest.raises(ThreadLost):
        await lost.give_back([assistant("too late", "3")])
    await taken.give_back([assistant("in time", "4")])
    assert await turn(store, []) == ["1", "2", "4"]


async def test_a_living_run_renews_its_lease(store, monkeypatch):
    monkeypatch.setattr(threads, "LEASE_SECONDS", 0.03)
    thread = await Thread.take(store, KEY, [user("q1", "1")])
    first = (await store.load(KEY)).leased_until
    while (await store.load(KEY)).leased_until == first:
        await asyncio.sleep(0)
    await thread.give_back([])


async def test_owner_agent_and_thread_keep_conversations_apart(store):
    await turn(store, [user("q1", "1")])
    for other in (ThreadKey("other", "/", "t1"), ThreadKey("owner", "/x", "t1"), ThreadKey("owner", "/", "t2")):
        assert await turn(store, [], key=other) == []


def test_no_part_of_a_key_can_pose_as_another():
    keys = [
        ThreadKey("a", "b", "c"),
        ThreadKey("a#b", "", "c"),
        ThreadKey("a", "b#c", ""),
        ThreadKey("", "a#b", "c"),
        ThreadKey("a", "b", "C"),
        ThreadKey("a", "b", "\ud800"),
        ThreadKey("a", "b", "x" * 10_000),
        ThreadKey("a", "b", "x" * 10_001),
        ThreadKey("a", "b/", "../c"),
    ]
    assert len({partition(key) for key in keys}) == len(keys)
    assert all(len(partition(key)) < 2_048 for key in keys)


async def test_a_broken_item_does_not_take_the_thread_with_it(store, table, caplog):
    await turn(store, [user("q1", "1")], assistant("a1", "2"))
    broken = next(item for item in table.scan(TableName=TABLE)["Items"] if "00000000#" in item["sk"]["S"])
    table.put_item(TableName=TABLE, Item={**broken, "body": {"S": "nonsense"}})
    thread = await Thread.take(store, KEY, [user("q2", "3")])
    assert [(message["role"], message["content"]) for message in thread.messages] == [
        ("activity", {}),  # which no model and no client is shown
        ("assistant", "a1"),
        ("user", "q2"),
    ]
    assert "cannot be read" in caplog.text


async def test_a_chain_with_a_gap_is_not_built_upon(store, table):
    await turn(store, [user("q1", "1")], assistant("a1", "2"))
    before = table.scan(TableName=TABLE)["Items"]
    gap = next(item for item in before if "00000001#" in item["sk"]["S"])
    table.delete_item(TableName=TABLE, Key={"pk": gap["pk"], "sk": gap["sk"]})
    with pytest.raises(ThreadUnavailable):
        await Thread.take(store, KEY, [user("q2", "3")])
    table.put_item(TableName=TABLE, Item=gap)
    assert await turn(store, [user("q2", "3")]) == ["1", "2", "3"]


async def test_what_an_edit_discards_is_deleted(store, table):
    for n in range(5):
        await turn(store, [user(f"q{n}", "1")], assistant(f"a{n}", f"a{n}"))
    assert len(table.scan(TableName=TABLE)["Items"]) == 2 + 1


class LostAnswers:
    """A client whose updates are made, while their answers are lost; boto3 then sends them again."""

    def __init__(self, client: Any) -> None:
        self._client = client

    def __getattr__(self, name: str) -> Any:
        return getattr(self._client, name)

    def update_item(self, **parameters: Any) -> Any:
        self._client.update_item(**parameters)
        return self._client.update_item(**parameters)


async def test_an_update_that_is_sent_twice_is_made_once(store):
    await store.warm_up()
    store._client = LostAnswers(store._client)
    assert await turn(store, [user("q1", "1")], assistant("a1", "2")) == ["1"]
    assert await turn(store, [user("q2", "3")], assistant("a2", "4")) == ["1", "2", "3"]


async def test_a_run_that_is_cancelled_while_it_takes_the_thread_leaves_it_free(store):
    """At any moment: the request for the lease may be under way already."""
    for moment in range(30):
        taking = asyncio.create_task(Thread.take(store, KEY, [user("q", f"{moment}")]))
        for _ in range(moment * 3):
            await asyncio.sleep(0.0005)
        taking.cancel()
        done, _ = await asyncio.wait({taking})
        if not done.pop().cancelled():
            await taking.result().give_back([])
        assert (await store.load(KEY)).leased_until == 0.0


async def test_a_table_that_is_not_there_is_an_error_with_a_sentence(table):
    with pytest.raises(ThreadUnavailable) as caught:
        await Thread.take(DynamoDBStore("no-such-table"), KEY, [])
    assert "no-such-table" not in caught.value.message


async def test_many_messages_are_read_over_pages_and_written_in_batches(store):
    sent = [user("x" * 3_000 + str(n), str(n)) for n in range(400)]
    await turn(store, sent)
    assert await turn(store, []) == [str(n) for n in range(400)]


async def test_a_turn_costs_one_read_and_four_small_writes(store):
    """The figure in the README: a query, two messages, and `meta` twice, whatever the length of the thread."""
    for n in range(3):
        await turn(store, [user(f"q{n}", f"q{n}")], assistant(f"a{n}", f"a{n}"))
    calls: list[str] = []
    store._client.meta.events.register("before-call.dynamodb.*", lambda model, **_: calls.append(model.name))
    await turn(store, [user("q", "q")], assistant("a", "a"))
    assert calls == ["Query", "BatchWriteItem", "UpdateItem", "BatchWriteItem", "UpdateItem"]
