"""The order of events in one run: if it opens or closes something, it lives here.

1. RUN_STARTED comes first, and exactly one of RUN_FINISHED and RUN_ERROR comes last.
2. At most one text message is open. Text for another message closes it first.
3. A message opens with its first piece of text: no empty messages, no empty deltas.
4. Whatever is open is closed before the terminal event, on every way out.

Pure logic: methods return the bytes to send, and nothing here knows HTTP, models or tables.
Rules: AG-UI 1.0, events/lifecycle and events/text-messages, and what the official client enforces.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Protocol

PROTOCOL_VERSION = "1.0"


class Encoder(Protocol):
    """A wire format."""

    media_type: str

    def encode(self, event: Mapping[str, Any]) -> bytes: ...
    def delta_encoder(self, event_type: str, id_member: str, id_value: str) -> Callable[[str], bytes]: ...


class EventStream:
    """The events of one run, as bytes of `encoder`'s format."""

    def __init__(self, encoder: Encoder, thread_id: str, run_id: str) -> None:
        self._encode = encoder.encode
        self._delta_encoder = encoder.delta_encoder
        self._ids = {"threadId": thread_id, "runId": run_id}
        self._text_id: str | None = None
        self._encode_text: Callable[[str], bytes] | None = None
        self.ended = False
        """Whether the terminal event was made."""

    def started(self, parent_run_id: str | None = None) -> bytes:
        event = {"type": "RUN_STARTED", **self._ids, "protocolVersion": PROTOCOL_VERSION}
        return self._encode({**event, "parentRunId": parent_run_id} if parent_run_id else event)

    def text(self, message_id: str, delta: str) -> bytes:
        """A piece of an assistant message; opens it if this is its first."""
        if not delta:
            return b""
        if message_id == self._text_id and self._encode_text is not None:
            return self._encode_text(delta)
        closing = self.close()
        self._text_id = message_id
        self._encode_text = self._delta_encoder("TEXT_MESSAGE_CONTENT", "messageId", message_id)
        opening = self._encode({"type": "TEXT_MESSAGE_START", "messageId": message_id, "role": "assistant"})
        return closing + opening + self._encode_text(delta)

    def close(self) -> bytes:
        """Closes whatever is open; nothing if nothing is."""
        if self._text_id is None:
            return b""
        event = {"type": "TEXT_MESSAGE_END", "messageId": self._text_id}
        self._text_id = self._encode_text = None
        return self._encode(event)

    def finished(self, usage: Sequence[Mapping[str, Any]] = ()) -> bytes:
        """The end of a run that succeeded. `usage`: TokenUsage objects, one per provider and model."""
        event = {"type": "RUN_FINISHED", **self._ids, "outcome": {"type": "success"}}
        return self._end({**event, "usage": list(usage)} if usage else event)

    def failed(self, code: str, message: str) -> bytes:
        """The end of a run that failed. `message` is for a person and holds no details of the failure."""
        return self._end({"type": "RUN_ERROR", "code": code, "message": message})

    def _end(self, event: Mapping[str, Any]) -> bytes:
        assert not self.ended, "a run has one terminal event"
        closing = self.close()
        self.ended = True
        return closing + self._encode(event)
