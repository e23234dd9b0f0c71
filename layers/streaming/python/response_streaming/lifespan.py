"""The ASGI lifespan of an execution environment: start-up once before the first invocation, shutdown at its end.

Mangum runs both around every invocation, which throws connection pools away between them.
"""

from __future__ import annotations

import asyncio
import logging
from typing import Any

from response_streaming.cycle import ASGIApp, Message

logger = logging.getLogger(__name__)


class Lifespan:
    """`mode` is Mangum's: `auto` (an app that does not know lifespan is fine), `on` (it must), `off`."""

    def __init__(self, app: ASGIApp, mode: str) -> None:
        self._app = app
        self._mode = mode
        self.state: dict[str, Any] = {}
        """What the app put into its lifespan state; each request gets a shallow copy as `scope["state"]`."""
        self._to_app: asyncio.Queue[Message] = asyncio.Queue()
        self._from_app: asyncio.Queue[Message] = asyncio.Queue()
        self._task: asyncio.Task[None] | None = None

    async def startup(self) -> None:
        """Raises RuntimeError when the app says that its start-up failed, or has no lifespan and `mode` is `on`."""
        if self._mode == "off":
            return
        self._task = asyncio.create_task(self._run())
        answer = await self._exchange("lifespan.startup")
        if answer["type"] == "lifespan.startup.failed":
            raise RuntimeError(f"lifespan start-up failed: {answer.get('message') or 'the app gave no reason'}")
        if answer["type"] == "unsupported" and self._mode == "on":
            raise RuntimeError("lifespan is 'on', but the app does not support it") from answer["error"]

    async def shutdown(self) -> None:
        """Gives the app its chance to clean up; what goes wrong there is logged."""
        if self._task is None or self._task.done():
            return
        answer = await self._exchange("lifespan.shutdown")
        if answer["type"] == "lifespan.shutdown.failed":
            logger.error("lifespan shutdown failed: %s", answer.get("message", ""))
        await self._task

    async def _exchange(self, question: str) -> Message:
        await self._to_app.put({"type": question})
        return await self._from_app.get()

    async def _run(self) -> None:
        scope = {"type": "lifespan", "asgi": {"version": "3.0", "spec_version": "2.0"}, "state": self.state}
        try:
            await self._app(scope, self._to_app.get, self._from_app.put)
        except Exception as error:
            # By the ASGI specification an exception before start-up completes means: no lifespan here.
            logger.debug("the app has no lifespan", exc_info=True)
            await self._from_app.put({"type": "unsupported", "error": error})
        else:
            await self._from_app.put({"type": "unsupported", "error": None})
