"""Apps for the runtime's tests of what happens around an invocation. They write what they see into `$NOTES`."""

import asyncio
import os
from contextlib import asynccontextmanager

from fastapi import FastAPI, Request
from fastapi.responses import StreamingResponse
from snapshot_restore_py import register_after_restore, register_before_snapshot

from response_streaming import StreamingMangum


def note(text: str) -> None:
    with open(os.environ["NOTES"], "a") as file:
        file.write(text + "\n")


@asynccontextmanager
async def lifespan(app):
    note("startup")
    if "BROKEN" in os.environ:
        raise RuntimeError("no database after the restore")
    yield
    note("shutdown")


app = FastAPI(lifespan=lifespan)
register_before_snapshot(note, "before 1")
register_before_snapshot(note, "before 2")
register_after_restore(note, "after 1")
register_after_restore(note, "after 2")


async def endless(scope, receive, send):
    """Streams for ever; when it is told that nobody reads it tidies up, which takes a moment."""
    await send({"type": "http.response.start", "status": 200, "headers": []})
    try:
        while True:
            await send({"type": "http.response.body", "body": b"x" * 1000, "more_body": True})
            await asyncio.sleep(0)
    except OSError:
        await asyncio.sleep(0.01)
        note("tidied up")


app.mount("/endless", endless)


@app.get("/silent")
async def silent():
    """Begins its answer and then waits, as for a model that thinks."""

    async def body():
        yield b"begun"
        try:
            await asyncio.Event().wait()
        finally:
            await asyncio.sleep(0.05)  # stores what it has: a second cancellation would end it here
            note("cancelled")

    return StreamingResponse(body())


@app.get("/paced")
async def paced(request: Request, name: str, pieces: int = 20):
    """`pieces` of its own name, 5 ms apart."""

    async def body():
        for n in range(pieces):
            yield f"{name}:{n}:{request.scope['aws.context'].aws_request_id}\n"
            await asyncio.sleep(0.005)

    return StreamingResponse(body())


@app.get("/pid")
async def pid():
    return os.getpid()


handler = StreamingMangum(app)


async def deaf(scope, receive, send):
    """Goes on for a while whatever it is told."""
    if scope["type"] != "http":
        raise NotImplementedError
    await send({"type": "http.response.start", "status": 200, "headers": []})
    if scope["path"] == "/pid":
        await send({"type": "http.response.body", "body": str(os.getpid()).encode()})
        return
    try:
        await send({"type": "http.response.body", "body": b"begun", "more_body": True})
        await asyncio.sleep(60)
    except asyncio.CancelledError:
        await asyncio.sleep(60)


deaf_handler = StreamingMangum(deaf)
