"""Freezes an environment's processes between invocations, as Lambda does: what they do behind a reply stands still.

A stopped process cannot notice that this one has gone, so a guard ends it then.
"""

from __future__ import annotations

import asyncio
import os
import signal

# Reads until the pipe on its stdin breaks, which is when its parent has ended, however that happened.
_GUARD = ("/bin/sh", "-c", 'read -r _; kill -KILL "-$0"')


class Freezer:
    """Does nothing until it is started. `start` once with a process group, `stop` when that has ended."""

    def __init__(self) -> None:
        self._group = 0
        self._guard: asyncio.subprocess.Process | None = None

    async def start(self, group: int) -> None:
        self._group = group
        self._guard = await asyncio.create_subprocess_exec(
            *_GUARD, str(group), stdin=asyncio.subprocess.PIPE, start_new_session=True
        )

    def freeze(self) -> None:
        self._send(signal.SIGSTOP)

    def thaw(self) -> None:
        self._send(signal.SIGCONT)

    async def stop(self) -> None:
        """Ends the guard alone."""
        guard, self._guard, self._group = self._guard, None, 0
        if guard:
            guard.kill()
            await guard.wait()

    def _send(self, number: signal.Signals) -> None:
        if self._group:
            try:
                os.killpg(self._group, number)
            except ProcessLookupError:
                pass  # They have ended.
