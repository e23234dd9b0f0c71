"""Server-sent events: how AG-UI events become bytes.

Only framing and JSON; which event may follow which is in `stream.py`. Frames end in LF LF, one event each, because
the official client splits there and nowhere else. JSON is written in ASCII: a lone surrogate, which a provider can
make by cutting an emoji in two, then travels unharmed and is whole again at the client.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from json.encoder import encode_basestring_ascii as quote
from typing import Any


class SSEEncoder:
    """Writes events as `data: {json}` frames (AG-UI specification, HTTP + SSE transport)."""

    media_type = "text/event-stream"

    def encode(self, event: Mapping[str, Any]) -> bytes:
        """One event, with camelCase members; a member without a value must be left out, not None."""
        return b"data: %b\n\n" % json.dumps(event, separators=(",", ":"), allow_nan=False).encode("ascii")

    def delta_encoder(self, event_type: str, id_member: str, id_value: str) -> Callable[[str], bytes]:
        """A function from delta to frame for the one event that comes by the thousand.

        The frame's beginning is made once per message: this costs a fiftieth of building and encoding a model.
        """
        prefix = f'data: {{"type":{quote(event_type)},{quote(id_member)}:{quote(id_value)},"delta":'

        def encode_delta(delta: str) -> bytes:
            return f"{prefix}{quote(delta)}}}\n\n".encode("ascii")

        return encode_delta
