"""A run as the client saw it: which event arrived when, and whether it is the whole answer that was asked for."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass

from bench.client import Exchange
from bench.programs.model import script

CONTENT = b'data: {"type":"TEXT_MESSAGE_CONTENT"'
FIRST = b'data: {"type":"RUN_STARTED"'
LAST = b'data: {"type":"RUN_FINISHED"'


class WrongAnswer(Exception):
    """A subject did not answer what it should have: its figures would mean nothing."""


@dataclass(frozen=True)
class Answer:
    """Times are nanoseconds of CLOCK_MONOTONIC. `content` holds arrival and text of each content event."""

    sent: int
    started: int
    """Arrival of RUN_STARTED."""
    content: list[tuple[int, str]]

    @property
    def asked(self) -> int:
        """When the model had read its request: its first token says so."""
        return int(self.content[0][1])


Post = Callable[[bytes], Exchange]
"""Sends the body of a request to a subject, and brings its answer."""


def ask(post: Post, thread: str, tokens: int, pause: float | None = None, history: int = 0) -> Answer:
    """One run, in which the model sends `tokens` tokens (see `model.script`).

    `history` is the number of messages that the request carries before the new one. Raises WrongAnswer.
    """
    return _read(post(run_input(thread, script(tokens, pause), history)), tokens)


def run_input(thread: str, text: str, history: int = 0) -> bytes:
    """A RunAgentInput whose messages take turns, with a few sentences in each, and end with `text`."""
    messages = [
        {"id": f"{thread}-{number}", "role": ("user", "assistant")[number % 2], "content": f"{number}. {_SENTENCES}"}
        for number in range(history)
    ]
    messages.append({"id": f"{thread}-{history}", "role": "user", "content": text})
    document = {
        "threadId": thread,
        "runId": f"{thread}-run",
        "messages": messages,
        "tools": [],
        "context": [],
        "state": {},
        "forwardedProps": {},
    }
    return json.dumps(document, separators=(",", ":")).encode()


_SENTENCES = "A message of usual length has two or three sentences. This one is no exception, and it ends here."


def _read(reply: Exchange, tokens: int) -> Answer:
    frames: list[tuple[int, bytes]] = []
    rest = b""
    for arrival, piece in reply.body:
        *whole, rest = (rest + piece).split(b"\n\n")
        frames += [(arrival, frame) for frame in whole]
    content = [(arrival, frame) for arrival, frame in frames if frame.startswith(CONTENT)]
    if not frames or not frames[0][1].startswith(FIRST) or not frames[-1][1].startswith(LAST):
        raise WrongAnswer(f"{reply.status} {b''.join(piece for _, piece in reply.body)[-500:]!r}")
    if len(content) != tokens:
        raise WrongAnswer(f"{len(content)} content events instead of {tokens}")
    return Answer(
        sent=reply.sent,
        started=frames[0][0],
        content=[(arrival, json.loads(frame.removeprefix(b"data: "))["delta"]) for arrival, frame in content],
    )
