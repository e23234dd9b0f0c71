"""The tables, as Markdown that can be put into the README as it is."""

from __future__ import annotations

import importlib.util
import os
import platform
from collections.abc import Iterable, Sequence

from bench.measures import Section
from bench.plan import Plan
from bench.row import Row


def table(section: Section, rows: Iterable[Row]) -> str:
    """Absolute figures, and the quotients that the section asks for."""
    head = [section.title, *section.columns, *(f"{one} ÷ {other}" for one, other in section.ratios)]
    lines = [_line(head), _line(["---", *["---:"] * (len(head) - 1)])]
    for row in rows:
        figures = [_figure(row, column) for column in section.columns]
        lines.append(_line([row.label, *figures, *(_quotient(row, *pair) for pair in section.ratios)]))
    return "\n".join(lines)


def _figure(row: Row, column: str) -> str:
    return f"{row.values[column]:,.{row.digits}f}" if column in row.values else ""


def _quotient(row: Row, one: str, other: str) -> str:
    if one not in row.values or not row.values.get(other):
        return ""
    return f"{row.values[one] / row.values[other]:.2f}"


def _line(cells: Sequence[str]) -> str:
    return f"| {' | '.join(cells)} |"


def notes(plan: Plan, seconds: float, others: float) -> str:
    """What the figures are, and on what they were taken. `others`: cores that other processes kept busy meanwhile."""
    parser = "httptools" if importlib.util.find_spec("httptools") else "h11"
    return (
        f"Python {platform.python_version()}, {os.cpu_count()} cores, uvicorn on asyncio's loop and with {parser} "
        f"where nothing else is said; medians of {plan.repetitions} × the same, taken in turns, {seconds:.0f} s in "
        f"all, while others kept {others:.1f} cores busy. CPU and memory are those of the one process that ships. "
        "The local Lambda is our app in an environment of the emulator: CPU and memory are the environment's "
        "alone, and what is timed includes the emulator. Our runtime is the same environment without it: the "
        "benchmark itself takes the reply from the runtime's socket. The floor is a bare loop of the openai "
        "package with its aiohttp transport that writes the same bytes under uvicorn, with no thread kept, "
        "nothing checked and no error handled; at a cold start it is `import fastapi, openai, boto3`. The runtime "
        "alone is measured with a plain FastAPI app and its StreamingResponse, the same under uvicorn; a chunk's "
        "latency counts from the moment the app made it, and our runtime is ready when its first `GET /next` "
        "comes, uvicorn when it accepts. The table is the local one, which is far slower than DynamoDB, so its "
        "time is told apart."
    )
