"""Which messages a thread consists of when a client's list meets the stored one.

Pure logic. Clients send the whole history each time, only what is new, a trimmed tail, or nothing; the list itself
tells which (AG-UI, basic/run-input; the rule is ours where the protocol knows no stored thread).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Literal

Message = dict[str, Any]
History = Literal["auto", "client", "server"]
"""Whose list of messages counts: told from the list itself, always the client's, or the stored one and what is new."""


def merge(stored: Sequence[Message], sent: Sequence[Message], history: History = "auto") -> tuple[int, list[Message]]:
    """How many of the stored messages stay, counted from the first, and which messages follow them.

    With `history="client"` every list is read by rule 1, with `"server"` by rule 2 (known ids are passed over).

    1. The whole history (its first message is the stored thread's first): the client's list is the thread. What it
       edited or left out is gone, and everything stored behind that.
    2. Only new messages (no id is known): they are appended.
    3. A tail (ids are known, but not the first): what is new in it is appended. A tail without anything new that ends
       before the stored thread does asks for a new answer at that point.
    4. Nothing: the stored thread goes on.

    Instructions (system, developer) do not count as the first message, since clients add and drop them freely.
    """
    sent = _unique(sent)
    positions = {message["id"]: index for index, message in enumerate(stored)}
    if history == "client" or (history == "auto" and stored and sent and _first_id(sent) == _first_id(stored)):
        kept = 0
        while kept < min(len(stored), len(sent)) and same(stored[kept], sent[kept]):
            kept += 1
        return kept, list(sent[kept:])
    new = [message for message in sent if message["id"] not in positions]
    known = [positions[message["id"]] for message in sent if message["id"] in positions]
    if known and not new and history == "auto":
        return max(known) + 1, []
    return len(stored), new


def same(stored: Message, sent: Message) -> bool:
    """Whether a client's copy of a message is the stored one: the same id, role and content.

    What clients keep differently (a name, metadata, an empty content against none) makes no other message.
    """
    return stored["id"] == sent["id"] and all(
        (stored.get(member) or None) == (sent.get(member) or None)
        for member in ("role", "content", "toolCalls", "toolCallId")
    )


def _first_id(messages: Sequence[Message]) -> str | None:
    return next((message["id"] for message in messages if message["role"] not in ("system", "developer")), None)


def _unique(messages: Sequence[Message]) -> list[Message]:
    """The first of each id: a list that repeats itself must not double the thread."""
    first: dict[str, Message] = {}
    for message in messages:
        first.setdefault(message["id"], message)
    return list(first.values())
