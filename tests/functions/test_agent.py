"""The sample agent as it is deployed: function URL, Runtime API, streaming runtime, app, table, scripted model."""

import asyncio
import json
import re
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import aiohttp
import pytest

from local.child import start_child
from local.stack import LocalStack
from tests.agent_server import AgentServer, user
from tests.model_server import ModelServer, fin, hang, say, wait_for

pytestmark = pytest.mark.anyio

ROOT = Path(__file__).parents[2]


@pytest.fixture
async def model() -> AsyncIterator[ModelServer]:
    async with ModelServer() as model:
        yield model


@pytest.fixture
async def stack(model) -> AsyncIterator[LocalStack]:
    settings = {"OPENAI_BASE_URL": model.url, "OPENAI_API_KEY": "k", "OPENAI_MODEL": "m"}
    async with LocalStack(env=settings, timeout=5) as stack:
        yield stack


@pytest.fixture
async def served(model, stack) -> AsyncIterator[AgentServer]:
    async with aiohttp.ClientSession() as session:
        yield AgentServer(stack.url, model, session)


async def test_a_conversation_through_the_whole_path(served):
    served.model.otherwise(say("Hi"), fin())
    for n in range(3):
        answer = await served.run(user(f"q{n}"))
        assert answer.types == [
            "RUN_STARTED",
            "TEXT_MESSAGE_START",
            "TEXT_MESSAGE_CONTENT",
            "TEXT_MESSAGE_END",
            "RUN_FINISHED",
        ]
    said = [content for role, content in served.last_request if role != "system"]
    assert said == ["q0", "Hi", "q1", "Hi", "q2"]


async def test_tokens_cross_lambda_one_by_one_and_uncompressed(served):
    """Each token is out at the far end before the model is allowed to send the next."""
    gates = [asyncio.Event() for _ in range(50)]
    served.model.reply(*(step for gate in gates for step in (wait_for(gate), say("token"))), fin())
    headers = {"Accept-Encoding": "gzip, br", "Accept": "text/event-stream"}
    async with served.session.post(served.url, json=served.input(user("hi")), headers=headers) as response:
        assert "content-encoding" not in response.headers
        assert response.headers["content-type"] == "text/event-stream"
        assert b"RUN_STARTED" in await response.content.readuntil(b"\n\n")  # before the model has said a word
        gates[0].set()
        assert b"TEXT_MESSAGE_START" in await response.content.readuntil(b"\n\n")
        for gate in [*gates[1:], asyncio.Event()]:
            assert b'"delta":"token"' in await response.content.readuntil(b"\n\n")
            gate.set()
        assert b"RUN_FINISHED" in await response.read()


async def test_a_hundred_turns_share_one_connection_to_the_model(served, stack, capfd):
    served.model.otherwise(say("Hi"), fin())
    for n in range(100):
        assert (await served.run(user("q"), thread=f"t{n}")).types[-1] == "RUN_FINISHED"
    assert served.model.connections <= 2
    assert stack.function.environments == 1
    assert "loop" not in capfd.readouterr().err


async def test_a_run_ends_in_order_before_lambda_kills_it(served):
    served.model.reply(say("half"), hang)
    answer = await served.run(user("q"))
    assert answer.types == [
        "RUN_STARTED",
        "TEXT_MESSAGE_START",
        "TEXT_MESSAGE_CONTENT",
        "TEXT_MESSAGE_END",
        "RUN_ERROR",
    ]
    assert answer.events[-1]["code"] == "TIMEOUT"
    assert answer.arrivals[-1][0] < 5  # the function's time-out
    served.model.reply(say("better"), fin())
    assert (await served.run(user("again?"))).text == "better"
    said = [content for role, content in served.last_request if role != "system"]
    assert said == ["q", "half", "again?"]


async def test_a_response_that_lambda_refuses_stops_the_model_and_keeps_what_it_said(served, stack):
    scripted = served.model.reply(say("half"), hang)
    event = json.loads((ROOT / "events" / "chat.json").read_text())
    reply = await stack.function.invoke(json.dumps({**event, "body": json.dumps(served.input(user("q")))}).encode())
    async for piece in reply:
        if b"half" in piece:
            break
    reply.refuse(413, swallow=0)
    await asyncio.wait_for(scripted.gone.wait(), 1)  # the provider's connection is closed within a second
    served.model.reply(say("better"), fin())
    while (answer := await served.run(user("and?"))).events[-1].get("code") == "THREAD_BUSY":
        pass  # for the moment in which the half answer is stored
    assert answer.text == "better"
    said = [content for role, content in served.last_request if role != "system"]
    assert said == ["q", "half", "and?"]


