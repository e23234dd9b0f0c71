"""A function URL in front of a function: HTTP in, event out; a reply in, HTTP out, as the bytes come.

An ASGI app, so that any server can carry it. Shapes are those of payload format 2.0:
https://docs.aws.amazon.com/lambda/latest/dg/urls-invocation.html. Answers to browsers' CORS questions are in `cors`.
"""

from __future__ import annotations

import json
import logging
import re
import time
import uuid
from base64 import b64decode
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Mapping, MutableMapping
from typing import Any
from urllib.parse import quote

from local import callers
from local.cors import Cors
from local.event import HOP_BY_HOP, event_of, http_api_event
from local.event_v1 import alb_event, rest_event
from local.function import Function, TooManyRequestsError
from local.invocation import INTEGRATION_RESPONSE, Headers, InitError, Reply

logger = logging.getLogger(__name__)

Scope = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[MutableMapping[str, Any]]]
Send = Callable[[MutableMapping[str, Any]], Awaitable[None]]

# https://docs.aws.amazon.com/lambda/latest/dg/gettingstarted-limits.html; the event counts, not the body alone.
REQUEST_LIMIT = 6_291_456

# The event that a request becomes, by what stands in front of the function.
SOURCES = {"function-url": event_of, "http-api": http_api_event, "rest": rest_event, "alb": alb_event}

DELIMITER = b"\0" * 8
# Far more than API Gateway's 16 KB: a stream that has no prelude at all should not be collected for ever.
PRELUDE_LIMIT = 1024 * 1024

# The length of a stream is not known, and that of a buffered body is counted again.
_NOT_PASSED_ON = HOP_BY_HOP | {"content-length"}
_HEADER_NAME = re.compile(r"[!#$%&'*+.^_`|~0-9A-Za-z-]+")
_NOT_IN_HEADERS = re.compile(r"[\0\r\n]")


class FunctionURL:
    """ASGI app that invokes `function` for every request but CORS preflights.

    A client that leaves does not stop the function: as on AWS its reply is read to the end.

    With another `source` (see SOURCES) the events are those of an API Gateway or of a load balancer, and their replies
    are understood, CORS is the app's business; limits and errors stay a function URL's.

    Pages that `cors` does not allow (None: those of other machines) are refused, see `callers`.
    """

    def __init__(self, function: Function, cors: Cors | None = None, source: str = "function-url") -> None:
        self.function = function
        self.cors = cors if source == "function-url" else None
        self.origins = cors.allow_origins if cors else callers.LOOPBACK
        self.event_of = SOURCES[source]
        self.url_id = uuid.uuid4().hex

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            raise ValueError(f"a function URL cannot serve {scope['type']}")
        request_id = str(uuid.uuid4())
        answer = _Answer(scope, send, request_id, self.cors)
        try:
            if refusal := callers.refusal(self.origins, scope):
                logger.warning("Refused: %s", refusal)
                await answer.finish_with(403, refusal)
            elif _is_ambiguous(scope):
                message = "A request has a Content-Length or a Transfer-Encoding, not both"
                await answer.finish_with(400, message, [(b"connection", b"close")])
            elif self.cors and self.cors.is_preflight(scope):
                await answer.start(200, [])
            else:
                await self._invoke(scope, receive, request_id, answer)
            await answer.finish()
        except _CutError:
            pass  # Returned without an end, the server closes the connection, and the client sees that it was cut.
        except OSError:
            pass  # The caller has left, and this server tells.
        except Exception:
            logger.exception("The function URL itself failed")
            raise

    async def _invoke(self, scope: Scope, receive: Receive, request_id: str, answer: _Answer) -> None:
        event = await self._event(scope, receive, request_id)
        if event is None:
            message = f"Request must be smaller than {REQUEST_LIMIT} bytes for the InvokeFunction operation"
            await answer.finish_with(413, message)
            return
        try:
            reply = await self.function.invoke(event, request_id)
        except TooManyRequestsError:
            logger.warning("All %d environments are busy (--max-environments)", self.function.max_environments)
            await answer.finish_with(429, "Rate Exceeded.")
            return
        except InitError:
            # Logged by the function. AWS tells the caller no more than this either.
            await answer.finish_with(502, "Internal Server Error")
            return
        try:
            await _pass_on(reply, answer)
        except _BadReplyError as error:
            logger.error("RequestId: %s %s", request_id, error)
            await answer.finish_with(502, "Internal Server Error")
        finally:
            reply.discard()

    async def _event(self, scope: Scope, receive: Receive, request_id: str) -> bytes | None:
        """The event for a request, None if it is too large (its body is read to the end all the same)."""
        parts: list[bytes] = []
        size = 0
        more = True
        while more:
            message = await receive()
            if message["type"] == "http.disconnect":
                raise ConnectionResetError("the caller left before the end of the request")
            size += len(message.get("body", b""))
            if size <= REQUEST_LIMIT:
                parts.append(message.get("body", b""))
            more = message.get("more_body", False)
        if size > REQUEST_LIMIT:
            return None
        region = self.function.configuration.region
        event = self.event_of(scope, b"".join(parts), url_id=self.url_id, region=region, request_id=request_id)
        payload = json.dumps(event, ensure_ascii=False).encode()
        return payload if len(payload) <= REQUEST_LIMIT else None


