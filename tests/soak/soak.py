"""Rounds of mixed invocations against the real runtime in eight environments: nothing lost or mixed, memory flat."""

import asyncio
import random
import statistics
import time
from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path

import aiohttp

from local.stack import LocalStack
from tests.soak.invocations import HUGE, Invocations

APP = Path(__file__).parent / "app"
ENVIRONMENTS = 8
# Bounds it in count as well as in time.
MOST_ROUNDS = 10_000
# Rounds until every environment has met every kind of invocation a few times, and its allocator has what it needs.
WARM = 50
# Seconds after which an invocation counts as lost.
PATIENCE = 60


@dataclass
class Report:
    """`wrong` are sentences. `memory` is resident memory after each round, in MB, the mean of all environments."""

    seconds: float = 0
    rounds: int = 0
    invocations: Counter[str] = field(default_factory=Counter)
    wrong: list[str] = field(default_factory=list)
    memory: list[float] = field(default_factory=list)
    environments: int = 0
    lost_environments: int = 0

    @property
    def growth(self) -> float:
        """MB from the second quarter of the run to the last; the first warms up. 0 for a run too short to tell."""
        quarter = len(self.memory) // 4
        if quarter < WARM:
            return 0
        return statistics.mean(self.memory[-quarter:]) - statistics.mean(self.memory[quarter : 2 * quarter])

    @property
    def good(self) -> bool:
        # A leak of a kilobyte in each invocation would be far more in ten minutes; what is left is the allocator's.
        return not self.wrong and not self.lost_environments and self.growth < 5

    def __str__(self) -> str:
        lines = [
            f"{self.invocations.total()} invocations in {self.rounds} rounds and {self.seconds:.0f} s, "
            f"{self.environments} environments, {self.lost_environments} of them lost",
            *(f"  {count:8} {kind.replace('_', ' ')}" for kind, count in sorted(self.invocations.items())),
        ]
        if self.memory:
            lines.append(
                f"memory of an environment: {self.memory[0]:.1f} MB after the first round, {self.memory[-1]:.1f} MB "
                f"after the last, at most {max(self.memory):.1f} MB; growth after warming up {self.growth:+.1f} MB"
            )
        shown = self.wrong[:20]
        lines += [f"WRONG {sentence}" for sentence in shown]
        lines += [f"… and {len(self.wrong) - len(shown)} more"] if len(self.wrong) > len(shown) else []
        lines.append("good" if self.good else "NOT GOOD")
        return "\n".join(lines)


async def soak(seconds: float) -> Report:
    """Runs rounds until the time is up, at least one."""
    report = Report()
    async with (
        LocalStack(
            handler="soaked.handler", task_root=APP, table=False, model=None, cors=None, max_environments=ENVIRONMENTS
        ) as stack,
        aiohttp.ClientSession(
            max_field_size=2 * HUGE, connector=aiohttp.TCPConnector(limit=0), timeout=aiohttp.ClientTimeout(PATIENCE)
        ) as http,
    ):
        invocations = Invocations(stack, http)
        # So that all environments are there, and have had their largest reply, when memory is first measured.
        await asyncio.gather(*(invocations.large() for _ in range(ENVIRONMENTS)))
        processes = set(stack.function.pids)
        report.environments = len(processes)
        began = time.monotonic()
        while not report.rounds or (time.monotonic() - began < seconds and report.rounds < MOST_ROUNDS):
            await _round(invocations, report)
            processes |= stack.function.pids
            report.memory.append(statistics.mean(map(_resident, stack.function.pids)))
        report.seconds = time.monotonic() - began
        report.lost_environments = len(processes - stack.function.pids)
    return report


async def _round(invocations: Invocations, report: Report) -> None:
    kinds = invocations.round
    random.shuffle(kinds)

    async def worker() -> None:
        while kinds:
            kind = kinds.pop()
            report.invocations[kind.__name__] += 1
            try:
                async with asyncio.timeout(PATIENCE):
                    await kind()
            except Exception as error:
                report.wrong.append(f"{kind.__name__}: {type(error).__name__}: {str(error)[:300]}")

    await asyncio.gather(*(worker() for _ in range(ENVIRONMENTS)))
    report.rounds += 1


def _resident(pid: int) -> float:
    status = Path(f"/proc/{pid}/status").read_text()
    return int(status.partition("VmRSS:")[2].split()[0]) / 1024
