"""New code, new environments: restarts a function when a file under its folders changes. Threads are kept elsewhere."""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from functools import cache
from pathlib import Path
from typing import Any

from local.function import Function
from local.invocation import InitError

logger = logging.getLogger(__name__)

# What a function is made of, and reads: code, settings, prompts, pages.
SUFFIXES = frozenset(
    ".py .so .txt .md .toml .ini .cfg .json .jsonl .yaml .yml .xml .csv .sql .j2 .jinja .jinja2 .html .css .js".split()
)


async def restart_on_change(function: Function, folders: Sequence[Path]) -> None:
    """Watches for ever. Byte code and what programs put beside a file while they write it do not count."""
    from watchfiles import awatch

    async for changes in awatch(*folders, watch_filter=matters, step=50, debounce=400):
        changed = sorted({Path(path).name for _, path in changes})
        more = f" and {len(changed) - 3} more" if len(changed) > 3 else ""
        logger.info("%s%s changed: restarting the environments", ", ".join(changed[:3]), more)
        try:
            await function.restart()
        except InitError:
            pass  # Logged; the next change or the next request tries again.


def matters(change: Any, path: str) -> bool:
    """Whether a change (of watchfiles) is one of the function."""
    return Path(path).suffix in SUFFIXES and _not_temporary()(change, path)


@cache
def _not_temporary() -> Callable[[Any, str], bool]:
    from watchfiles import DefaultFilter

    return DefaultFilter()
