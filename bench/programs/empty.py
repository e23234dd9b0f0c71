"""The smallest app: whatever time its start takes is not its own."""

from __future__ import annotations

from typing import Any


async def app(scope: Any, receive: Any, send: Any) -> None:
    assert scope["type"] == "http", "there is no lifespan"
    await send({"type": "http.response.start", "status": 204, "headers": []})
    await send({"type": "http.response.body"})
