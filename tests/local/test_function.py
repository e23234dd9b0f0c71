"""Environments as Lambda runs them: INIT once, one invocation at a time, more when busy, SIGKILL at the deadline."""

import json
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from local.environment import Configuration
from local.function import Function, TooManyRequestsError
from local.invocation import InitError
from tests.local.waiting import running, until

pytestmark = pytest.mark.anyio

HERE = Path(__file__).parent
RAW = (sys.executable, str(HERE / "raw_runtime.py"))


@asynccontextmanager
async def function(
    handler="app.handler", timeout=30.0, env=None, command=RAW, max_environments=10, idle_after=300.0, **options
) -> AsyncIterator[Function]:
    function = Function(
        Configuration(handler=handler, task_root=HERE, command=command, timeout=timeout, env=env or {}, **options),
        max_environments=max_environments,
        idle_after=idle_after,
    )
    try:
        await function.start()
        yield function
    finally:
        await function.stop()


def event(*steps) -> bytes:
    return json.dumps({"body": json.dumps(steps)}).encode()


async def content(reply) -> bytes:
    return b"".join([piece async for piece in reply])


async def call(function, *steps):
    return json.loads(await content(await function.invoke(event(*steps))))


async def test_a_process_finds_the_variables_of_lambda(monkeypatch):
    monkeypatch.setenv("FROM_THE_SHELL", "yes")
    monkeypatch.setenv("AWS_SAM_LOCAL", "true")
    monkeypatch.setenv("TAKEN_AWAY", "x")
    names = """_HANDLER LAMBDA_TASK_ROOT AWS_LAMBDA_FUNCTION_NAME AWS_LAMBDA_FUNCTION_VERSION AWS_REGION
        AWS_LAMBDA_FUNCTION_MEMORY_SIZE AWS_LAMBDA_EXEC_WRAPPER FROM_THE_SHELL AWS_SAM_LOCAL TAKEN_AWAY OURS""".split()
    async with function(env={"OURS": "1", "TAKEN_AWAY": None}) as agent:
        found = await call(agent, {"variables": names})
    assert found.pop("pid")
    assert found == {
        "_HANDLER": "app.handler",
        "LAMBDA_TASK_ROOT": str(HERE),
        "AWS_LAMBDA_FUNCTION_NAME": "agent",
        "AWS_LAMBDA_FUNCTION_VERSION": "$LATEST",
        "AWS_REGION": "us-east-1",
        "AWS_LAMBDA_FUNCTION_MEMORY_SIZE": "512",
        "AWS_LAMBDA_EXEC_WRAPPER": "/opt/response-streaming",
        "FROM_THE_SHELL": "yes",
        "AWS_SAM_LOCAL": None,
        "TAKEN_AWAY": None,
        "OURS": "1",
    }


async def test_invocations_one_after_another_share_one_process():
    async with function() as agent:
        pids = {(await call(agent, {"variables": []}))["pid"] for _ in range(5)}
        assert len(pids) == 1
        assert agent.environments == 1


async def test_a_busy_environment_brings_another_up_to_the_limit(tmp_path):
    async with function(max_environments=2) as agent:
        go = tmp_path / "go"
        steps = {"wait_for_file": str(go)}, {"variables": []}
        busy = [await agent.invoke(event(*steps)) for _ in range(2)]
        with pytest.raises(TooManyRequestsError):
            await agent.invoke(event(*steps))
        go.touch()
        answers = [json.loads(await content(reply)) for reply in busy]
        assert answers[0]["pid"] != answers[1]["pid"]


async def test_environments_that_are_not_needed_end_but_one(tmp_path):
    async with function(idle_after=0.2) as agent:
        go = tmp_path / "go"
        busy = [await agent.invoke(event({"wait_for_file": str(go)}, {"variables": []})) for _ in range(3)]
        assert agent.environments == 3
        go.touch()
        pids = [json.loads(await content(reply))["pid"] for reply in busy]
        await until(lambda: agent.environments == 1)
        left = (await call(agent, {"variables": []}))["pid"]
        assert left in pids
        await until(lambda: [pid for pid in pids if running(pid)] == [left])


async def test_at_the_deadline_the_process_is_killed_and_the_stream_cut():
    async with function(timeout=0.5) as agent:
        pid = (await call(agent, {"variables": []}))["pid"]
        reply = await agent.invoke(event({"prelude": {"statusCode": 200}}, {"chunk": "begun"}, {"hang": None}))
        assert await content(reply) == b'{"statusCode": 200}' + b"\0" * 8 + b"begun"
        assert (reply.outcome.error_type, reply.outcome.truncated) == ("Sandbox.Timeout", True)
        assert "Task timed out after 0.50 seconds" in reply.outcome.message
        await until(lambda: not running(pid))
        assert (await call(agent, {"variables": []}))["pid"] != pid


async def test_a_process_that_exits_in_mid_stream_is_noticed_and_replaced():
    async with function() as agent:
        reply = await agent.invoke(event({"prelude": {}}, {"chunk": "begun"}, {"exit": 3}))
        assert (await content(reply)).endswith(b"begun")
        assert reply.outcome.truncated
        assert await call(agent, {"json": 1}) == 1


async def test_a_process_that_exits_without_a_word_is_an_exit_error():
    async with function() as agent:
        reply = await agent.invoke(event({"exit": 3}))
        assert await content(reply) == b""
        assert reply.outcome.error_type == "Runtime.ExitError"
        assert "exit status 3" in reply.outcome.message


@pytest.mark.parametrize(
    ("handler", "error_type", "message"),
    [
        ("init.error", "Runtime.HandlerNotFound", "no handler there"),
        ("init.exit", "Runtime.ExitError", "exit status 7"),
    ],
)
async def test_an_init_error_shows_at_the_start(handler, error_type, message):
    with pytest.raises(InitError, match=message) as raised:
        async with function(handler):
            pass
    assert raised.value.error_type == error_type


async def test_a_runtime_that_is_not_there_is_an_init_error():
    with pytest.raises(InitError, match="cannot start /no/such/runtime"):
        async with function(command=("/no/such/runtime",)):
            pass


async def test_restart_ends_idle_environments_now_and_busy_ones_after_their_invocation(tmp_path):
    async with function() as agent:
        go = tmp_path / "go"
        busy = await agent.invoke(event({"wait_for_file": str(go)}, {"variables": []}))
        idle = (await call(agent, {"variables": []}))["pid"]
        await agent.restart()
        await until(lambda: not running(idle))
        fresh = (await call(agent, {"variables": []}))["pid"]
        go.touch()
        old = json.loads(await content(busy))["pid"]
        await until(lambda: not running(old))
        assert len({old, idle, fresh}) == 3
        assert (await call(agent, {"variables": []}))["pid"] == fresh


async def test_stop_ends_a_busy_process_and_its_reply():
    async with function() as agent:
        pid = (await call(agent, {"variables": []}))["pid"]
        reply = await agent.invoke(event({"hang": None}))
    assert await content(reply) == b""
    assert reply.outcome.truncated
    await until(lambda: not running(pid))


async def test_what_the_process_writes_is_readable_on_our_stderr(capfd):
    program = "import sys; print('one\\rtwo'); print('three', file=sys.stderr); sys.exit(9)"
    with pytest.raises(InitError, match="exit status 9"):
        async with function(command=(sys.executable, "-c", program)):
            pass
    assert set(capfd.readouterr().err.splitlines()) >= {"one", "two", "three"}
