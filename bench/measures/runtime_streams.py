"""Streams of a plain app: chunks per second and their CPU, delay of paced chunks, and a large response."""

from __future__ import annotations

import asyncio
from collections import defaultdict
from statistics import median, quantiles

from bench.measures.throughput import SETTLE
from bench.plain import TOKEN_SIZE, Chunks, ask, streaming_servers
from bench.plan import Plan
from bench.process import cpu_ns
from bench.row import Row
from bench.stage import Stage, Subject

LARGE_CHUNK = 64 * 1024
"""Bytes."""


async def measure(stage: Stage, plan: Plan) -> list[Row]:
    large = plan.large_response * 1_000_000 // LARGE_CHUNK
    samples: dict[str, dict[str, list[float]]] = defaultdict(lambda: defaultdict(list))
    async with streaming_servers(stage) as subjects:
        for _ in range(plan.repetitions):
            for subject in subjects:
                for label, value in (await _one_round(subject, plan, large)).items():
                    samples[label][subject.name].append(value)
    digits = {RATE: 0, BYTES: 0, P50: 2, P99: 2}
    return [
        Row(label.format(plan=plan), {name: median(values) for name, values in of_each.items()}, digits.get(label, 1))
        for label, of_each in samples.items()
    ]


RATE = f"chunks of {TOKEN_SIZE} bytes per second, full blast"
COST = "CPU ms per 1,000 chunks"
ONE = "CPU ms of a request with one chunk"
P50 = "added latency per chunk (one each {plan.pause:g} ms), p50, ms"
P99 = "added latency per chunk (one each {plan.pause:g} ms), p99, ms"
BYTES = "MB per second, {plan.large_response} MB in chunks of 64 KB"
LARGE_COST = "CPU ms of these {plan.large_response} MB"


async def _one_round(subject: Subject, plan: Plan, large: int) -> dict[str, float]:
    chunks, cpu = await _with_cpu(subject, plan.content_events, TOKEN_SIZE)
    _, one = await _with_cpu(subject, 1, TOKEN_SIZE)
    paced = await asyncio.to_thread(ask, subject.post, plan.paced_tokens, TOKEN_SIZE, plan.pause)
    added = quantiles([(there - made) / 1e6 for made, there in zip(paced.made, paced.arrived, strict=True)], n=100)
    whole, whole_cpu = await _with_cpu(subject, large, LARGE_CHUNK)
    return {
        RATE: plan.content_events / chunks.seconds,
        COST: cpu / plan.content_events * 1000,
        ONE: one,
        P50: added[49],
        P99: added[98],
        BYTES: large * LARGE_CHUNK / 1e6 / whole.seconds,
        LARGE_COST: whole_cpu,
    }


async def _with_cpu(subject: Subject, count: int, size: int) -> tuple[Chunks, float]:
    """A stream, and what it cost in milliseconds of CPU."""
    before = cpu_ns(subject.pid())
    chunks = await asyncio.to_thread(ask, subject.post, count, size)
    await asyncio.sleep(SETTLE)
    return chunks, (cpu_ns(subject.pid()) - before) / 1e6
