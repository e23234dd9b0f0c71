"""From nothing to the first byte: a request that meets no environment, beside the bare imports nobody can avoid."""

from __future__ import annotations

import asyncio
import sys
import time
from collections import defaultdict
from statistics import median

from bench.plan import Plan
from bench.process import cpu_ns
from bench.row import Row
from bench.stage import FLOOR, LAMBDA, Stage

STARTED = "cold start: process start to RUN_STARTED, ms"
TOKEN = "cold start: process start to the first token, ms"
CPU = "cold start: CPU ms until the end of the first run, of one token"

IMPORTS = "import fastapi, openai, boto3, time; print(time.process_time_ns(), flush=True)"


async def measure(stage: Stage, plan: Plan) -> list[Row]:
    # The first of each fills the caches of the disk and writes what the layers on AWS bring along: compiled files.
    await _cold_run(stage)
    await _bare_imports(stage)
    samples: dict[str, dict[str, list[float]]] = {label: defaultdict(list) for label in (STARTED, TOKEN, CPU)}
    for _ in range(plan.repetitions):
        for name, take in ((LAMBDA, _cold_run), (FLOOR, _bare_imports)):
            for label, value in (await take(stage)).items():
                samples[label][name].append(value)
    return [
        Row(label, {name: median(values) for name, values in of_both.items()}, digits=0)
        for label, of_both in samples.items()
    ]


async def _cold_run(stage: Stage) -> dict[str, float]:
    async with stage.cold_lambda() as subject:
        answer = await subject.ask(1)
        cpu = cpu_ns(subject.pid())
    return {
        STARTED: (answer.started - answer.sent) / 1e6,
        TOKEN: (answer.content[0][0] - answer.sent) / 1e6,
        CPU: cpu / 1e6,
    }


async def _bare_imports(stage: Stage) -> dict[str, float]:
    """A process that does nothing but import, until its first byte."""
    began = time.monotonic_ns()
    process = await asyncio.create_subprocess_exec(
        sys.executable, "-c", IMPORTS, stdout=asyncio.subprocess.PIPE, env=stage.settings
    )
    assert process.stdout is not None
    cpu = int(await process.stdout.readline()) / 1e6
    taken = (time.monotonic_ns() - began) / 1e6
    await process.wait()
    return {STARTED: taken, TOKEN: taken, CPU: cpu}
