"""The bytes of the Lambda Runtime API: preludes, chunks, trailers and the heads of its answers.

Pure functions without I/O. Who sends what and when is in `runtime_api.py`.
Rules: AWS, "Custom runtime response streaming" and the captured bytes of AWS's Node.js client.
"""

from __future__ import annotations

import base64
import json
import re
from collections.abc import Iterable, Mapping
from typing import Any

VERSION = "/2018-06-01/runtime"
INTEGRATION_RESPONSE = "application/vnd.awslambda.http-integration-response"
ERROR_TYPE = "Lambda-Runtime-Function-Error-Type"
ERROR_BODY = "Lambda-Runtime-Function-Error-Body"

# Lambda frames the answer itself; a header about this hop would contradict it.
HOP_BY_HOP = frozenset(
    b"connection keep-alive proxy-connection transfer-encoding content-length te trailer upgrade".split()
)
# Lambda reads trailers into a 4,096-byte buffer; a larger block turns the whole response into a truncated one.
TRAILER_LIMIT = 4_000

Headers = Iterable[tuple[bytes, bytes]]

# RFC 9110, 5.1 and 5.5: what may be in the name and in the value of a header.
_NAME = re.compile(rb"[!#$%&'*+.^_`|~0-9A-Za-z-]+")
_VALUE = re.compile(rb"[^\0\r\n]*")


def request(method: str, path: str, host: str, headers: Mapping[str, str], body: bytes | None = None) -> bytes:
    """A request head, with its body if there is one; without one the caller streams it in chunks (or it is a GET)."""
    lines = [f"{method} {VERSION}{path} HTTP/1.1", f"Host: {host}"]
    lines += [f"{name}: {value}" for name, value in headers.items()]
    if body is not None:
        lines.append(f"Content-Length: {len(body)}")
    return "\r\n".join(lines).encode("latin-1") + b"\r\n\r\n" + (body or b"")


def streaming_request(request_id: str, host: str, invocation_id: str | None) -> bytes:
    """The head of a streamed response. Trailers must be declared here, or Lambda drops them in silence."""
    headers = {
        "Lambda-Runtime-Function-Response-Mode": "streaming",
        "Trailer": f"{ERROR_TYPE}, {ERROR_BODY}",
        "Content-Type": INTEGRATION_RESPONSE,
        "Transfer-Encoding": "chunked",
    }
    if invocation_id:
        headers["Lambda-Runtime-Invocation-Id"] = invocation_id
    return request("POST", f"/invocation/{request_id}/response", host, headers)


def prelude(status: int, headers: Headers) -> bytes:
    """Status, headers and cookies as Lambda wants them before the body: one JSON object and eight NUL bytes.

    Repeated headers are joined with a comma (RFC 9110, 5.3), but for `Set-Cookie`, which has a list of its own.
    Raises ValueError for a header that HTTP does not allow.
    """
    joined: dict[str, str] = {}
    cookies: list[str] = []
    for raw_name, raw_value in headers:
        if not _NAME.fullmatch(raw_name) or not _VALUE.fullmatch(raw_value):
            raise ValueError(f"{raw_name[:100]!r}: {raw_value[:100]!r} cannot be a header")
        name, value = raw_name.lower(), raw_value.decode("latin-1")
        if name == b"set-cookie":
            cookies.append(value)
        elif name not in HOP_BY_HOP:
            key = name.decode("latin-1")
            joined[key] = f"{joined[key]}, {value}" if key in joined else value
    document: dict[str, Any] = {"statusCode": status, "headers": joined}
    if cookies:
        document["cookies"] = cookies
    return json.dumps(document, separators=(",", ":")).encode() + b"\0" * 8


def chunk(data: bytes) -> bytes:
    """One piece of a chunked body. Empty data has no chunk: an empty one would end the body."""
    return b"%x\r\n%b\r\n" % (len(data), data) if data else b""


END = b"0\r\n\r\n"


def end_with_error(error: Mapping[str, Any]) -> bytes:
    """The end of a chunked body that failed, with the error in trailers.

    `error` holds `errorType`, `errorMessage` and `stackTrace` (list of strings, outermost call first). Frames are
    dropped from the outside in until the block fits `TRAILER_LIMIT`.
    """
    kind = _one_line(str(error["errorType"]), 200)
    message, trace = str(error["errorMessage"])[:500], list(error["stackTrace"])
    while True:
        document = {"errorType": kind, "errorMessage": message, "stackTrace": trace}
        encoded = base64.b64encode(json.dumps(document, ensure_ascii=False).encode(errors="replace"))
        block = b"0\r\n%b: %b\r\n%b: %b\r\n\r\n" % (
            ERROR_TYPE.encode(), kind.encode(), ERROR_BODY.encode(), encoded,
        )  # fmt: skip
        if len(block) <= TRAILER_LIMIT or not (trace or message):
            return block
        if trace:
            trace.pop(0)
        else:
            message = message[: len(message) // 2]


def _one_line(text: str, limit: int) -> str:
    return "".join(c if " " <= c < "\x7f" else "?" for c in text)[:limit]


def response_head(head: bytes) -> tuple[int, dict[str, str]]:
    """Status and headers (names in lower case) of an answer's head, up to and including its empty line.

    Raises ValueError when it is not an HTTP/1.1 head.
    """
    first, *lines = head.decode("latin-1").rstrip("\r\n").split("\r\n")
    protocol, status, *_ = first.split(" ", 2)
    if not protocol.startswith("HTTP/1."):
        raise ValueError(f"not an HTTP response: {first!r}")
    headers = {}
    for line in lines:
        name, _, value = line.partition(":")
        headers[name.strip().lower()] = value.strip()
    return int(status), headers
