"""A model that takes its time: how much later than sent a token arrives at the client."""

from __future__ import annotations

from collections import defaultdict
from statistics import median, quantiles

from bench.plan import Plan
from bench.row import Row
from bench.stage import Stage


async def measure(stage: Stage, plan: Plan) -> list[Row]:
    # Percentiles of each run, so that one bad moment of the machine does not decide the 99th of all.
    added: dict[str, list[list[float]]] = defaultdict(list)
    for _ in range(plan.repetitions):
        for subject in stage.subjects:
            answer = await subject.ask(plan.paced_tokens, plan.pause)
            delays = [(arrival - int(sent)) / 1e6 for arrival, sent in answer.content]
            added[subject.name].append(quantiles(delays, n=100))
    return [
        Row(
            f"added latency per token (one each {plan.pause:g} ms), p{percent}, ms",
            {name: median(run[percent - 1] for run in runs) for name, runs in added.items()},
            digits=2,
        )
        for percent in (50, 99)
    ]
