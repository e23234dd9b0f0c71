"""The handler object: Mangum's reading of events, with a response that can leave while it is made.

Decides which events get a streamed response. The loop that calls `serve` is in `runtime.py`.
"""

from __future__ import annotations

import asyncio
import logging
import os
from typing import Any

from mangum import Mangum
from mangum.types import LambdaContext, LambdaEvent, LambdaHandler

from response_streaming.cycle import Cycle, Reply, Scope
from response_streaming.lifespan import Lifespan

logger = logging.getLogger(__name__)


class StreamingMangum(Mangum):
    """`handler = StreamingMangum(app)`, with Mangum's parameters and the same event sources.

    Under the streaming runtime the response goes out chunk by chunk. Called as an ordinary function (the stock
    runtime, an HTTP API, a load balancer, a test) it answers with Mangum's dict, in one piece. Either way the app's
    lifespan starts once per environment, and one event loop serves all invocations.
    """

    def __init__(self, *args: Any, **options: Any) -> None:
        super().__init__(*args, **options)
        self._lifespan: Lifespan | None = None
        self._loop: asyncio.AbstractEventLoop | None = None

    async def startup(self) -> None:
        """Runs the app's lifespan start-up, the first time it is called. Raises RuntimeError when that fails."""
        if self._lifespan is None:
            self._lifespan = Lifespan(self.app, self.lifespan)
            await self._lifespan.startup()

    async def shutdown(self) -> None:
        """Runs the app's lifespan shutdown, if it was started."""
        if self._lifespan is not None:
            await self._lifespan.shutdown()

    async def buffered(self, event: LambdaEvent, context: LambdaContext) -> dict[str, Any]:
        """Answers with the event source's own response dict; an app that fails gives a 500, as in Mangum."""
        source = self.infer(event, context)
        reply = BufferedReply()
        cycle = Cycle(self.app, self._scope(source), source.body, reply)
        try:
            await cycle.respond()
        except Exception:
            logger.exception("the app failed")
            if not cycle.finished:
                reply.fail()
        await cycle.rest()
        return source({"status": reply.status, "headers": reply.headers, "body": bytes(reply.body)})

    def cycle(self, event: LambdaEvent, context: LambdaContext, reply: Reply) -> Cycle:
        """The ASGI cycle of an event, to be run by the caller. Raises RuntimeError for an event that is not HTTP."""
        source = self.infer(event, context)
        return Cycle(self.app, self._scope(source), source.body, reply)

    def __call__(self, event: LambdaEvent, context: LambdaContext) -> dict[str, Any]:
        if self._loop is None:
            self._loop = asyncio.new_event_loop()
            self._loop.run_until_complete(self.startup())
        return self._loop.run_until_complete(self.buffered(event, context))

    def close(self) -> None:
        """Ends what calls as an ordinary function began: the app's lifespan and the loop. For tests and scripts."""
        if self._loop is not None:
            self._loop.run_until_complete(self.shutdown())
            self._loop.close()
            self._loop = self._lifespan = None

    def _scope(self, source: LambdaHandler) -> Scope:
        scope = source.scope
        # From 2.4 on an app learns from a failing `send` that nobody reads, and need not listen for a disconnect.
        scope["asgi"] = {"version": "3.0", "spec_version": "2.4"}
        scope["path"] = scope["path"] or "/"  # nothing is left when a base path is all there was
        scope["state"] = dict(self._lifespan.state) if self._lifespan else {}
        return scope

    def _setup_event_loop(self) -> None:
        """Mangum makes a loop for the process here; ours belongs to whoever serves."""


class BufferedReply:
    """Collects a response for the event sources that take it in one piece."""

    def __init__(self) -> None:
        self.status = 500
        self.headers: list[list[bytes]] = []
        self.body = bytearray()
        self.refused = asyncio.Event()

    async def start(self, status: int, headers: list[tuple[bytes, bytes]]) -> None:
        self.status = status
        self.headers = [[name.lower(), value] for name, value in headers]

    async def write(self, data: bytes) -> None:
        self.body += data

    def fail(self) -> None:
        """Replaces whatever was collected: half a response is worse than an honest 500."""
        self.status, self.headers = 500, [[b"content-type", b"text/plain; charset=utf-8"]]
        self.body[:] = b"Internal Server Error"


def streams(event: LambdaEvent) -> bool:
    """Whether the sender of this event takes a streamed response.

    The event does not say, but its source does: a function URL streams, an HTTP API and a load balancer cannot.
    `RESPONSE_STREAMING` overrules: `always` (a REST API with `ResponseTransferMode: STREAM`), `never` (a function URL
    whose `InvokeMode` is `BUFFERED`). `sam local invoke` gets a buffered answer, which a terminal can show.
    """
    setting = os.environ.get("RESPONSE_STREAMING", "auto")
    if setting != "auto":
        return setting == "always"
    if os.environ.get("AWS_SAM_LOCAL") == "true":
        return False
    return ".lambda-url." in str(event.get("requestContext", {}).get("domainName", ""))
