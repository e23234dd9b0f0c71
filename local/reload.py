"""New code, new environments: restarts a function when a file under its folders changes. Threads are kept elsewhere."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from pathlib import Path

from local.function import Function
from local.invocation import InitError

logger = logging.getLogger(__name__)


async def restart_on_change(function: Function, folders: Sequence[Path]) -> None:
    """Watches for ever. Byte code, hidden and editors' own files do not count (watchfiles' default filter)."""
    from watchfiles import awatch

    async for changes in awatch(*folders, step=50, debounce=400):
        changed = sorted({Path(path).name for _, path in changes})
        more = f" and {len(changed) - 3} more" if len(changed) > 3 else ""
        logger.info("%s%s changed: restarting the environments", ", ".join(changed[:3]), more)
        try:
            await function.restart()
        except InitError:
            pass  # Logged; the next change or the next request tries again.
