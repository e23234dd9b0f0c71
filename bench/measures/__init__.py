"""What is measured, one thing a file, each with `async measure(stage, plan) -> list[Row]`; and the tables of it."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import dataclass

from bench.measures import (
    cold_start,
    history,
    latency,
    runtime_memory,
    runtime_start,
    runtime_streams,
    throughput,
)
from bench.plain import PARSERS, SERVERS
from bench.plan import Plan
from bench.row import Row
from bench.stage import FLOOR, LAMBDA, RUNTIME, UVICORN, Stage

Measure = Callable[[Stage, Plan], Awaitable[list[Row]]]


@dataclass(frozen=True)
class Section:
    """A table. `ratios` are pairs of columns of which the quotient is shown as well."""

    title: str
    columns: tuple[str, ...]
    measures: tuple[Measure, ...]
    ratios: tuple[tuple[str, str], ...] = ()


SECTIONS = (
    Section(
        "Streaming",
        (LAMBDA, RUNTIME, UVICORN, FLOOR),
        # In this order: peak memory is read with the throughput, before requests with many messages raise it.
        (throughput.measure, latency.measure, cold_start.measure),
        ratios=((RUNTIME, FLOOR), (UVICORN, FLOOR)),
    ),
    Section(
        "The runtime alone",
        SERVERS,
        (runtime_streams.measure, runtime_memory.measure, runtime_start.measure),
        ratios=tuple((RUNTIME, uvicorn) for uvicorn in PARSERS),
    ),
    Section("Until the model is asked, ms", history.COLUMNS, (history.measure,)),
)
