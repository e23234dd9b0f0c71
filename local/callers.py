"""Who may call a function on a laptop: pages of this machine under its own names, and those that you list.

There is often no token here, and any web page that is open in the browser can reach 127.0.0.1. Without the header it
needs no CORS to have a run started, so a foreign page is refused before the function is invoked. AWS does not do this.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any

# Safe because a page of these origins is served by this machine. ":*" is any port, or none.
LOOPBACK = ("http://localhost:*", "http://127.0.0.1:*", "http://[::1]:*")

_ORIGIN = re.compile(r"\*|null|[a-z][a-z0-9+.-]*://(\[[0-9a-fA-F:.]+\]|[^\s/?#:@\[\]]+)(:(\d+|\*))?")


def is_origin(text: str) -> bool:
    """Whether it can be listed: "https://example.com", "http://localhost:*" for any port, "null" (a file), or "*"."""
    return _ORIGIN.fullmatch(text) is not None


def allows(origins: Sequence[str], origin: str) -> bool:
    """Whether a page of `origin`, as a browser sends it, may call."""
    return any(listed in ("*", origin) or _of_any_port(listed, origin) for listed in origins)


def _of_any_port(listed: str, origin: str) -> bool:
    host = listed.removesuffix(":*")
    return host != listed and re.fullmatch(re.escape(host) + r"(:\d+)?", origin) is not None


def refusal(origins: Sequence[str], scope: Mapping[str, Any]) -> str | None:
    """Why a request (an ASGI scope) is not for the function; None if it is.

    By its `Host`, a name that an attacker points at 127.0.0.1 after the page was loaded (DNS rebinding) is told apart:
    for the browser that page is of the same origin. A caller that sends neither header is no browser.
    """
    headers = dict(scope["headers"])
    host = headers.get(b"host", b"").decode("latin-1")
    origin = headers.get(b"origin", b"").decode("latin-1")
    names = {_name(listed.partition("://")[2]) for listed in (*LOOPBACK, *origins)}
    if host and "*" not in origins and _name(host) not in names:
        return f"{host!a} is not a name of this machine. If it is yours, allow it: --cors-origin https://NAME"
    if origin and not allows(origins, origin):
        return f"Pages of {origin!a} may not call this function. To allow them: --cors-origin ORIGIN (CORS_ORIGIN)"
    return None


def _name(host: str) -> str:
    """A host without its port."""
    return re.sub(r":(\d*|\*)$", "", host.lower())
