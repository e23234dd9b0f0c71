"""One ASGI request/response cycle, with the response handed on as it is made.

Owns what an app may send in which order. Where the response goes (a stream, a buffer) is the reply's business.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, MutableMapping
from typing import Any, Protocol

logger = logging.getLogger(__name__)

Scope = MutableMapping[str, Any]
Message = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[Message]]
Send = Callable[[Message], Awaitable[None]]
ASGIApp = Callable[[Scope, Receive, Send], Awaitable[None]]


AFTERMATH = 0.05
"""Seconds in which an error behind the end of a response still counts as the response's own."""
NOTICE = 1.0
"""Seconds an app has, once its response is refused, to end by itself: to store what it has, for example."""
CANCELLATION = 5.0
"""Seconds it has to end once it is cancelled. Then the environment takes its next invocation all the same."""


class Reply(Protocol):
    """Where a response goes. `refused` is set when nobody takes it any more."""

    @property
    def refused(self) -> asyncio.Event: ...
    async def start(self, status: int, headers: list[tuple[bytes, bytes]]) -> None: ...
    async def write(self, data: bytes) -> None: ...


class Cycle:
    """Runs `app` once for a request whose body is already here: `respond`, then `rest`.

    `started` tells whether the app sent a status, `finished` whether it sent the end of its body.
    """

    def __init__(self, app: ASGIApp, scope: Scope, body: bytes, reply: Reply) -> None:
        self._app = app
        self._scope = scope
        self._body: bytes | None = body
        self._reply = reply
        self._running: asyncio.Future[None] | None = None
        self._ended = asyncio.Event()
        self.started = False

    @property
    def finished(self) -> bool:
        return self._ended.is_set()

    async def respond(self) -> None:
        """Returns when the response is complete or refused. The app may go on then: `rest` waits for it.

        Raises what the app raised, also right behind the end of its response, as frameworks do after they answered
        500; RuntimeError when it ended without a whole response. Once the response is refused the app is told, by
        `receive` and `send`, and then cancelled.
        """
        self._running = app = asyncio.ensure_future(self._app(self._scope, self._receive, self._send))
        ended, refused = asyncio.create_task(self._ended.wait()), asyncio.create_task(self._reply.refused.wait())
        try:
            await asyncio.wait({app, ended, refused}, return_when=asyncio.FIRST_COMPLETED)
            if self.finished:
                await asyncio.wait({app}, timeout=AFTERMATH)
            elif self._reply.refused.is_set():
                await _stop(app)
        except asyncio.CancelledError:  # the environment ends; the app may still store what it has
            app.cancel()
            await asyncio.wait({app}, timeout=NOTICE)
            raise
        finally:
            ended.cancel()
            refused.cancel()
        if not app.done():
            return
        self._running = None
        if not self._reply.refused.is_set():
            app.result()
            if not self.finished:
                state = "ending" if self.started else "starting"
                raise RuntimeError(f"the app returned without {state} its response")

    async def rest(self) -> None:
        """Waits for what the app does behind its response, background tasks for example; a failure there is logged."""
        if self._running is not None and self.finished:
            try:
                await self._running
            except Exception:
                logger.exception("the app failed behind its response")

    async def _receive(self) -> Message:
        if self._body is not None:
            body, self._body = self._body, None
            return {"type": "http.request", "body": body, "more_body": False}
        # Lambda does not tell when a client leaves; all there is to wait for is a response that is refused.
        await self._reply.refused.wait()
        return {"type": "http.disconnect"}

    async def _send(self, message: Message) -> None:
        kind = message["type"]
        if kind == "http.response.body" and self.started and not self.finished:
            if data := message.get("body"):
                await self._reply.write(data)
            if not message.get("more_body", False):
                self._ended.set()
        elif kind == "http.response.start" and not self.started:
            await self._reply.start(message["status"], list(message.get("headers", ())))
            self.started = True
        else:
            state = "finished" if self.finished else "started" if self.started else "not started"
            raise RuntimeError(f"the app sent {kind!r}, but its response is {state}")


async def _stop(app: asyncio.Future[None]) -> None:
    """Ends an app whose response nobody takes. What it raises on the way is no news."""
    await asyncio.wait({app}, timeout=NOTICE)
    if not app.done():
        app.cancel()
        await asyncio.wait({app}, timeout=CANCELLATION)
    if not app.done():
        logger.error("the app goes on although its response was refused and it was cancelled")
    elif not app.cancelled() and (error := app.exception()) and not isinstance(error, ConnectionError):
        logger.error("the app failed after its response was refused", exc_info=error)
