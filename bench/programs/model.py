"""A model that costs nothing: an OpenAI-compatible server that sends bytes made beforehand, in a process of its own.

The request's last message says what to send, and the words are those of `script`. Speaks just enough HTTP/1.1; what a
model may say otherwise is the business of the tests.
"""

from __future__ import annotations

import json
import re
import socketserver
import threading
import time
from functools import cache
from typing import Any

from local.child import announce, told_to_end

TOKEN = "token "
"""What a model at full blast says again and again."""

# A frame with the members that OpenAI sends, of which each costs the reader its time.
_CHUNK = {
    "id": "chatcmpl-D1k2J3h4G5f6S7a8P9o0I1u2Y3t4R",
    "object": "chat.completion.chunk",
    "created": 1767225600,
    "model": "bench",
    "service_tier": "default",
    "system_fingerprint": "fp_0123456789",
}
_HEAD = b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nTransfer-Encoding: chunked\r\n\r\n"
_SCRIPT = re.compile(rb"Send (?P<count>\d+) tokens (at once|every (?P<pause>[\d.]+) ms)")


def script(tokens: int, pause: float | None = None) -> str:
    """The message that makes the model send `tokens` tokens.

    Without `pause` it sends them as fast as they are taken; with one it waits that many milliseconds between two. The
    first token, and with `pause` each one, is the time at which it is sent, as nanoseconds of CLOCK_MONOTONIC, which
    all processes of a Linux machine share. The first is sent when the request has been read.
    """
    return f"Send {tokens} tokens at once" if pause is None else f"Send {tokens} tokens every {pause:g} ms"


class Model(socketserver.ThreadingTCPServer):
    """Threads and blocking sockets: nothing stands between a token and the wire."""

    daemon_threads = True
    allow_reuse_address = True
    disable_nagle_algorithm = True
    request_queue_size = 64

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), Connection)


class Connection(socketserver.StreamRequestHandler):
    """Answers the requests of one connection, in turn."""

    disable_nagle_algorithm = True

    def handle(self) -> None:
        try:
            while request := self._read():
                self._answer(request)
        except ConnectionError:
            pass  # The client needs no more.

    def _read(self) -> bytes:
        """The body of the next request; empty when there is none."""
        length = 0
        while (line := self.rfile.readline().strip()) != b"":
            name, _, value = line.partition(b":")
            if name.lower() == b"content-length":
                length = int(value)
        return self.rfile.read(length)

    def _answer(self, request: bytes) -> None:
        # Its last message, wherever the client puts its messages.
        *_, wanted = _SCRIPT.finditer(request)
        count, pause = int(wanted["count"]), wanted["pause"]
        self.wfile.write(_HEAD + _frame({"role": "assistant", "content": ""}))
        self._stamp()
        if pause is None:
            self.wfile.write(_rest_at_once(count))
        else:
            for _ in range(count - 1):
                time.sleep(float(pause) / 1000)
                self._stamp()
            self.wfile.write(_end(count))

    def _stamp(self) -> None:
        self.wfile.write(_frame({"content": str(time.monotonic_ns())}))


@cache
def _rest_at_once(count: int) -> bytes:
    return _frame({"content": TOKEN}) * (count - 1) + _end(count)


def _end(count: int) -> bytes:
    usage = {"prompt_tokens": 10, "completion_tokens": count, "total_tokens": count + 10}
    return b"".join(
        [
            _frame({}, finish_reason="stop"),
            _http_chunk(_CHUNK | {"choices": [], "usage": usage}),
            b"e\r\ndata: [DONE]\n\n\r\n",
            b"0\r\n\r\n",
        ]
    )


def _frame(delta: dict[str, Any], finish_reason: str | None = None) -> bytes:
    choice = {"index": 0, "delta": delta, "logprobs": None, "finish_reason": finish_reason}
    return _http_chunk(_CHUNK | {"choices": [choice], "usage": None})


def _http_chunk(document: dict[str, Any]) -> bytes:
    """An event in an HTTP chunk of its own, as providers send it."""
    frame = b"data: " + json.dumps(document, separators=(",", ":")).encode() + b"\n\n"
    return b"%x\r\n%b\r\n" % (len(frame), frame)


if __name__ == "__main__":
    import asyncio

    model = Model()
    threading.Thread(target=model.serve_forever, daemon=True).start()
    announce(model.server_address[1])
    asyncio.run(told_to_end())
