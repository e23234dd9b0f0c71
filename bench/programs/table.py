"""The local table with a stopwatch: `GET /calls` tells when each call since the last such question began and ended.

The table on a laptop is far slower than DynamoDB, so its time has to be told apart from ours.
"""

from __future__ import annotations

import asyncio
import json
import tempfile
import time
from pathlib import Path
from typing import Any

from local.child import serve_child
from local.stack import TABLE_NAME
from local.table import Journal, Table


class TimedTable:
    """`calls` holds [began, ended] in nanoseconds of CLOCK_MONOTONIC."""

    def __init__(self, table: Table) -> None:
        self._table = table
        self._calls: list[tuple[int, int]] = []

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        if scope["type"] == "http" and scope["path"] == "/calls":
            calls, self._calls = self._calls, []
            await send({"type": "http.response.start", "status": 200, "headers": []})
            await send({"type": "http.response.body", "body": json.dumps(calls).encode()})
            return
        began = time.monotonic_ns()
        await self._table(scope, receive, send)
        self._calls.append((began, time.monotonic_ns()))


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as folder:
        asyncio.run(serve_child(TimedTable(Table(TABLE_NAME, Journal(Path(folder) / "threads.jsonl")))))
