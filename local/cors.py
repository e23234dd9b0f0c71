"""CORS as a function URL's own configuration does it: the front answers preflights and marks every answer.

So an error that the app never saw (413, 429, 502) reaches a script in a browser as what it is. Protocol:
https://fetch.spec.whatwg.org/#http-cors-protocol; configuration:
https://docs.aws.amazon.com/lambda/latest/dg/urls-configuration.html#urls-cors
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from local.invocation import Headers


@dataclass(frozen=True)
class Cors:
    """`Cors` of a function URL. `max_age` is in seconds.

    `allow_origins` are whole origins ("https://example.com") or "*". Methods and headers: whatever a script asks
    for is allowed. Raises ValueError for "*" together with credentials, which browsers refuse.
    """

    allow_origins: Sequence[str] = ("*",)
    expose_headers: Sequence[str] = ("x-amzn-requestid", "www-authenticate", "retry-after")
    allow_credentials: bool = False
    max_age: int = 600

    def __post_init__(self) -> None:
        if self.allow_credentials and "*" in self.allow_origins:
            raise ValueError('allow_origins "*" cannot be combined with allow_credentials')

    def is_preflight(self, scope: Mapping[str, Any]) -> bool:
        """An OPTIONS request that a browser sends ahead of another; any other OPTIONS is the function's."""
        asks = _header(scope, b"origin") and _header(scope, b"access-control-request-method")
        return scope["method"] == "OPTIONS" and bool(asks)

    def apply(self, scope: Mapping[str, Any], headers: Headers) -> Headers:
        """The response headers with CORS added for an allowed origin, in place of the app's own of the same name."""
        origin = _header(scope, b"origin")
        anyone = "*" in self.allow_origins
        added: Headers = []
        if origin and (anyone or origin.decode("latin-1") in self.allow_origins):
            added.append((b"access-control-allow-origin", b"*" if anyone else origin))
            if self.allow_credentials:
                added.append((b"access-control-allow-credentials", b"true"))
            if self.is_preflight(scope):
                added.append((b"access-control-allow-methods", b"GET, HEAD, POST, PUT, PATCH, DELETE"))
                # Not "*": a browser does not take that for Authorization.
                if asked := _header(scope, b"access-control-request-headers"):
                    added.append((b"access-control-allow-headers", asked))
                added.append((b"access-control-max-age", str(self.max_age).encode()))
            elif self.expose_headers:
                added.append((b"access-control-expose-headers", ", ".join(self.expose_headers).encode()))
        replaced = {name for name, _ in added}
        kept = [(name, value) for name, value in headers if name.lower() not in replaced]
        vary: Headers = [] if anyone else [(b"vary", b"Origin")]
        return kept + added + vary


def _header(scope: Mapping[str, Any], name: bytes) -> bytes:
    return next((bytes(value) for key, value in scope["headers"] if key == name), b"")
