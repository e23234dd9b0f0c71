"""Apps for the runtime's tests: plain ASGI and FastAPI, nothing of agents."""

import asyncio
import json
import logging
import os
from contextlib import asynccontextmanager

from fastapi import FastAPI, Request, Response
from fastapi.responses import StreamingResponse
from mangum import Mangum
from starlette.background import BackgroundTask

from response_streaming import StreamingMangum

logger = logging.getLogger(__name__)
life = {"startups": 0, "loops": set()}


@asynccontextmanager
async def lifespan(app):
    life["startups"] += 1
    yield {"greeting": "hello"}


app = FastAPI(lifespan=lifespan)


@app.get("/counts")
async def counts(request: Request):
    life["loops"].add(id(asyncio.get_running_loop()))
    return {
        "pid": os.getpid(),
        "startups": life["startups"],
        "loops": len(life["loops"]),
        "state": request.state.greeting,
    }


@app.get("/stream")
async def stream(pieces: int = 3, size: int = 1):
    async def body():
        for _ in range(pieces):
            yield b"x" * size

    return StreamingResponse(body(), media_type="text/event-stream")


@app.post("/steps")
async def steps(request: Request):
    """Waits before each piece until the file `gate` has that many bytes: the test holds the clock."""
    gate = (await request.json())["gate"]

    async def body():
        for n in range(3):
            while os.path.getsize(gate) < n:
                await asyncio.sleep(0.001)
            yield f"data: {n}\n\n"

    return StreamingResponse(body(), media_type="text/event-stream")


@app.api_route("/echo", methods=["GET", "POST", "PUT"])
async def echo(request: Request):
    return {
        "method": request.method,
        "path": request.url.path,
        "query": str(request.query_params),
        "headers": dict(request.headers),
        "body": (await request.body()).decode("latin-1"),
        "remaining": request.scope["aws.context"].get_remaining_time_in_millis(),
        "request_id": request.scope["aws.context"].aws_request_id,
        "trace": request.scope["aws.context"].xray_trace_id,
        "trace_variable": os.environ.get("_X_AMZN_TRACE_ID"),
    }


@app.get("/cookies")
async def cookies():
    response = Response("ok", 418, {"x-a": "1"})
    response.set_cookie("a", "1")
    response.set_cookie("b", "2")
    return response


@app.get("/empty")
async def empty():
    return Response(status_code=204)


@app.get("/fails")
async def fails(after: int = 0):
    async def body():
        for _ in range(after):
            yield b"x"
        logger.error("about to fail")
        raise ValueError("broken on purpose")

    return StreamingResponse(body())


@app.get("/background")
async def background(gate: str):
    """Answers at once, and goes on until the file `gate` is there."""

    async def work():
        while not os.path.exists(gate):
            await asyncio.sleep(0.001)
        life["worked"] = True

    return Response("answered", background=BackgroundTask(work))


@app.get("/worked")
async def worked():
    return life.get("worked", False)


@app.get("/crashes")
async def crashes():
    raise ValueError("broken on purpose")


@app.get("/bad-header")
async def bad_header():
    return Response("x", headers={"X-Bad": "a\r\nSet-Cookie: b=1"})


handler = StreamingMangum(app)
plain_mangum = Mangum(app)
not_a_handler = print


async def bare(scope, receive, send):
    """No lifespan, and misbehaviour by path."""
    if scope["type"] != "http":
        raise NotImplementedError
    if scope["path"] == "/raises":
        raise ValueError("before the response")
    if scope["path"] == "/returns":
        return
    await send({"type": "http.response.start", "status": 200, "headers": []})
    if scope["path"] == "/half":
        await send({"type": "http.response.body", "body": b"half", "more_body": True})
        return
    await send({"type": "http.response.body", "body": json.dumps(scope["path"]).encode()})
    if scope["path"] == "/more":
        await send({"type": "http.response.body", "body": b"more"})


bare_handler = StreamingMangum(bare)


@asynccontextmanager
async def broken_lifespan(app):
    raise RuntimeError("no database")
    yield


broken_handler = StreamingMangum(FastAPI(lifespan=broken_lifespan))
