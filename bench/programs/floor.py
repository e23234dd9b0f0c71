"""The floor: the least that reads a model's stream through the openai package and writes the same AG-UI events.

No table, no validation, no provider's dialect, no failure handled. What arrived together is handled together.
"""

from __future__ import annotations

import asyncio
import json
from json.encoder import encode_basestring_ascii as quote
from typing import Any

import jiter
from openai import AsyncOpenAI, DefaultAioHttpClient

from local.child import serve_child

MODEL = "bench"
MESSAGE_ID = "msg_00000000000000000000000000000000"
HEADERS = [
    (b"content-type", b"text/event-stream"),
    (b"cache-control", b"no-cache, no-store"),
    (b"x-accel-buffering", b"no"),
]


class Floor:
    """The ASGI app. Its connection to the model lives as long as the server."""

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        if scope["type"] == "lifespan":
            await self._live(receive, send)
            return
        body, more = b"", True
        while more:
            message = await receive()
            body += message["body"]
            more = message["more_body"]

        async def write(frames: bytes) -> None:
            await send({"type": "http.response.body", "body": frames, "more_body": True})

        await send({"type": "http.response.start", "status": 200, "headers": HEADERS})
        await self._run(json.loads(body), write)
        await send({"type": "http.response.body", "body": b""})

    async def _live(self, receive: Any, send: Any) -> None:
        await receive()
        async with DefaultAioHttpClient() as http:
            self._client = AsyncOpenAI(http_client=http)
            await send({"type": "lifespan.startup.complete"})
            await receive()
        await send({"type": "lifespan.shutdown.complete"})

    async def _run(self, run: dict[str, Any], write: Any) -> None:
        ids = {"threadId": run["threadId"], "runId": run["runId"]}
        await write(_event({"type": "RUN_STARTED", **ids, "protocolVersion": "1.0"}))
        messages = [{"role": message["role"], "content": message["content"]} for message in run["messages"]]
        request = self._client.chat.completions.with_streaming_response.create(
            model=MODEL,
            messages=[],
            stream=True,
            extra_body={"stream_options": {"include_usage": True}, "messages": messages},
        )
        opening = _event({"type": "TEXT_MESSAGE_START", "messageId": MESSAGE_ID, "role": "assistant"})
        prefix = f'data: {{"type":"TEXT_MESSAGE_CONTENT","messageId":{quote(MESSAGE_ID)},"delta":'
        usage: dict[str, int] = {}
        async with request as response:
            rest = b""
            async for piece in response.iter_bytes():
                *frames, rest = (rest + piece).split(b"\n\n")
                texts = []
                for frame in frames:
                    if frame == b"data: [DONE]":
                        continue
                    chunk = jiter.from_json(frame[6:], cache_mode="keys")
                    for choice in chunk["choices"]:
                        if text := choice["delta"].get("content"):
                            texts.append(f"{prefix}{quote(text)}}}\n\n")
                    usage = chunk["usage"] or usage
                if texts:
                    await write(opening + "".join(texts).encode())
                    opening = b""
        await write(_event({"type": "TEXT_MESSAGE_END", "messageId": MESSAGE_ID}))
        counts = {
            "inputTokens": usage["prompt_tokens"],
            "outputTokens": usage["completion_tokens"],
            "totalTokens": usage["total_tokens"],
        }
        end = {"type": "RUN_FINISHED", **ids, "outcome": {"type": "success"}}
        await write(_event({**end, "usage": [{"model": MODEL, **counts}]}))


def _event(event: dict[str, Any]) -> bytes:
    return b"data: " + json.dumps(event, separators=(",", ":")).encode() + b"\n\n"


if __name__ == "__main__":
    asyncio.run(serve_child(Floor()))
