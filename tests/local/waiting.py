"""Waiting for what another process does: as short as possible, and never for ever."""

import asyncio
import os
from collections.abc import Callable
from pathlib import Path


async def until(condition: Callable[[], object], seconds: float = 10) -> None:
    """Returns when `condition` holds. Raises TimeoutError."""
    async with asyncio.timeout(seconds):
        while not condition():
            await asyncio.sleep(0.01)


def running(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    # An orphan that has ended stays a zombie where nobody collects it, as in some containers.
    stat = Path(f"/proc/{pid}/stat")
    return not (stat.exists() and stat.read_text().rpartition(")")[2].split()[0] == "Z")
