"""Reads a Chat Completions stream: bytes in, deltas out. The dialects of all providers are tolerated here.

Without I/O: `client.py` brings the bytes. Frames are parsed as plain JSON, because building the openai package's
objects costs twenty times more than all the rest.
"""

from __future__ import annotations

import json
from typing import Any

import jiter

from agui_lambda.errors import ModelCut, ModelFailed
from agui_lambda.model.deltas import Delta, Text, Usage


class ChatCompletionsReader:
    """Feed it the body as it comes, in pieces of any size.

    `complete`: the answer has an end (`finish_reason` or `[DONE]`); a body that ends here is whole.
    `failure`: what ended the answer before, to be raised once the deltas that came with it are passed on.
    `ended`: nothing further will be read.
    """

    def __init__(self) -> None:
        self._rest = b""
        self._data: list[bytes] = []
        self._done = False
        self.complete = False
        self.ended = False
        self.failure: ModelFailed | ModelCut | None = None

    def feed(self, piece: bytes) -> list[Delta]:
        """The deltas that `piece` completes. An error inside the stream, or a body that is no event stream at all,
        becomes `failure`."""
        lines = (self._rest + piece).split(b"\n")
        self._rest = lines.pop()
        deltas: list[Delta] = []
        try:
            for line in lines:
                self._line(line.rstrip(b"\r"), deltas)
        except ModelFailed as failure:
            self.failure = failure
            self.ended = True
        return deltas

    def end(self) -> list[Delta]:
        """The body is over; its last frame may lack the empty line. An answer that is not whole becomes `failure`."""
        deltas = self.feed(b"\n\n")
        self.ended = True
        if not self.complete and self.failure is None:
            self.failure = ModelCut("the body ended with neither a finish_reason nor [DONE]")
        return deltas

    def _line(self, line: bytes, deltas: list[Delta]) -> None:
        if line.startswith(b"data:"):
            self._data.append(line[5:].strip())
        elif not line:
            self._frame(deltas)
        elif line.startswith((b"error:", b"event: error", b"event:error", b"{", b"<")):
            raise ModelFailed(f"not an event stream: {line[:500]!r}")

    def _frame(self, deltas: list[Delta]) -> None:
        if not self._data:
            return
        data, self._data = b"\n".join(self._data), []
        if data == b"[DONE]":
            self._done = self.complete = True
        elif data and not self._done:
            self._chunk(_parse(data), deltas)

    def _chunk(self, chunk: dict[str, Any], deltas: list[Delta]) -> None:
        if chunk.get("error"):
            raise ModelFailed(f"an error inside the stream: {chunk['error']!r}"[:500])
        for choice in chunk.get("choices") or ():
            if choice.get("index"):
                continue  # only one answer was asked for
            delta = choice.get("delta") or {}
            if text := _text(delta.get("content")) or delta.get("refusal"):
                deltas.append(Text(text))
            if reason := choice.get("finish_reason"):
                if reason == "error":
                    raise ModelFailed("finish_reason is 'error'")
                self.complete = True
        if usage := chunk.get("usage"):
            deltas.append(Usage(usage.get("prompt_tokens"), usage.get("completion_tokens"), usage.get("total_tokens")))


def _parse(data: bytes) -> dict[str, Any]:
    try:
        chunk = jiter.from_json(data, cache_mode="keys")
    except ValueError:
        try:  # the standard library takes what jiter refuses: a surrogate without its other half
            chunk = json.loads(data)
        except ValueError:
            raise ModelFailed(f"a frame that is not JSON: {data[:500]!r}") from None
    if not isinstance(chunk, dict):
        raise ModelFailed(f"a frame that is not an object: {data[:500]!r}")
    return chunk


def _text(content: Any) -> str:
    if isinstance(content, list):  # Mistral: a list of parts
        return "".join(
            part.get("text") or "" for part in content if isinstance(part, dict) and part.get("type") == "text"
        )
    return content or ""
