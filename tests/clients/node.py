"""A Node program that takes commands: JSON lines on stdin, answers on stdout, paired by their `id`.

Knows what has to be installed for it, and nothing of what the programs do.
"""

from __future__ import annotations

import asyncio
import itertools
import json
import os
import shutil
import subprocess
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, NoReturn

import pytest

FOLDER = Path(__file__).parent
OLDEST_NODE = 20
"""Playwright runs on none that is older."""
TIME_LIMIT = 30
"""Seconds for one command: a run, or a step in a browser."""
LINE_LIMIT = 16 * 1024 * 1024
"""Bytes of one answer: the whole body of a run is in one line."""

JSON = dict[str, Any]


ENDED = "The Node program ended; its stderr says why."


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


def find_node() -> str:
    """The path of a Node.js that is new enough."""
    wanted = f"Node.js {OLDEST_NODE} or newer runs the official AG-UI clients."
    node = executable("node", hint=wanted)
    version = subprocess.run([node, "--version"], capture_output=True, text=True, check=True).stdout.strip()
    if int(version.removeprefix("v").partition(".")[0]) < OLDEST_NODE:
        missing(f"{wanted} This is {version}.")
    return node


class NodeProgram:
    """`request` may be called by many tasks at once."""

    def __init__(self, process: asyncio.subprocess.Process) -> None:
        self._process = process
        self._ended = False
        self._ids = itertools.count(1)
        self._waiting: dict[int, tuple[asyncio.Future[Any], Callable[[JSON], None]]] = {}

    async def request(self, command: JSON, on_event: Callable[[JSON], None] = lambda event: None) -> Any:
        """The command's result. Raises NodeError when it failed or the program ended, TimeoutError."""
        if self._ended:
            raise NodeError(ENDED)
        id = next(self._ids)
        answer: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
        self._waiting[id] = answer, on_event
        assert self._process.stdin is not None
        self._process.stdin.write(json.dumps({"id": id, **command}).encode() + b"\n")
        try:
            async with asyncio.timeout(TIME_LIMIT):
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
        self._ended = True
        for answer, _ in self._waiting.values():
            answer.set_exception(NodeError(ENDED))


@asynccontextmanager
async def node_program(script: str, *arguments: str) -> AsyncIterator[NodeProgram]:
    """Runs `script` of this folder; it ends when its stdin does."""
    node = find_node()
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
