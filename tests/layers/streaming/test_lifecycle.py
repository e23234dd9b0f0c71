"""What happens around an invocation: refused responses, SnapStart, many invocations in one process, nonces."""

import asyncio
import json
import os
import signal
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import aiohttp
import pytest

from local.function import TooManyRequestsError
from local.invocation import InitError, Reply
from local.stack import LocalStack
from tests.layers.streaming.test_adapter import url_event

pytestmark = pytest.mark.anyio

APPS = Path(__file__).parent / "apps"


@pytest.fixture
def notes(tmp_path: Path) -> Path:
    """What the app noted, a line each."""
    file = tmp_path / "notes"
    file.touch()
    return file


@asynccontextmanager
async def function(notes: Path, handler: str = "lifecycle.handler", **options) -> AsyncIterator[LocalStack]:
    env = {"NOTES": str(notes), **options.pop("env", {})}
    async with LocalStack(handler=handler, task_root=APPS, table=False, model=None, env=env, **options) as stack:
        yield stack


async def invoke(stack: LocalStack, path: str, query: str = "") -> Reply:
    event = {**url_event(path=path), "rawQueryString": query}
    return await stack.function.invoke(json.dumps(event).encode())


async def body(reply: Reply) -> bytes:
    return b"".join([piece async for piece in reply]).partition(b"\0" * 8)[2]


async def first_bytes(reply: Reply) -> None:
    async for _ in reply:
        return


async def noted(notes: Path, line: str) -> None:
    while line not in notes.read_text().splitlines():
        await asyncio.sleep(0.001)


@pytest.mark.parametrize("status", [400, 413])
async def test_a_response_that_is_refused_early_stops_the_app(notes, capfd, status):
    async with function(notes) as stack:
        reply = await invoke(stack, "/endless/")
        await first_bytes(reply)
        reply.refuse(status)
        await noted(notes, "tidied up")
        assert await body(await invoke(stack, "/pid"))  # the next invocation works
    log = capfd.readouterr().err
    assert f"it answered {status}" in log
    assert "never retrieved" not in log


async def test_an_app_that_waits_for_something_else_is_cancelled(notes):
    """A refusal is met while nothing is written, so the app cannot notice it by itself."""
    async with function(notes) as stack:
        reply = await invoke(stack, "/silent")
        await first_bytes(reply)
        reply.refuse(400, swallow=0)
        await noted(notes, "cancelled")
        assert await body(await invoke(stack, "/pid"))


async def test_a_connection_that_breaks_is_survived(notes):
    async with function(notes) as stack:
        pids = []
        for _ in range(3):
            reply = await invoke(stack, "/endless/")
            await first_bytes(reply)
            reply.refuse(0, swallow=0)
            pids.append(await body(await invoke(stack, "/pid")))
    assert len(set(pids)) == 1


async def test_an_app_that_ignores_everything_is_left_behind(notes, capfd):
    """Its environment takes the next invocation all the same."""
    async with function(notes, "lifecycle.deaf_handler", max_environments=1) as stack:
        [pid] = stack.function.pids
        reply = await invoke(stack, "/")
        await first_bytes(reply)
        reply.refuse(400, swallow=0)
        while True:
            try:
                assert await body(await invoke(stack, "/pid")) == str(pid).encode()
                break
            except TooManyRequestsError:  # it has its time to end, CANCELLATION at most
                await asyncio.sleep(0.01)
    assert "goes on although" in capfd.readouterr().err


async def test_snap_start_runs_hooks_in_order_and_starts_the_app_after_the_restore(notes):
    async with function(notes, snap_start=True) as stack:
        assert await body(await invoke(stack, "/pid"))
    assert notes.read_text().splitlines() == ["before 2", "before 1", "after 1", "after 2", "startup"]


async def test_a_failure_after_the_restore_has_its_own_type(notes):
    with pytest.raises(InitError) as caught:
        async with function(notes, snap_start=True, env={"BROKEN": "yes"}):
            pass
    assert caught.value.error_type == "Runtime.AfterRestoreError"


async def test_a_failing_hook_before_the_snapshot_has_its_own_type(tmp_path):
    with pytest.raises(InitError) as caught:
        async with function(tmp_path, snap_start=True):  # notes cannot be written into a folder
            pass
    assert caught.value.error_type == "Runtime.BeforeSnapshotError"


async def test_the_nonce_of_an_invocation_comes_back(notes):
    async with function(notes, invocation_ids=True) as stack:
        for _ in range(3):
            reply = await invoke(stack, "/pid")
            assert await body(reply)
            assert reply.outcome is not None
            assert reply.outcome.error_type is None


async def test_sixty_four_slow_streams_in_one_process_stay_in_order_apart_and_on_time(notes):
    async with function(notes, max_concurrency=64) as stack, aiohttp.ClientSession(stack.url) as session:

        async def fetch(name: int) -> tuple[list[str], str]:
            async with session.get(f"/paced?name={name}") as response:
                return (await response.text()).splitlines(), response.headers["x-amzn-requestid"]

        answers = await asyncio.gather(*(fetch(name) for name in range(64)))
        assert stack.function.environments == 1
    for name, (lines, request_id) in enumerate(answers):
        assert lines == [f"{name}:{n}:{request_id}" for n in range(20)]


@pytest.mark.parametrize("concurrency", [None, 4])
async def test_the_end_of_the_environment_leaves_an_answer_time_to_be_stored(notes, concurrency):
    async with function(notes, max_concurrency=concurrency) as stack:
        reply = await invoke(stack, "/silent")
        await first_bytes(reply)
        [pid] = stack.function.pids
        os.kill(pid, signal.SIGTERM)
        await noted(notes, "shutdown")
    assert notes.read_text().splitlines() == ["startup", "cancelled", "shutdown"]


async def test_the_end_of_the_environment_runs_the_apps_shutdown(notes):
    async with function(notes) as stack:
        assert await body(await invoke(stack, "/pid"))
        [pid] = stack.function.pids
        os.kill(pid, signal.SIGTERM)  # as Lambda sends it where an extension is
        await noted(notes, "shutdown")
