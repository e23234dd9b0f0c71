"""From nothing to ready, with an app that imports nothing: the first `GET /next`, or uvicorn that accepts."""

from __future__ import annotations

import asyncio
import subprocess
import sys
import time
from collections import defaultdict
from statistics import median

from bench.plain import SERVERS, start
from bench.plan import Plan
from bench.row import Row
from bench.stage import Stage

START = "start-up with an empty app: process start to ready, ms"
INTERPRETER = "of that, an interpreter that does nothing, ms"


async def measure(stage: Stage, plan: Plan) -> list[Row]:
    # The first of each fills the caches of the disk and writes compiled files.
    for server in SERVERS:
        await _start(stage, server)
    starts: dict[str, list[float]] = defaultdict(list)
    interpreter: list[float] = []
    for _ in range(2 * plan.repetitions):
        for server in SERVERS:
            starts[server].append(await _start(stage, server))
        interpreter.append(await asyncio.to_thread(_interpreter, stage))
    return [
        Row(START, {server: median(values) for server, values in starts.items()}, digits=0),
        Row(INTERPRETER, dict.fromkeys(SERVERS, median(interpreter)), digits=0),
    ]


async def _start(stage: Stage, server: str) -> float:
    began = time.monotonic_ns()
    async with start(stage, server, "empty"):
        return (time.monotonic_ns() - began) / 1e6


def _interpreter(stage: Stage) -> float:
    began = time.monotonic_ns()
    process = subprocess.Popen([sys.executable, "-c", "print(flush=True)"], stdout=subprocess.PIPE, env=stage.settings)
    with process:
        assert process.stdout is not None
        process.stdout.readline()
        return (time.monotonic_ns() - began) / 1e6
