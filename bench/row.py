"""The figures as they leave a measurement: rows of a section, which becomes one table."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass


@dataclass(frozen=True)
class Row:
    """`values` by the names of the section's columns; a figure that does not exist is left out."""

    label: str
    values: Mapping[str, float]
    digits: int = 1
    """Behind the point."""
