"""A plain FastAPI app that streams chunks, as many and as large as the request says; no agent, no model, no table."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator

from fastapi import FastAPI
from fastapi.responses import StreamingResponse
from pydantic import BaseModel

STAMP = 20
"""Bytes a chunk begins with: when it was made, in nanoseconds of CLOCK_MONOTONIC, as a decimal number."""


class Wanted(BaseModel):
    """`count` chunks of `size` bytes, at once, or with `pause` milliseconds before each."""

    count: int
    size: int
    pause: float | None = None


app = FastAPI()


@app.post("/")
async def chunks(wanted: Wanted) -> StreamingResponse:
    return StreamingResponse(_chunks(wanted), media_type="application/octet-stream")


async def _chunks(wanted: Wanted) -> AsyncIterator[bytes]:
    if wanted.pause is None:
        # All of them the same: what is measured is the sending.
        chunk = _stamped(wanted.size)
        for _ in range(wanted.count):
            yield chunk
    else:
        for _ in range(wanted.count):
            await asyncio.sleep(wanted.pause / 1000)
            yield _stamped(wanted.size)


def _stamped(size: int) -> bytes:
    return b"%0*d" % (STAMP, time.monotonic_ns()) + b"." * (size - STAMP)
