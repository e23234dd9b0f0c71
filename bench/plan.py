"""How much is measured: enough to trust the figures, or just enough to see that the benchmark works."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Plan:
    """`repetitions` take turns between the subjects, so that a noisy moment does not hit one of them alone."""

    repetitions: int
    content_events: int
    """At full blast, in one run."""
    paced_tokens: int
    """In one run, `pause` milliseconds apart."""
    histories: tuple[int, ...]
    """Messages that a request carries besides the new one."""
    large_response: int
    """Megabytes."""
    pause: float = 5.0


FULL = Plan(
    repetitions=5, content_events=20_000, paced_tokens=300, histories=(0, 100, 1_000, 5_000), large_response=100
)
QUICK = Plan(repetitions=1, content_events=2_000, paced_tokens=100, histories=(0, 100), large_response=10)
