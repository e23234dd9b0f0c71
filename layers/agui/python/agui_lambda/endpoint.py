"""The HTTP face: a route per agent, and the app around them.

What can be refused from the request alone is refused here, with a status and JSON. Once the stream has begun, errors
are events (`run/loop.py`).
"""

from __future__ import annotations

import asyncio
import logging
import os
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from http import HTTPStatus
from typing import Any

from fastapi import FastAPI, Request, Response
from fastapi.responses import JSONResponse, RedirectResponse
from starlette.types import Receive, Scope, Send

from agui_lambda.agent import Agent
from agui_lambda.deployment import Deployment
from agui_lambda.errors import RequestError
from agui_lambda.events.input import RunInput, read_input
from agui_lambda.events.sse import SSEEncoder
from agui_lambda.run.loop import Run
from agui_lambda.threads.thread import ThreadKey

logger = logging.getLogger(__name__)

MAX_BODY = 6 * 1024 * 1024
"""Bytes of a request; Lambda takes no more either."""
INSPECTOR_PATH = "/agui-inspector"


def create_app(agents: Agent | Mapping[str, Agent], deployment: Deployment | None = None) -> FastAPI:
    """A FastAPI app that serves one agent at `/`, or each of several at its path.

    Settings come from the environment (README, Settings) unless `deployment` is given. With `INSPECTOR=on` the app
    also has a page to try its agents on. Raises ValueError for a setting that is missing or wrong.
    """
    deployment = deployment or Deployment.from_environment()
    app = FastAPI(title="AG-UI agents", lifespan=_lifespan, docs_url=None, redoc_url=None)
    app.state.deployment = deployment
    routes = {"/": agents} if isinstance(agents, Agent) else agents
    for path, agent in routes.items():
        add_agent(app, path, agent)
    if os.environ.get("INSPECTOR") == "on":
        _add_inspector(app, routes)
    return app


def add_agent(app: FastAPI, path: str, agent: Agent) -> None:
    """Serves `agent` at `POST path` of any FastAPI app, as AG-UI's HTTP + SSE transport.

    The agents of an app share one deployment, `app.state.deployment`, made from the environment if there is none.
    """
    if not hasattr(app.state, "deployment"):
        app.state.deployment = Deployment.from_environment()
    deployment: Deployment = app.state.deployment

    async def run(request: Request) -> Response:
        try:
            owner = await deployment.access.owner(request)
            _check_content_type(request)
            run_input = read_input(await _body(request))
        except RequestError as refused:
            headers = {"WWW-Authenticate": "Bearer"} if refused.status is HTTPStatus.UNAUTHORIZED else None
            return JSONResponse(refused.body(), refused.status, headers)
        key = ThreadKey(owner, path, run_input.thread_id)
        return RunResponse(agent, run_input, key, deployment)

    app.post(path, name=agent.name, summary=f"Run {agent.name}", openapi_extra=_OPENAPI)(run)


class RunResponse(Response):
    """A run as an HTTP response: its events, each batch as soon as it is made."""

    def __init__(self, agent: Agent, run_input: RunInput, key: ThreadKey, deployment: Deployment) -> None:
        self._agent = agent
        self._input = run_input
        self._key = key
        self._deployment = deployment
        self._encoder = SSEEncoder()
        # Not by the base class, which would add a charset: clients compare the type literally.
        super().__init__(headers={"content-type": self._encoder.media_type, **_UNBUFFERED})
        del self.headers["content-length"]

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        async def write(frames: bytes) -> None:
            await send({"type": "http.response.body", "body": frames, "more_body": True})

        await send({"type": "http.response.start", "status": 200, "headers": self.raw_headers})
        run = Run(self._agent, self._input, self._key, self._deployment, self._encoder, _remaining(scope))
        running = asyncio.ensure_future(run.run(write))
        watching = asyncio.create_task(_cancel_when_gone(receive, running))
        try:
            await running
        except asyncio.CancelledError:
            if not watching.done():
                raise
            logger.info("the client of run %.100r left", self._input.run_id)
        else:
            await send({"type": "http.response.body", "body": b"", "more_body": False})
        finally:
            watching.cancel()


_UNBUFFERED = {"cache-control": "no-cache, no-store", "x-accel-buffering": "no"}

_OPENAPI: dict[str, Any] = {
    "requestBody": {
        "required": True,
        "description": "A RunAgentInput of AG-UI 1.0.",
        "content": {
            "application/json": {"schema": {"type": "object", "required": ["threadId", "runId", "messages"]}},
        },
    },
    "responses": {
        "200": {"description": "The run's AG-UI events.", "content": {"text/event-stream": {}}},
        "401": {"description": "The token is missing or wrong."},
        "415": {"description": "The body is not sent as application/json."},
        "413": {"description": "The body is too large."},
        "422": {"description": "The body is no RunAgentInput; `field` names the member."},
    },
}


def _check_content_type(request: Request) -> None:
    """A web page can send any other type to any address without asking first (CORS calls such a request simple)."""
    kind = request.headers.get("content-type", "").partition(";")[0].strip().lower()
    if kind != "application/json":
        raise RequestError(
            HTTPStatus.UNSUPPORTED_MEDIA_TYPE, "NOT_JSON", f"Send Content-Type: application/json, not {kind[:100]!r}."
        )


async def _body(request: Request) -> bytes:
    pieces, size = [], 0
    async for piece in request.stream():
        size += len(piece)
        if size > MAX_BODY:
            raise RequestError(
                HTTPStatus.REQUEST_ENTITY_TOO_LARGE,
                "BODY_TOO_LARGE",
                f"The body is larger than {MAX_BODY} bytes. Send only the new messages: the thread is kept here.",
            )
        pieces.append(piece)
    return b"".join(pieces)


def _remaining(scope: Scope) -> float | None:
    """Seconds until Lambda kills the environment, from the context that Mangum and our runtime put into the scope."""
    context = scope.get("aws.context")
    return context.get_remaining_time_in_millis() / 1000 if context else None


async def _cancel_when_gone(receive: Receive, running: asyncio.Future[None]) -> None:
    while (await receive())["type"] != "http.disconnect":
        pass
    running.cancel()


@asynccontextmanager
async def _lifespan(app: FastAPI) -> AsyncIterator[None]:
    deployment: Deployment = app.state.deployment
    # In the background: the first invocation is read, and RUN_STARTED sent, while packages are still being imported.
    warming = asyncio.create_task(deployment.warm_up())
    yield
    warming.cancel()
    await deployment.close()


def _add_inspector(app: FastAPI, routes: Mapping[str, Agent]) -> None:
    """The page of the `agui-inspector` package, and the way to it for a browser that opens the root."""
    from agui_inspector import Agent as Listed
    from agui_inspector import mount_inspector

    listed = [Listed(id=agent.name, url=path, name=agent.name) for path, agent in routes.items()]
    # Its warning is for pages that were left on by accident; this one was asked for by name.
    logging.getLogger("agui_inspector").setLevel(logging.ERROR)
    mount_inspector(app, agents=listed, enabled=True, path=INSPECTOR_PATH)

    async def page(request: Request) -> Response:
        if "text/html" in request.headers.get("accept", ""):
            return RedirectResponse(f"{INSPECTOR_PATH}/", HTTPStatus.TEMPORARY_REDIRECT)
        return JSONResponse({"detail": "Method Not Allowed"}, HTTPStatus.METHOD_NOT_ALLOWED, {"Allow": "POST"})

    app.get("/", include_in_schema=False)(page)
