"""Logging as Lambda's Python runtime does it, taken from AWS's own `awslambdaric`.

Adds one thing: the request id of a record is that of the invocation it belongs to, also when several run at once.
"""

from __future__ import annotations

import logging
from contextvars import ContextVar
from typing import Any

from awslambdaric import bootstrap

request_id: ContextVar[str] = ContextVar("request_id", default="")
tenant_id: ContextVar[str | None] = ContextVar("tenant_id", default=None)


class InvocationFilter(logging.Filter):
    """Runs after awslambdaric's filter, which knows only one invocation at a time."""

    def filter(self, record: logging.LogRecord) -> bool:
        record.aws_request_id = request_id.get()
        record.tenant_id = tenant_id.get()
        record.taskName = None  # an attribute since Python 3.12, which awslambdaric's JSON would pass on
        return True


def set_up(sink: Any) -> None:
    """Sends the root logger's records to `sink` in the format and level that the function is configured for."""
    root = logging.getLogger()
    bootstrap._setup_logging(bootstrap._AWS_LAMBDA_LOG_FORMAT, bootstrap._AWS_LAMBDA_LOG_LEVEL, sink)
    root.handlers[-1].addFilter(InvocationFilter())
