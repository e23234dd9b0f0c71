"""One invocation of a function: the event that goes in, and the reply that comes out piece by piece.

Pure data and flow control; who produces the reply is `runtime_api`, who reads it is `function_url`.
"""

from __future__ import annotations

import asyncio
import json
import time
import uuid
from collections import deque
from collections.abc import AsyncIterator, Mapping
from dataclasses import dataclass, field
from typing import Any

INTEGRATION_RESPONSE = "application/vnd.awslambda.http-integration-response"

# Bytes that may wait for a slow reader before the runtime's socket is no longer read.
REPLY_HIGH_WATER = 256 * 1024
# Bytes that AWS's Runtime API still reads of a reply that it has refused, before it answers.
REFUSED_BODY_LIMIT = 256 * 1024

# What the Runtime API says with each status that ends a reply early. The size is the one it names in any case.
REFUSALS = {
    400: ("TruncatedHTTPRequest", "HTTP request truncated"),
    410: ("InvokeTimeout", "Invoke timeout"),
    413: ("RequestEntityTooLarge", "Exceeded maximum allowed payload size (6291556 bytes)."),
}

Headers = list[tuple[bytes, bytes]]


@dataclass(frozen=True)
class Caller:
    """What an SDK's Invoke call tells beside the event; a function URL tells none of it.

    `client_context` is an object such as {"custom": {…}}, `cognito_identity` one such as {"cognitoIdentityId": …,
    "cognitoIdentityPoolId": …}.
    """

    client_context: Mapping[str, Any] | None = None
    cognito_identity: Mapping[str, Any] | None = None
    tenant_id: str | None = None

    def headers(self) -> dict[str, str]:
        named = {
            "Lambda-Runtime-Client-Context": self.client_context and json.dumps(self.client_context),
            "Lambda-Runtime-Cognito-Identity": self.cognito_identity and json.dumps(self.cognito_identity),
            "Lambda-Runtime-Aws-Tenant-Id": self.tenant_id,
        }
        return {name: value for name, value in named.items() if value}


@dataclass(frozen=True)
class Invocation:
    """One event on its way to the runtime. `deadline_ms` is epoch milliseconds.

    `invocation_id` is a nonce which the runtime has to echo if it echoes any; None: not sent.
    """

    event: bytes
    deadline_ms: int
    function_arn: str
    caller: Caller = Caller()
    invocation_id: str | None = None
    request_id: str = field(default_factory=lambda: str(uuid.uuid4()))
    trace_id: str = field(default_factory=lambda: f"Root=1-{int(time.time()):08x}-{uuid.uuid4().hex[:24]};Sampled=0")

    def headers(self) -> Headers:
        named = {
            "Content-Type": "application/json",
            "Lambda-Runtime-Aws-Request-Id": self.request_id,
            "Lambda-Runtime-Deadline-Ms": str(self.deadline_ms),
            "Lambda-Runtime-Invoked-Function-Arn": self.function_arn,
            "Lambda-Runtime-Trace-Id": self.trace_id,
            **self.caller.headers(),
        }
        if self.invocation_id:
            named["Lambda-Runtime-Invocation-Id"] = self.invocation_id
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


@dataclass(frozen=True)
class Refusal:
    """How the Runtime API ends a reply that it takes no more of: with `status`, after `swallow` more bytes of body.

    `status` 0: the connection is closed without an answer.
    """

    status: int
    swallow: int = REFUSED_BODY_LIMIT


class Reply:
    """What a runtime answers to one invocation: bytes as they come, then an outcome.

    Iterate over it to the end; `outcome` is set after that. `streaming` and `content_type` are known with the
    first bytes: a streamed reply of type INTEGRATION_RESPONSE opens with a prelude, a buffered one is JSON.

    `refuse` ends it from this side.
    """

    def __init__(self) -> None:
        self.streaming = False
        self.content_type = ""
        self.outcome: Outcome | None = None
        self.ended = asyncio.Event()
        self.refusal: Refusal | None = None
        self.refused = asyncio.Event()
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

    def refuse(self, status: int, *, swallow: int = REFUSED_BODY_LIMIT, outcome: Outcome | None = None) -> None:
        """The runtime's answer is not taken (any further): 400 as if the invoker had gone away, 410, or 413.

        As on AWS the runtime hears of it when its body ends or `swallow` more bytes of it came; 0: at once. One that
        has not begun to answer hears of it when it has. `outcome` is what the reader of this reply is told.
        """
        if self.refusal or self.outcome:
            return
        self.refusal = Refusal(status, swallow)
        self.finish(outcome or Outcome.failed(*_REFUSED.get(status, _REFUSED[400])))
        self.refused.set()

    def finish(self, outcome: Outcome) -> None:
        """Ends the reply. Only the first call counts: a killed runtime's broken connection comes second."""
        if not self.outcome:
            self.outcome = outcome
            self.ended.set()
            self._news.set()
            self._room.set()


# What Lambda tells of a refused reply: error type and message.
_REFUSED = {
    400: ("Runtime.TruncatedResponse", "the invoker has gone away"),
    410: ("Runtime.InvokeTimeout", "the invocation is over"),
    413: (
        "Function.ResponseSizeTooLarge",
        "Response payload size exceeded maximum allowed payload size (6291556 bytes).",
    ),
}


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
