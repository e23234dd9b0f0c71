"""SnapStart: the hooks around the snapshot of an environment, and the wait in which it is taken.

Lambda takes the snapshot while `GET /restore/next` waits, and answers it in every environment that is restored.
Hooks are registered with AWS's `snapshot_restore_py`. Source: AWS, "Implement runtime hooks for SnapStart".
"""

from __future__ import annotations

import os
from collections.abc import Awaitable, Callable

from awslambdaric import lambda_runtime_hooks_runner as hooks
from awslambdaric.lambda_runtime_exception import FaultException

from response_streaming.errors import InitFailed
from response_streaming.runtime_api import RuntimeApi

BEFORE_SNAPSHOT_FAILED = 64
AFTER_RESTORE_FAILED = 65


def is_on() -> bool:
    return os.environ.get("AWS_LAMBDA_INITIALIZATION_TYPE") == "snap-start"


async def snapshot(api: RuntimeApi) -> None:
    """Runs the hooks before the snapshot, last registered first, and returns in the restored environment.

    Raises InitFailed when a hook fails or Lambda refuses.
    """
    try:
        hooks.run_before_snapshot()
        await api.restore_next()
    except Exception as error:
        raise InitFailed(error, BEFORE_SNAPSHOT_FAILED, FaultException.BEFORE_SNAPSHOT_ERROR) from error


async def restored(start: Callable[[], Awaitable[None]]) -> None:
    """Runs the hooks after the restore, in order, then awaits `start()`. Raises InitFailed."""
    try:
        hooks.run_after_restore()
        await start()
    except Exception as error:
        raise InitFailed(error, AFTER_RESTORE_FAILED, FaultException.AFTER_RESTORE_ERROR) from error
