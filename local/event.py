"""From an HTTP request to the event that a function URL, or an HTTP API, makes of it: payload format 2.0.

Pure: bytes and a dict in, a dict out. Sources of the shape:
https://docs.aws.amazon.com/lambda/latest/dg/urls-invocation.html#urls-payloads and
https://docs.aws.amazon.com/apigateway/latest/developerguide/http-api-develop-integrations-lambda.html
"""

from __future__ import annotations

import re
import time
import uuid
from base64 import b64encode
from collections.abc import Iterable, Mapping
from typing import Any
from urllib.parse import parse_qsl

# Headers about one connection, which end at the front (RFC 9110, section 7.6.1).
HOP_BY_HOP = {"connection", "keep-alive", "proxy-connection", "te", "trailer", "transfer-encoding", "upgrade"}

_TEXT = re.compile(r"text/|application/(json|javascript|xml)\b|application/[^;]*\+(json|xml)\b")


Headers = Iterable[tuple[str, str]]


def event_of(scope: Mapping[str, Any], body: bytes, *, url_id: str, region: str, request_id: str) -> dict[str, Any]:
    """The payload 2.0 event of an HTTP request to a function URL.

    The Host header stays the caller's, so that redirects lead back to this machine.
    """
    headers: dict[str, str] = {}
    cookies: list[str] = []
    for name, value in request_headers(scope):
        if name == "cookie":
            cookies += [cookie.strip() for cookie in value.split(";") if cookie.strip()]
        else:
            headers[name] = f"{headers[name]},{value}" if name in headers else value
    client = headers["x-forwarded-for"]
    path = path_of(scope)
    query = scope.get("query_string", b"").decode("latin-1")
    domain = f"{url_id}.lambda-url.{region}.on.aws"
    now = time.time()
    event: dict[str, Any] = {
        "version": "2.0",
        "routeKey": "$default",
        "rawPath": path,
        "rawQueryString": query,
        "headers": headers,
        "requestContext": {
            "accountId": "anonymous",
            "apiId": url_id,
            "domainName": domain,
            "domainPrefix": url_id,
            "http": {
                "method": scope["method"],
                "path": path,
                "protocol": f"HTTP/{scope.get('http_version', '1.1')}",
                "sourceIp": client,
                "userAgent": headers.get("user-agent", ""),
            },
            "requestId": request_id,
            "routeKey": "$default",
            "stage": "$default",
            "time": time.strftime("%d/%b/%Y:%H:%M:%S +0000", time.gmtime(now)),
            "timeEpoch": int(now * 1000),
        },
        "isBase64Encoded": False,
    }
    if cookies:
        event["cookies"] = cookies
    if query:
        parameters: dict[str, str] = {}
        for name, value in parse_qsl(query, keep_blank_values=True):
            parameters[name] = f"{parameters[name]},{value}" if name in parameters else value
        event["queryStringParameters"] = parameters
    return event | body_of(body, headers)


def http_api_event(
    scope: Mapping[str, Any], body: bytes, *, url_id: str, region: str, request_id: str
) -> dict[str, Any]:
    """The payload 2.0 event of an HTTP request to an API Gateway HTTP API with the route $default."""
    event = event_of(scope, body, url_id=url_id, region=region, request_id=request_id)
    domain = f"{url_id}.execute-api.{region}.amazonaws.com"
    event["requestContext"] |= {"accountId": "012345678912", "domainName": domain}
    return event


def request_headers(scope: Mapping[str, Any]) -> list[tuple[str, str]]:
    """The caller's headers, names in lower case, and what every front adds to them."""
    added = {
        "x-forwarded-for": (scope.get("client") or ("127.0.0.1", 0))[0],
        "x-forwarded-port": str((scope.get("server") or ("", 80))[1]),
        "x-forwarded-proto": scope.get("scheme", "http"),
        "x-amzn-trace-id": f"Root=1-{int(time.time()):08x}-{uuid.uuid4().hex[:24]}",
    }
    named = ((name.decode("latin-1").lower(), value.decode("latin-1")) for name, value in scope["headers"])
    return [(name, value) for name, value in named if name not in HOP_BY_HOP and name not in added] + [*added.items()]


def path_of(scope: Mapping[str, Any]) -> str:
    """The path as it was sent, not decoded."""
    return str((scope.get("raw_path") or scope["path"].encode()).decode("latin-1"))


def body_of(body: bytes, headers: Mapping[str, str]) -> dict[str, Any]:
    """A body travels as text if its type says text and it is text, else as base64; none is not mentioned."""
    if not body:
        return {}
    if _TEXT.match(headers.get("content-type", "").lower()):
        try:
            return {"body": body.decode(), "isBase64Encoded": False}
        except UnicodeDecodeError:
            pass
    return {"body": b64encode(body).decode(), "isBase64Encoded": True}
