"""Many streams at once in one process, as on Managed Instances: the memory that takes."""

from __future__ import annotations

import asyncio
from concurrent.futures import ThreadPoolExecutor

from bench.plain import TOKEN_SIZE, ask, streaming_servers
from bench.plan import Plan
from bench.process import peak_memory
from bench.row import Row
from bench.stage import Stage, Subject

STREAMS = 64
CHUNKS = 50
PAUSE = 20.0
"""Milliseconds. A stream takes a second, which is long enough for all of them to be open at once."""


async def measure(stage: Stage, plan: Plan) -> list[Row]:
    async with streaming_servers(stage, STREAMS) as subjects:
        values = {subject.name: await _peak(subject) for subject in subjects}
    return [Row(f"peak memory with {STREAMS} streams at once, MB", values)]


async def _peak(subject: Subject) -> float:
    def all_at_once() -> None:
        with ThreadPoolExecutor(STREAMS) as threads:
            list(threads.map(lambda _: ask(subject.post, CHUNKS, TOKEN_SIZE, PAUSE), range(STREAMS)))

    await asyncio.to_thread(all_at_once)
    return peak_memory(subject.pid()) / 1e6
