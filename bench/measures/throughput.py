"""A model at full blast: content events per second, what they cost in CPU, and the memory afterwards."""

from __future__ import annotations

import asyncio
from collections import defaultdict
from statistics import median

from bench.answer import Answer
from bench.plan import Plan
from bench.process import cpu_ns, peak_memory
from bench.row import Row
from bench.stage import Stage, Subject

SETTLE = 0.02
"""Seconds after the last byte in which a subject still works for the run."""


async def measure(stage: Stage, plan: Plan) -> list[Row]:
    rates: dict[str, list[float]] = defaultdict(list)
    costs: dict[str, list[float]] = defaultdict(list)
    runs: dict[str, list[float]] = defaultdict(list)
    for _ in range(plan.repetitions):
        for subject in stage.subjects:
            answer, cpu = await _with_cpu(subject, plan.content_events)
            # From the model's first byte to the client's last.
            seconds = (answer.content[-1][0] - answer.asked) / 1e9
            rates[subject.name].append(plan.content_events / seconds)
            costs[subject.name].append(cpu / plan.content_events * 1000)
            _, one = await _with_cpu(subject, 1)
            runs[subject.name].append(one)
    return [
        Row("AG-UI events per second, full blast", _medians(rates), digits=0),
        Row("CPU ms per 1,000 content events", _medians(costs)),
        Row("CPU ms of a run with one token", _medians(runs)),
        Row(
            f"peak memory after {plan.repetitions} × {plan.content_events:,} events, MB",
            {subject.name: peak_memory(subject.pid()) / 1e6 for subject in stage.subjects},
            digits=0,
        ),
    ]


async def _with_cpu(subject: Subject, tokens: int) -> tuple[Answer, float]:
    """A run, and what it cost in milliseconds of CPU."""
    pid = subject.pid()
    before = cpu_ns(pid)
    answer = await subject.ask(tokens)
    await asyncio.sleep(SETTLE)
    return answer, (cpu_ns(pid) - before) / 1e6


def _medians(samples: dict[str, list[float]]) -> dict[str, float]:
    return {name: median(values) for name, values in samples.items()}
