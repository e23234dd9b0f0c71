"""Events as a function URL makes them, for programs that are handed events directly."""

from __future__ import annotations

import json

from local.event import event_of


def event(target: str, method: str = "GET") -> bytes:
    """The event of a request for `target`, a path with or without a query."""
    path, _, query = target.partition("?")
    scope = {"method": method, "path": path, "query_string": query.encode(), "headers": []}
    document = event_of(scope, b"", url_id="abcdef", region="us-east-1", request_id="of-the-front")
    return json.dumps(document).encode()
