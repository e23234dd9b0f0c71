"""The runtime without the agent: our runtime and uvicorn around the same plain app, and the answer of that app."""

from __future__ import annotations

import asyncio
import importlib.util
import json
from collections.abc import AsyncIterator
from contextlib import AbstractAsyncContextManager, AsyncExitStack, asynccontextmanager
from dataclasses import dataclass

from bench.answer import Post, WrongAnswer
from bench.programs.chunks import STAMP
from bench.stage import RUNTIME, Stage, Subject
from local.child import ROOT
from local.environment import Configuration
from local.stack import LAYERS

PARSERS = {f"uvicorn, {parser}": parser for parser in ("h11", "httptools") if importlib.util.find_spec(parser)}
SERVERS = (RUNTIME, *PARSERS)

TOKEN_SIZE = 120
"""Bytes of a chunk; about those of an event with a token."""


def start(stage: Stage, server: str, app: str, streams: int | None = None) -> AbstractAsyncContextManager[Subject]:
    """The app of the module bench.programs.`app` behind one of SERVERS. Entered, it takes requests.

    `streams` is how many at once our runtime has to take; None: one, as on a function that is not on Managed Instances.
    """
    module = f"bench.programs.{app}"
    if server != RUNTIME:
        return stage.program(server, "bench.programs.under_uvicorn", module, PARSERS[server])
    return stage.bare_lambda(
        Configuration(
            handler="bench.programs.under_lambda.handler",
            task_root=ROOT,
            layers=LAYERS,
            env={"BENCH_APP": module},
            max_concurrency=streams,
        )
    )


@asynccontextmanager
async def streaming_servers(stage: Stage, streams: int | None = None) -> AsyncIterator[list[Subject]]:
    """Each of SERVERS with the app that streams chunks, warm."""
    async with AsyncExitStack() as running:
        subjects = [await running.enter_async_context(start(stage, server, "chunks", streams)) for server in SERVERS]
        for subject in subjects:
            await asyncio.to_thread(ask, subject.post, 1_000)
        yield subjects


@dataclass(frozen=True)
class Chunks:
    """When each was made and when it was there, in nanoseconds of CLOCK_MONOTONIC."""

    made: list[int]
    arrived: list[int]

    @property
    def seconds(self) -> float:
        """From the first one made to the last one there."""
        return (self.arrived[-1] - self.made[0]) / 1e9


def ask(post: Post, count: int, size: int = TOKEN_SIZE, pause: float | None = None) -> Chunks:
    """A stream of `count` chunks of `size` bytes; see `programs.chunks.Wanted`. Raises WrongAnswer."""
    reply = post(json.dumps({"count": count, "size": size, "pause": pause}).encode())
    arrived: list[int] = []
    content = bytearray()
    for arrival, piece in reply.body:
        content += piece
        arrived += [arrival] * (len(content) // size - len(arrived))
    if reply.status != 200 or len(content) != count * size:
        raise WrongAnswer(f"{reply.status} with {len(content)} bytes: {bytes(content[-500:])!r}")
    made = [int(content[start : start + STAMP]) for start in range(0, len(content), size)]
    return Chunks(made, arrived)
