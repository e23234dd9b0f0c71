"""A Node program that takes commands: JSON lines on stdin, answers on stdout, paired by their `id`.

Knows what has to be installed for it, and nothing of what the programs do.
"""

from __future__ import annotations

import asyncio
import itertools
import json
import os
import shutil
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, NoReturn

import pytest

FOLDER = Path(__file__).parent
LINE_LIMIT = 16 * 1024 * 1024
"""Bytes of one answer: the whole body of a run is in one line."""

JSON = dict[str, Any]


class NodeError(Exception):
    """The program could not do what it was told; holds the error with JavaScript's own stack."""


def missing(what: str) -> NoReturn:
    """Skips the test, on a person's machine; in CI, where everything must be there, fails it."""
    if os.environ.get("CI"):
        pytest.fail(f"{what} In CI this test must run.", pytrace=False)
    pytest.skip(what)


def executable(*names: str, hint: str) -> str:
    """The path of the first of these programs that is installed."""
    found = next(filter(None, map(shutil.which, names)), None)
    return found or missing(f"{names[0]} is not installed: {hint}")


class NodeProgram:
    """`request` may be called by many tasks at once."""

    def __init__(self, process: asyncio.subprocess.Process) -> None:
        self._process = process
        self._ids = itertools.count(1)
        self._waiting: dict[int, tuple[asyncio.Future[Any], Callable[[JSON], None]]] = {}

    async def request(self, command: JSON, on_event: Callable[[JSON], None] = lambda event: None) -> Any:
        """The command's result. Raises NodeError when it failed or the program ended."""
        id = next(self._ids)
        answer: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
        self._waiting[id] = answer, on_event
        assert self._process.stdin is not None
        self._process.stdin.write(json.dumps({"id": id, **command}).encode() + b"\n")
        try:
            return await answer
        finally:
            del self._waiting[id]

    async def read_answers(self) -> None:
        """Runs as long as the program does."""
        assert self._process.stdout is not None
        async for line in self._process.stdout:
            said = json.loads(line)
            if said["id"] not in self._waiting:
                continue  # the test that asked has been cancelled
            answer, on_event = self._waiting[said["id"]]
            if "event" in said:
                on_event(said["event"])
            elif "error" in said:
                answer.set_exception(NodeError(said["error"]))
            else:
                answer.set_result(said["result"])
        for answer, _ in self._waiting.values():
            answer.set_exception(NodeError("the program ended; its stderr says why"))


@asynccontextmanager
async def node_program(script: str, *arguments: str) -> AsyncIterator[NodeProgram]:
    """Runs `script` of this folder; it ends when its stdin does."""
    node = executable("node", hint="Node.js 20 or newer runs the official AG-UI clients.")
    if not (FOLDER / "node_modules").is_dir():
        missing("The official AG-UI clients are not installed: run `make test`, or `npm ci` in tests/clients.")
    process = await asyncio.create_subprocess_exec(
        node,
        script,
        *arguments,
        cwd=FOLDER,
        stdin=asyncio.subprocess.PIPE,
        stdout=asyncio.subprocess.PIPE,
        limit=LINE_LIMIT,
    )
    program = NodeProgram(process)
    reading = asyncio.create_task(program.read_answers())
    try:
        yield program
    finally:
        assert process.stdin is not None
        process.stdin.close()
        try:
            await asyncio.wait_for(process.wait(), 5)
        except TimeoutError:
            process.kill()
            await process.wait()
        await reading
