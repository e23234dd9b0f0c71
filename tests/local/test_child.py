"""Helper programs: ready line, and an end that nobody has to ask for."""

import asyncio
import signal
import sys
from pathlib import Path

import aiohttp
import pytest

from local.child import ChildFailed, start_child
from tests.local.waiting import running, until

pytestmark = pytest.mark.anyio

ROOT = Path(__file__).resolve().parents[2]

HELLO = """
import asyncio, sys
from local.child import serve_child
async def app(scope, receive, send):
    if scope["type"] == "lifespan":
        for kind in "startup", "shutdown":
            await receive()
            print(kind, file=sys.stderr, flush=True)
            await send({"type": f"lifespan.{kind}.complete"})
        return
    await send({"type": "http.response.start", "status": 200, "headers": []})
    await send({"type": "http.response.body", "body": b"hello"})
asyncio.run(serve_child(app))
"""


async def test_a_child_serves_and_ends_in_order(capfd):
    child = await start_child(["-c", HELLO])
    async with aiohttp.ClientSession() as http, http.get(child.url + "/") as response:
        assert await response.read() == b"hello"
    await child.stop()
    await child.stop()
    assert child.process.returncode == 0
    assert capfd.readouterr().err == "startup\nshutdown\n"


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
async def test_a_signal_ends_it_quietly(number, capfd):
    child = await start_child(["-c", HELLO])
    child.process.send_signal(number)
    assert await child.process.wait() == 0
    assert capfd.readouterr().err == "startup\nshutdown\n"


async def test_it_dies_with_a_parent_that_is_killed():
    parent = await asyncio.create_subprocess_exec(
        sys.executable,
        "-c",
        "import asyncio, sys; from local.child import start_child\n"
        "async def main():\n"
        "    child = await start_child(['-c', sys.argv[1]]); print(child.process.pid, flush=True)\n"
        "    await asyncio.Event().wait()\n"
        "asyncio.run(main())",
        HELLO,
        stdout=asyncio.subprocess.PIPE,
        cwd=ROOT,
    )
    pid = int(await parent.stdout.readline())
    parent.kill()
    await parent.wait()
    await until(lambda: not running(pid))


@pytest.mark.parametrize(
    ("program", "message"),
    [
        ("raise SystemExit(3)", "exit code 3"),
        ("print('hello')", "after 'hello'"),
        ("import time; time.sleep(60)", "not ready within 0.5 s"),
    ],
)
async def test_a_child_that_does_not_get_ready_is_an_error(program, message):
    with pytest.raises(ChildFailed, match=message):
        await start_child(["-c", program], ready_within=0.5)
