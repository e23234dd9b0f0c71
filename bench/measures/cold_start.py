"""From nothing to the first byte: a request that meets no environment, beside the bare imports nobody can avoid."""

from __future__ import annotations

import asyncio
import sys
import time
from statistics import median

from bench.plan import Plan
from bench.row import Row
from bench.stage import FLOOR, LAMBDA, Stage


async def measure(stage: Stage, plan: Plan) -> list[Row]:
    bytes_after: list[float] = []
    tokens_after: list[float] = []
    imports: list[float] = []
    # The first of each fills caches of the disk and writes what the layers on AWS bring along: compiled files.
    for _ in range(plan.repetitions + 1):
        imports.append(await _bare_imports(stage))
        async with stage.cold_lambda() as subject:
            answer = await subject.ask(1)
        bytes_after.append((answer.started - answer.sent) / 1e6)
        tokens_after.append((answer.content[0][0] - answer.sent) / 1e6)
    floor = median(imports[1:])
    return [
        Row(
            "cold start: process start to RUN_STARTED, ms",
            {LAMBDA: median(bytes_after[1:]), FLOOR: floor},
            digits=0,
        ),
        Row(
            "cold start: process start to the first token, ms",
            {LAMBDA: median(tokens_after[1:]), FLOOR: floor},
            digits=0,
        ),
    ]


async def _bare_imports(stage: Stage) -> float:
    """Milliseconds from the start of a process to its first byte, after the imports."""
    began = time.monotonic_ns()
    process = await asyncio.create_subprocess_exec(
        sys.executable,
        "-c",
        "import fastapi, openai, boto3; print(flush=True)",
        stdout=asyncio.subprocess.PIPE,
        env=stage.settings,
    )
    assert process.stdout is not None
    await process.stdout.readline()
    taken = (time.monotonic_ns() - began) / 1e6
    await process.wait()
    return taken
