"""The log of an environment: what its process writes goes to our stderr, line by line as a terminal shows them."""

from __future__ import annotations

import asyncio
import os
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager


class Log(asyncio.Protocol):
    """Passes on what is written into a pipe. AWS's Python client joins the lines of a trace by carriage returns."""

    def __init__(self) -> None:
        self._transport: asyncio.BaseTransport | None = None
        self._ended = asyncio.Event()

    @asynccontextmanager
    async def pipe(self) -> AsyncIterator[int]:
        """The descriptor to write to; ours is closed on leaving, the one of a process started in between stays."""
        reading, writing = os.pipe()
        try:
            await asyncio.get_running_loop().connect_read_pipe(lambda: self, os.fdopen(reading, "rb", 0))
            yield writing
        finally:
            os.close(writing)

    async def close(self) -> None:
        """Reads to the end, but does not wait for a process that has escaped with the descriptor."""
        try:
            async with asyncio.timeout(0.5):
                await self._ended.wait()
        except TimeoutError:
            pass
        if self._transport:
            self._transport.close()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = transport

    def data_received(self, data: bytes) -> None:
        lines = data.replace(b"\r\n", b"\n").replace(b"\r", b"\n")
        try:
            while lines:
                lines = lines[os.write(2, lines) :]
        except OSError:
            pass  # Nobody reads our stderr.

    def connection_lost(self, error: Exception | None) -> None:
        self._ended.set()
