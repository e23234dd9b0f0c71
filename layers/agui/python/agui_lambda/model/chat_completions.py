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

LINE_LIMIT = 4 * 1024 * 1024
"""Bytes of one line; a provider that sends more sends no events."""


class ChatCompletionsReader:
    """Feed it the body as it comes, in pieces of any size.

    `complete`: the answer has an end (`finish_reason` or `[DONE]`); a body that ends here is whole.
    `failure`: what ended the answer before, to be raised once the deltas that came with it are passed on.
    `ended`: nothing further will be read.
    """

    def __init__(self) -> None:
        self._unfinished: list[bytes] = []
        self._size = 0
        self._data: list[bytes] = []
        self._done = False
        self.complete = False
        self.ended = False
        self.failure: ModelFailed | ModelCut | None = None

    def feed(self, piece: bytes) -> list[Delta]:
        """The deltas that `piece` completes. An error inside the stream, or a body that is no event stream at all,
        becomes `failure`."""
        deltas: list[Delta] = []
        try:
            for line in self._lines(piece):
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

    def _lines(self, piece: bytes) -> list[bytes]:
        """The lines that `piece` completes. What has no end yet is kept in pieces: to join it each time would cost
        the square of its length."""
        first, *rest = piece.split(b"\n")
        self._unfinished.append(first)
        self._size += len(first)
        if self._size > LINE_LIMIT:
            raise ModelFailed(f"a line of more than {LINE_LIMIT} bytes")
        if not rest:
            return []
        whole = b"".join(self._unfinished)
        self._unfinished, self._size = [rest[-1]], len(rest[-1])
        return [whole, *rest[:-1]]

    def _line(self, line: bytes, deltas: list[Delta]) -> None:
        if line.startswith(b"data:"):
            self._data.append(line[5:].strip())
        elif not line:
            self._frame(deltas)
        elif line.lstrip().startswith((b"error:", b"event: error", b"event:error", b"{", b"<")):
            raise ModelFailed(f"not an event stream: {len(line)} bytes that begin with {line.lstrip()[:1]!r}")

    def _frame(self, deltas: list[Delta]) -> None:
        if not self._data:
            return
        data, self._data = b"\n".join(self._data), []
        if data == b"[DONE]":
            self._done = self.complete = True
        elif data and not self._done:
            try:
                self._chunk(_parse(data), deltas)
            except (AttributeError, TypeError) as error:
                raise ModelFailed(f"a frame of an unknown shape: {error}") from error

    def _chunk(self, chunk: dict[str, Any], deltas: list[Delta]) -> None:
        if chunk.get("error"):
            raise ModelFailed(f"an error inside the stream: {_code(chunk['error'])}")
        for choice in chunk.get("choices") or ():
            if choice.get("index"):
                continue  # only one answer was asked for
            delta = choice.get("delta") or {}
            if text := _text(delta.get("content")) or _text(delta.get("refusal")):
                deltas.append(Text(text))
            if reason := choice.get("finish_reason"):
                if reason == "error":
                    raise ModelFailed("finish_reason is 'error'")
                self.complete = True
        if isinstance(usage := chunk.get("usage"), dict):
            counts = (usage.get(name) for name in ("prompt_tokens", "completion_tokens", "total_tokens"))
            deltas.append(Usage(*(count if isinstance(count, int) and count >= 0 else None for count in counts)))


def _parse(data: bytes) -> dict[str, Any]:
    try:
        chunk = jiter.from_json(data, cache_mode="keys")
    except ValueError:
        try:  # the standard library takes what jiter refuses: a surrogate without its other half
            chunk = json.loads(data)
        except ValueError:
            raise ModelFailed(f"a frame of {len(data)} bytes that is not JSON") from None
    if not isinstance(chunk, dict):
        raise ModelFailed("a frame that is JSON, but not an object")
    return chunk


def _text(content: Any) -> str:
    if isinstance(content, list):  # Mistral: a list of parts
        return "".join(
            part.get("text") or "" for part in content if isinstance(part, dict) and part.get("type") == "text"
        )
    return content if isinstance(content, str) else ""


def _code(error: Any) -> str:
    """What may be logged of a provider's error: its code or type. Its words may hold the prompt, or the key."""
    named = error if isinstance(error, dict) else {}
    return str(named.get("code") or named.get("type") or "without a code")[:100]
