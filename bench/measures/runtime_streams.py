"""Streams of a plain app: chunks per second and their CPU, delay of paced chunks, and a large response."""

from __future__ import annotations

import asyncio
import time
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
BLASTS = 2
"""Times in a repetition: whether the reader sleeps between two chunks decides half of their cost, which is luck."""

RATE = f"chunks of {TOKEN_SIZE} bytes per second, full blast"
COST = "CPU ms per 1,000 chunks"
ONE = "CPU ms of a request with one chunk"
P50 = "added latency per chunk (one each {plan.pause:g} ms), p50, ms"
P99 = "added latency per chunk (one each {plan.pause:g} ms), p99, ms"
BYTES = "MB per second, {plan.large_response} MB in chunks of 64 KB"
LARGE_COST = "CPU ms of these {plan.large_response} MB"
DIGITS = {RATE: 0, COST: 1, ONE: 1, P50: 2, P99: 2, BYTES: 0, LARGE_COST: 1}

Figures = dict[str, float]


async def measure(stage: Stage, plan: Plan) -> list[Row]:
    samples: dict[str, dict[str, list[float]]] = {label: defaultdict(list) for label in DIGITS}
    async with streaming_servers(stage) as subjects:
        for take in (*[_at_once] * BLASTS, _paced) * plan.repetitions:
            for subject in subjects:
                for label, value in (await asyncio.to_thread(take, subject, plan)).items():
                    samples[label][subject.name].append(value)
    return [
        Row(label.format(plan=plan), {name: median(values) for name, values in samples[label].items()}, digits)
        for label, digits in DIGITS.items()
    ]


def _at_once(subject: Subject, plan: Plan) -> Figures:
    many, many_cpu = _with_cpu(subject, plan.content_events, TOKEN_SIZE)
    _, one_cpu = _with_cpu(subject, 1, TOKEN_SIZE)
    large, large_cpu = _with_cpu(subject, plan.large_response * 1_000_000 // LARGE_CHUNK, LARGE_CHUNK)
    return {
        RATE: plan.content_events / many.seconds,
        COST: many_cpu / plan.content_events * 1000,
        ONE: one_cpu,
        BYTES: plan.large_response / large.seconds,
        LARGE_COST: large_cpu,
    }


def _paced(subject: Subject, plan: Plan) -> Figures:
    chunks = ask(subject.post, plan.paced_tokens, TOKEN_SIZE, plan.pause)
    # Percentiles of each stream, so that one bad moment of the machine does not decide the 99th of all.
    added = quantiles([(there - made) / 1e6 for made, there in zip(chunks.made, chunks.arrived, strict=True)], n=100)
    return {P50: added[49], P99: added[98]}


def _with_cpu(subject: Subject, count: int, size: int) -> tuple[Chunks, float]:
    """A stream, and what it cost in milliseconds of CPU."""
    before = cpu_ns(subject.pid())
    chunks = ask(subject.post, count, size)
    time.sleep(SETTLE)
    return chunks, (cpu_ns(subject.pid()) - before) / 1e6