@asynccontextmanager
async def stalling_proxy(upstream: str) -> AsyncIterator[tuple[str, asyncio.Event]]:
    """A table that answers nothing any more, from the moment the event is set."""
    stalled = asyncio.Event()
    host, _, port = upstream.removeprefix("http://").partition(":")
    tasks: set[asyncio.Task] = set()

    async def pump(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while data := await reader.read(65_536):
            if stalled.is_set():
                await asyncio.Event().wait()
            writer.write(data)
        writer.close()

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        there, back = await asyncio.open_connection(host, int(port))
        tasks.update({asyncio.create_task(pump(reader, back)), asyncio.create_task(pump(there, writer))})

    server = await asyncio.start_server(serve, "127.0.0.1", 0)
    try:
        yield f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}", stalled
    finally:
        server.close()
        for task in tasks:
            task.cancel()


async def test_a_table_that_hangs_does_not_take_the_end_of_the_run_along(model, tmp_path):
    """The answer cannot be kept, but the client is told so before Lambda kills the environment."""
    table = await start_child(["-m", "local.table", "--data", str(tmp_path / "threads.jsonl")])
    async with stalling_proxy(table.url) as (proxy, stalled):
        settings = {"OPENAI_BASE_URL": model.url, "OPENAI_API_KEY": "k", "AWS_ENDPOINT_URL_DYNAMODB": proxy}
        async with LocalStack(env=settings, timeout=4) as stack, aiohttp.ClientSession() as session:
            served = AgentServer(stack.url, model, session)
            gate, said = asyncio.Event(), asyncio.Event()
            model.reply(say("a"), wait_for(gate, said), fin())
            running = asyncio.create_task(served.run(user("q")))
            await said.wait()
            stalled.set()
            gate.set()
            answer = await running
    await table.stop()
    assert answer.text == "a"
    assert answer.events[-1]["code"] == "THREAD_UNAVAILABLE"
    assert answer.arrivals[-1][0] < 4


async def test_two_runs_on_one_thread_from_two_environments(served, stack):
    gate, asked = asyncio.Event(), asyncio.Event()
    served.model.reply(wait_for(gate, asked), say("first"), fin())
    first = asyncio.create_task(served.run(user("q1")))
    await asked.wait()
    second = await served.run(user("q2"))
    assert second.events[-1]["code"] == "THREAD_BUSY"
    gate.set()
    assert (await first).text == "first"
    assert stack.function.environments == 2


async def test_bad_requests_are_answered_with_their_status(served):
    for body, status in ((b"{", 400), (b'{"threadId":"t","runId":"r","messages":"hi"}', 422), (b" " * 6_000_000, 400)):
        answer = await served.post(body)
        assert (answer.status, answer.headers["content-type"]) == (status, "application/json")
    async with served.session.get(served.url, headers={"Accept": "application/json"}) as response:
        assert (response.status, response.headers["allow"]) == (405, "POST")


async def test_nothing_that_was_said_is_in_the_log(served, capfd):
    served.model.reply(say("secret answer"), fin())
    await served.post(served.input(user("secret question")), Authorization="Bearer secret-token")
    served.model.reply(say("secret half"))
    await served.run(user("secret question", "2"))
    log = capfd.readouterr().err
    assert "MODEL_STREAM_CUT" in log
    assert "secret" not in log


async def test_the_sample_event_is_what_the_function_url_sends(served, stack):
    event = json.loads((ROOT / "events" / "chat.json").read_text())
    served.model.reply(say("Hi"), fin())
    reply = await stack.function.invoke(json.dumps(event).encode())
    stream = b"".join([piece async for piece in reply])
    prelude, body = re.split(rb"\0{8}", stream)
    assert json.loads(prelude)["statusCode"] == 200
    assert b"RUN_FINISHED" in body
