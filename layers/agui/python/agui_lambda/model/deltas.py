"""The vocabulary in which every kind of model stream speaks to the run loop."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Text:
    """A piece of the answer, never empty."""

    text: str


@dataclass(frozen=True, slots=True)
class Usage:
    """Tokens of the whole answer so far, as the provider counts them. None: it did not say."""

    input_tokens: int | None = None
    output_tokens: int | None = None
    total_tokens: int | None = None


Delta = Text | Usage
