"""Managed Instances: many invocations at once in one process, and other answers to those that are too late."""

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack

import pytest

from local.function import TooManyRequestsError
from local.runtime_api import RuntimeAPI
from tests.local.exchange import connected, content, invocation, serving
from tests.local.raw_runtime import Http
from tests.local.test_function import call, event, function
from tests.local.waiting import running, until

pytestmark = pytest.mark.anyio


@pytest.fixture
async def api() -> AsyncIterator[RuntimeAPI]:
    async with serving(concurrent=True) as api:
        yield api


@pytest.fixture
async def http(api: RuntimeAPI) -> AsyncIterator[Http]:
    async with connected(api) as http:
        yield http


async def test_each_connection_is_given_an_invocation_of_its_own(api):
    async with AsyncExitStack() as stack:
        connections = [await stack.enter_async_context(connected(api)) for _ in range(8)]
        replies = [api.invoke(invocation(f"r{n}")) for n in range(8)]
        taken = await asyncio.gather(*(http.next() for http in connections))
        assert [request_id for request_id, _ in taken] == [f"r{n}" for n in range(8)]
        # Answered in the other order, and interleaved.
        for http, (request_id, _) in reversed(list(zip(connections, taken, strict=True))):
            http.stream(request_id)
            http.chunk(request_id.encode())
        for http in connections:
            http.end()
            assert (await http.answer())[0] == 202
        assert [await content(reply) for reply in replies] == [f"r{n}".encode() for n in range(8)]


async def test_a_connection_that_has_gone_is_given_nothing(api, http):
    async with connected(api) as gone:
        asking = asyncio.create_task(gone.next())
        await api.polled()
        asking.cancel()
    await asyncio.sleep(0.02)
    api.invoke(invocation("r1"))
    assert (await http.next())[0] == "r1"


async def test_an_invocation_is_answered_once(api, http):
    api.invoke(invocation())
    await http.next()
    for status, kind in ((202, None), (400, "InvalidRequestID")):
        http.respond("r1")
        answer = await http.answer()
        assert (answer[0], json.loads(answer[2]).get("errorType")) == (status, kind)


async def test_an_answer_while_another_is_open_is_refused(api, http):
    reply = api.invoke(invocation())
    await http.next()
    http.stream("r1")
    http.chunk(b"x")
    await anext(aiter(reply))
    async with connected(api) as second:
        second.respond("r1")
        assert (await second.answer())[0] == 400
    http.end()
    assert (await http.answer())[0] == 202
    assert reply.outcome.error_type is None


async def test_an_error_while_the_response_is_open_takes_its_place(api, http):
    reply = api.invoke(invocation())
    await http.next()
    http.stream("r1")
    http.chunk(b"x")
    await anext(aiter(reply))
    async with connected(api) as second:
        second.respond("r1", "Lambda-Runtime-Function-Error-Type: E", path="error", body=b"{}")
        assert (await second.answer())[0] == 202
    assert await http.reader.read() == b""
    assert (reply.outcome.error_type, reply.outcome.truncated) == ("E", True)


async def test_one_process_has_so_many_invocations_and_then_there_is_another(tmp_path):
    go = tmp_path / "go"
    async with function(max_concurrency=4, max_environments=2) as agent:
        steps = {"wait_for_file": str(go)}, {"variables": ["AWS_LAMBDA_MAX_CONCURRENCY"]}
        replies = await asyncio.gather(*(agent.invoke(event(*steps)) for _ in range(8)))
        with pytest.raises(TooManyRequestsError):
            await agent.invoke(event(*steps))
        assert agent.environments == 2
        go.touch()
        found = [json.loads(await content(reply)) for reply in replies]
        assert {one["AWS_LAMBDA_MAX_CONCURRENCY"] for one in found} == {"4"}
        pids = [one["pid"] for one in found]
        assert sorted(pids.count(pid) for pid in set(pids)) == [4, 4]


async def test_at_the_deadline_others_go_on_and_what_is_still_sent_is_410(tmp_path):
    go = tmp_path / "go"
    async with function(max_concurrency=2, timeout=0.5) as agent:
        pid = (await call(agent, {"variables": []}))["pid"]
        silent = await agent.invoke(event({"wait_for_file": str(go)}, {"status_of_answer": str(tmp_path / "late")}))
        begun = await agent.invoke(
            event({"prelude": {}}, {"chunk": "x"}, {"status_of_refusal": str(tmp_path / "begun")}, {"reconnect": None})
        )
        assert (await content(begun)).endswith(b"x")
        assert await content(silent) == b""
        assert {silent.outcome.error_type, begun.outcome.error_type} == {"Sandbox.Timeout"}
        go.touch()
        for name in ("late", "begun"):
            await until(lambda name=name: (tmp_path / name).exists() and (tmp_path / name).read_text() == "410")
        assert running(pid)
        assert (await call(agent, {"variables": []}))["pid"] == pid


async def test_a_process_that_ends_takes_all_its_invocations_along(tmp_path):
    async with function(max_concurrency=3) as agent:
        waiting = [await agent.invoke(event({"hang": None})) for _ in range(2)]
        ending = await agent.invoke(event({"exit": 1}))
        for reply in (*waiting, ending):
            await content(reply)
            assert (reply.outcome.error_type, reply.outcome.truncated) == ("Runtime.ExitError", True)
        assert await call(agent, {"json": 1}) == 1


async def test_restart_waits_for_every_invocation_of_an_environment(tmp_path):
    async with function(max_concurrency=2) as agent:
        first, second = [
            await agent.invoke(event({"wait_for_file": str(tmp_path / name)}, {"variables": []})) for name in "ab"
        ]
        await agent.restart()
        (tmp_path / "a").touch()
        old = json.loads(await content(first))["pid"]
        fresh = (await call(agent, {"variables": []}))["pid"]
        assert running(old)
        (tmp_path / "b").touch()
        assert json.loads(await content(second))["pid"] == old != fresh
        await until(lambda: not running(old))
