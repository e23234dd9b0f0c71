"""Somebody else's app: FastAPI, a StreamingResponse, no agent. Streams under the layer of this project."""

import asyncio
from collections.abc import AsyncIterator

from fastapi import FastAPI
from fastapi.responses import StreamingResponse

from response_streaming import StreamingMangum

app = FastAPI()


@app.get("/count")
async def count() -> StreamingResponse:
    async def numbers() -> AsyncIterator[str]:
        for n in range(3):
            yield f"{n}\n"
            await asyncio.sleep(0.02)

    return StreamingResponse(numbers(), media_type="text/plain")


handler = StreamingMangum(app)