def _is_ambiguous(scope: Scope) -> bool:
    """Two lengths, which two programs on the way may read differently: https://www.rfc-editor.org/rfc/rfc9112#section-6.1"""
    return {b"content-length", b"transfer-encoding"} <= {name for name, _ in scope["headers"]}


# --- reply -> response --------------------------------------------------------------------------------------


class _BadReplyError(Exception):
    """The function failed, or answered what is not a response, before anything was sent to the caller."""


class _CutError(Exception):
    """The reply broke off after the response had begun."""


async def _pass_on(reply: Reply, answer: _Answer) -> None:
    """Turns a reply into a response, each piece as it comes."""
    pieces = aiter(reply)
    first = await anext(pieces, b"")
    if not reply.streaming:
        body = first + b"".join([piece async for piece in pieces])
        _check(reply)
        status, headers, body = _buffered_response(body)
        if status not in (204, 304):
            headers.append((b"content-length", b"%d" % len(body)))
        await answer.start(status, headers)
        await answer.send_body(body)
        return
    if reply.content_type.startswith(INTEGRATION_RESPONSE):
        status, headers, first = await _read_prelude(reply, pieces, first)
    else:
        if not first:
            _check(reply)
        status, headers = 200, _headers([("content-type", reply.content_type or "application/octet-stream")])
    await answer.start(status, headers)
    if first:
        await answer.send_body(first)
    async for piece in pieces:
        await answer.send_body(piece)
    outcome = reply.outcome
    if outcome and outcome.error_type:
        logger.error("RequestId: %s %s in the stream: %s", answer.request_id, outcome.error_type, outcome.message)
        if outcome.truncated:
            raise _CutError


def _check(reply: Reply) -> None:
    if reply.outcome and reply.outcome.error_type:
        raise _BadReplyError(f"{reply.outcome.error_type}: {reply.outcome.message}")


async def _read_prelude(reply: Reply, pieces: AsyncIterator[bytes], received: bytes) -> tuple[int, Headers, bytes]:
    """Reads up to the eight NULs, wherever the pieces were cut. Returns status, headers, first bytes of the body."""
    while (end := received.find(DELIMITER)) < 0:
        piece = await anext(pieces, b"")
        received += piece
        if not piece:
            _check(reply)
            raise _BadReplyError(f"the stream ended without prelude and 8 NUL bytes: {received[:200]!r}")
        if len(received) > PRELUDE_LIMIT:
            raise _BadReplyError(f"no prelude within {PRELUDE_LIMIT} bytes: {received[:200]!r}")
    try:
        prelude = json.loads(received[:end])
    except ValueError:
        prelude = None
    if not isinstance(prelude, dict):
        raise _BadReplyError(f"the prelude is not a JSON object: {received[:end][:200]!r}")
    return *_status_and_headers(prelude), received[end + len(DELIMITER) :]


