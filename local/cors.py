"""CORS as a function URL's own configuration does it: the front answers preflights and marks every answer.

So an error that the app never saw (413, 429, 502) reaches a script in a browser as what it is. Protocol:
https://fetch.spec.whatwg.org/#http-cors-protocol; configuration:
https://docs.aws.amazon.com/lambda/latest/dg/urls-configuration.html#urls-cors
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from local import callers
from local.invocation import Headers


@dataclass(frozen=True)
class Cors:
    """`Cors` of a function URL. `max_age` is in seconds.

    `allow_origins` are whole origins ("https://example.com"), those of any port ("http://localhost:*"), which AWS does
    not know, or "*". Methods and headers are those of template.yaml, so that what works here works there; "*" allows
    whatever a script asks for. Raises ValueError for the origin "*" together with credentials, which browsers refuse.
    """

    allow_origins: Sequence[str] = callers.LOOPBACK
    allow_methods: Sequence[str] = ("GET", "POST")
    allow_headers: Sequence[str] = ("authorization", "content-type", "accept", "x-requested-with")
    expose_headers: Sequence[str] = ("www-authenticate", "x-amzn-requestid")
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
        if origin and callers.allows(self.allow_origins, origin.decode("latin-1")):
            added.append((b"access-control-allow-origin", b"*" if anyone else origin))
            if self.allow_credentials:
                added.append((b"access-control-allow-credentials", b"true"))
            if self.is_preflight(scope):
                asked = _header(scope, b"access-control-request-method")
                added.append((b"access-control-allow-methods", _listed(self.allow_methods, asked)))
                asked = _header(scope, b"access-control-request-headers")
                added.append((b"access-control-allow-headers", _listed(self.allow_headers, asked)))
                added.append((b"access-control-max-age", str(self.max_age).encode()))
            elif self.expose_headers:
                added.append((b"access-control-expose-headers", ", ".join(self.expose_headers).encode()))
        replaced = {name for name, _ in added}
        kept = [(name, value) for name, value in headers if name.lower() not in replaced]
        vary: Headers = [] if anyone else [(b"vary", b"Origin")]
        return kept + added + vary


def _listed(names: Sequence[str], asked: bytes) -> bytes:
    # Never "*" itself: a browser does not take that for Authorization.
    return asked if "*" in names else ", ".join(names).encode()


def _header(scope: Mapping[str, Any], name: bytes) -> bytes:
    return next((bytes(value) for key, value in scope["headers"] if key == name), b"")
