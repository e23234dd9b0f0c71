"""One invocation of a function: the event that goes in, and the reply that comes out piece by piece.

Pure data and flow control; who produces the reply is `runtime_api`, who reads it is `function_url`.
"""

from __future__ import annotations

import asyncio
import json
import time
import uuid
from collections import deque
from collections.abc import AsyncIterator
from dataclasses import dataclass, field

INTEGRATION_RESPONSE = "application/vnd.awslambda.http-integration-response"

# Bytes that may wait for a slow reader before the runtime's socket is no longer read.
REPLY_HIGH_WATER = 256 * 1024

Headers = list[tuple[bytes, bytes]]


@dataclass(frozen=True)
class Invocation:
    """One event on its way to the runtime. `deadline_ms` is epoch milliseconds."""

    event: bytes
    deadline_ms: int
    function_arn: str
    request_id: str = field(default_factory=lambda: str(uuid.uuid4()))
    trace_id: str = field(default_factory=lambda: f"Root=1-{int(time.time()):08x}-{uuid.uuid4().hex[:24]};Sampled=0")

    def headers(self) -> Headers:
        named = {
            "Content-Type": "application/json",
            "Lambda-Runtime-Aws-Request-Id": self.request_id,
            "Lambda-Runtime-Deadline-Ms": str(self.deadline_ms),
            "Lambda-Runtime-Invoked-Function-Arn": self.function_arn,
            "Lambda-Runtime-Trace-Id": self.trace_id,
        }
        return [(name.encode(), value.encode()) for name, value in named.items()]


@dataclass(frozen=True)
class Outcome:
    """How a reply ended. `error_type` None: well. `truncated`: in the middle, nobody knows how much is missing.

    `error` is the JSON `{"errorType", "errorMessage", "stackTrace"}` as the runtime sent it, or b"".
    """

    error_type: str | None = None
    error: bytes = b""
    truncated: bool = False

    @property
    def message(self) -> str:
        """The error's message in one line. The runtime logs the trace itself."""
        return _message(self.error)

    @classmethod
    def failed(cls, error_type: str, message: str, truncated: bool = True) -> Outcome:
        """A failure which the runtime did not report itself."""
        error = json.dumps({"errorType": error_type, "errorMessage": message}).encode()
        return cls(error_type, error, truncated)


class Reply:
    """What a runtime answers to one invocation: bytes as they come, then an outcome.

    Iterate over it to the end; `outcome` is set after that. `streaming` and `content_type` are known with the
    first bytes: a streamed reply of type INTEGRATION_RESPONSE opens with a prelude, a buffered one is JSON.
    """

    def __init__(self) -> None:
        self.streaming = False
        self.content_type = ""
        self.outcome: Outcome | None = None
        self._waiting: deque[bytes] = deque()
        self._size = 0
        self._discarded = False
        self._news = asyncio.Event()
        self._room = asyncio.Event()

    async def __aiter__(self) -> AsyncIterator[bytes]:
        while True:
            if self._waiting:
                # More than one only if the reader was slower than the runtime: then one write is cheaper.
                data = self._waiting[0] if len(self._waiting) == 1 else b"".join(self._waiting)
                self._waiting.clear()
                self._size = 0
                self._room.set()
                yield data
            elif self.outcome:
                return
            else:
                self._news.clear()
                await self._news.wait()

    async def write(self, data: bytes) -> None:
        """Hands bytes on; waits while the reader is far behind. What comes after the end is dropped."""
        if self.outcome or self._discarded:
            return
        self._waiting.append(data)
        self._size += len(data)
        self._news.set()
        while self._size > REPLY_HIGH_WATER and not self.outcome and not self._discarded:
            self._room.clear()
            await self._room.wait()

    def discard(self) -> None:
        """Nobody reads on: the rest is dropped, and the runtime is not held up."""
        self._discarded = True
        self._waiting.clear()
        self._room.set()

    def finish(self, outcome: Outcome) -> None:
        """Ends the reply. Only the first call counts: a killed runtime's broken connection comes second."""
        if not self.outcome:
            self.outcome = outcome
            self._news.set()
            self._room.set()


class InitError(Exception):
    """The environment could not be initialised. `error` is the JSON that the runtime reported."""

    def __init__(self, error_type: str, error: bytes) -> None:
        self.error_type = error_type
        self.error = error
        super().__init__(f"{error_type}: {_message(error)}")


def _message(error: bytes) -> str:
    try:
        return str(json.loads(error)["errorMessage"])
    except (ValueError, TypeError, KeyError):
        return error.decode(errors="replace")