def _buffered_response(reply: bytes) -> tuple[int, Headers, bytes]:
    """`{"statusCode": …}` is a whole response, any other JSON the body of a 200."""
    try:
        value = json.loads(reply) if reply else None
    except ValueError:
        raise _BadReplyError(f"the reply is not JSON: {reply[:200]!r}") from None
    if not isinstance(value, dict) or "statusCode" not in value:
        return 200, _headers([("content-type", "application/json")]), reply
    status, headers = _status_and_headers({"headers": {}} | value)
    if not any(name.lower() == b"content-type" for name, _ in headers):
        headers.append((b"content-type", b"application/json"))
    body = value.get("body") or ""
    if not isinstance(body, str):
        raise _BadReplyError("the body of a buffered response has to be a string")
    try:
        return status, headers, b64decode(body) if value.get("isBase64Encoded") else body.encode()
    except ValueError:
        raise _BadReplyError("isBase64Encoded is true, and the body is not base64") from None


def _status_and_headers(response: Mapping[str, Any]) -> tuple[int, Headers]:
    status = response.get("statusCode", 200)
    headers = response.get("headers") or {}
    # Of payload 1.0; counts more than a header of the same name in `headers`.
    multi_value = response.get("multiValueHeaders") or {}
    cookies = response.get("cookies") or []
    if not isinstance(status, int) or not 200 <= status <= 599:
        raise _BadReplyError(f"{status!r} is not a status code")
    if not isinstance(headers, dict) or not isinstance(multi_value, dict) or not isinstance(cookies, list):
        raise _BadReplyError("headers have to be an object, and cookies a list")
    again = {name.lower() for name in multi_value}
    single = [(name, value) for name, value in headers.items() if name.lower() not in again]
    multiple = [(name, value) for name, values in multi_value.items() for value in values]
    return status, _headers([*single, *multiple, *(("set-cookie", cookie) for cookie in cookies)])


def _headers(named: Iterable[tuple[str, Any]]) -> Headers:
    headers = []
    for name, value in named:
        if not _HEADER_NAME.fullmatch(name):
            raise _BadReplyError(f"{name!r} is not the name of a header")
        if name.lower() not in _NOT_PASSED_ON:
            headers.append((name.encode(), _header_value(value)))
    return headers


def _header_value(value: Any) -> bytes:
    text = ", ".join(map(str, value)) if isinstance(value, list) else str(value)
    if _NOT_IN_HEADERS.search(text):
        raise _BadReplyError(f"{text[:200]!r} cannot be the value of a header")
    return text.encode("utf-8").strip()


class _Answer:
    """The response to one request: adds the front's own headers to every one, and logs it in one line."""

    def __init__(self, scope: Scope, send: Send, request_id: str, cors: Cors | None) -> None:
        self.request_id = request_id
        self._scope = scope
        self._send = send
        self._cors = cors
        self._began = time.monotonic()
        self._first_byte = 0.0
        self._status = 0
        self._finished = False

    async def start(self, status: int, headers: Headers) -> None:
        headers = [*headers, (b"x-amzn-requestid", self.request_id.encode())]
        if self._cors:
            headers = self._cors.apply(self._scope, headers)
        self._status = status
        await self._send({"type": "http.response.start", "status": status, "headers": headers})

    async def send_body(self, data: bytes) -> None:
        self._first_byte = self._first_byte or time.monotonic()
        await self._send({"type": "http.response.body", "body": data, "more_body": True})

    async def finish(self) -> None:
        if not self._finished:
            self._finished = True
            await self._send({"type": "http.response.body", "body": b""})
            self._log()

    async def finish_with(self, status: int, message: str, more: Headers | None = None) -> None:
        """The whole answer is an error of the front itself. Once a response has begun it can only be cut."""
        if self._status:
            raise _CutError
        body = json.dumps({"Message": message}).encode()
        headers = [(b"content-type", b"application/json"), (b"content-length", b"%d" % len(body))]
        await self.start(status, [*headers, *(more or [])])
        await self.send_body(body)
        await self.finish()

    def _log(self) -> None:
        now = time.monotonic()
        logger.info(
            "%s %s %d, first byte after %.0f ms, end after %.0f ms",
            self._scope["method"],
            # Encoded again: what is decoded may hold line ends.
            quote(self._scope["path"], safe="/:@!$&'()*+,;=", errors="replace"),
            self._status,
            ((self._first_byte or now) - self._began) * 1000,
            (now - self._began) * 1000,
        )
