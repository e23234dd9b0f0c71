"""Frozen between invocations: what a function leaves running stands still until the next event."""

import asyncio
import sys
from asyncio.subprocess import PIPE
from pathlib import Path

import pytest

from local.invocation import InitError
from tests.local.test_function import call, function
from tests.local.waiting import running, until

pytestmark = [
    pytest.mark.anyio,
    pytest.mark.skipif(not Path("/proc/self/stat").exists(), reason="reads the state of processes from /proc"),
]


def state(pid: int) -> str:
    """R, S, T (stopped), Z…; see proc(5)."""
    return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]


async def test_it_is_frozen_once_it_asks_for_more_and_thawed_by_the_next_event():
    async with function(freeze=True) as agent:
        pids = set()
        for _ in range(3):
            pid = (await call(agent, {"variables": []}))["pid"]
            pids.add(pid)
            await until(lambda pid=pid: state(pid) == "T")
        assert len(pids) == 1


async def test_it_is_frozen_after_init_too():
    async with function(freeze=True) as agent:
        [pid] = agent.pids
        await until(lambda: state(pid) == "T")


async def test_work_in_the_background_stands_still(tmp_path):
    ticks = tmp_path / "ticks"
    async with function(freeze=True) as agent:
        pid = (await call(agent, {"tick": str(ticks)}, {"variables": []}))["pid"]
        await until(lambda: state(pid) == "T")
        before = ticks.stat().st_size
        # As long as the function would have needed for many.
        with pytest.raises(TimeoutError):
            await until(lambda: ticks.stat().st_size > before, seconds=0.1)
        await call(agent, {"wait_for_growth": [str(ticks), before]}, {"json": 1})


async def test_a_frozen_process_ends_with_its_stack():
    async with function(freeze=True) as agent:
        pid = (await call(agent, {"variables": []}))["pid"]
        await until(lambda: state(pid) == "T")
    assert not running(pid)


FROZEN = """
import asyncio, sys
from local.environment import Configuration, Environment
from pathlib import Path

async def main():
    runtime = sys.executable, "tests/local/raw_runtime.py"
    environment = Environment(Configuration("app.handler", Path.cwd(), command=runtime, freeze=True))
    await environment.start()
    print(environment.pid, flush=True)
    await asyncio.Event().wait()

asyncio.run(main())
"""


async def test_a_frozen_process_ends_even_if_its_stack_is_killed():
    root = Path(__file__).parents[2]
    stack = await asyncio.create_subprocess_exec(sys.executable, "-c", FROZEN, cwd=root, stdout=PIPE)
    pid = int(await stack.stdout.readline())
    await until(lambda: state(pid) == "T")
    stack.kill()
    await stack.wait()
    await until(lambda: not running(pid))


async def test_init_has_its_own_time_limit(caplog):
    with pytest.raises(InitError, match=r"INIT took longer than 0\.2 seconds"):
        async with function(command=(sys.executable, "-c", "import time; time.sleep(60)"), init_timeout=0.2):
            pass
    assert "AWS would start it again within the first invocation" in caplog.text


@pytest.mark.parametrize("option", ["snap_start", "freeze"])
def test_managed_instances_are_neither_frozen_nor_restored(option):
    from local.environment import Configuration

    with pytest.raises(ValueError, match="Managed Instances"):
        Configuration("app.handler", Path(), max_concurrency=2, **{option: True})
