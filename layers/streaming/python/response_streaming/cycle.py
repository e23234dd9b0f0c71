"""One ASGI request/response cycle, with the response handed on as it is made.

Owns what an app may send in which order. Where the response goes (a stream, a buffer) is the reply's business.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, MutableMapping
from typing import Any, Protocol

Scope = MutableMapping[str, Any]
Message = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[Message]]
Send = Callable[[Message], Awaitable[None]]
ASGIApp = Callable[[Scope, Receive, Send], Awaitable[None]]


class Reply(Protocol):
    """Where a response goes. `refused` is set when nobody takes it any more."""

    @property
    def refused(self) -> asyncio.Event: ...
    async def start(self, status: int, headers: list[tuple[bytes, bytes]]) -> None: ...
    async def write(self, data: bytes) -> None: ...


class Cycle:
    """Runs `app` once for a request whose body is already here.

    After `run`: `started` tells whether the app sent a status, `finished` whether it sent the end of its body.
    """

    def __init__(self, app: ASGIApp, scope: Scope, body: bytes, reply: Reply) -> None:
        self._app = app
        self._scope = scope
        self._body: bytes | None = body
        self._reply = reply
        self.started = False
        self.finished = False

    async def run(self) -> None:
        """Raises what the app raised; RuntimeError when it ended without a whole response that was still wanted."""
        await self._app(self._scope, self._receive, self._send)
        if not self.finished and not self._reply.refused.is_set():
            raise RuntimeError(
                "the app returned without " + ("ending" if self.started else "starting") + " its response"
            )

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
            self.finished = not message.get("more_body", False)
        elif kind == "http.response.start" and not self.started:
            self.started = True
            await self._reply.start(message["status"], list(message.get("headers", ())))
        else:
            state = "finished" if self.finished else "started" if self.started else "not started"
            raise RuntimeError(f"the app sent {kind!r}, but its response is {state}")
