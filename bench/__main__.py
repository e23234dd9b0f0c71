"""`python -m bench`: measures everything in one run and prints the tables. Options and order; nothing else."""

from __future__ import annotations

import argparse
import asyncio
import sys
import time

from bench import report
from bench.measures import SECTIONS
from bench.plan import FULL, QUICK, Plan
from bench.process import machine_seconds, our_seconds
from bench.row import Row
from bench.stage import set_up


async def run(plan: Plan) -> str:
    """The whole report. Raises ChildFailed and WrongAnswer when something does not work."""
    began, machine, ours = time.monotonic(), machine_seconds(), our_seconds()
    parts: list[str] = []
    async with set_up() as stage:
        for section in SECTIONS:
            rows: list[Row] = []
            for measure in section.measures:
                print(f"measuring {measure.__module__.rpartition('.')[2]} …", file=sys.stderr, flush=True)
                rows += await measure(stage, plan)
            parts.append(report.table(section, rows))
    seconds = time.monotonic() - began
    others = (machine_seconds() - machine) - (our_seconds() - ours)
    return "\n\n".join([*parts, report.notes(plan, seconds, max(others, 0.0) / seconds)])


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m bench", description="Measures, and prints Markdown tables.")
    parser.add_argument("--quick", action="store_true", help="about 15 s: shows that it works, proves nothing")
    options = parser.parse_args()
    print(asyncio.run(run(QUICK if options.quick else FULL)))


if __name__ == "__main__":
    main()
