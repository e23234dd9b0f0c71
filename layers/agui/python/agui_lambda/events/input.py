"""Reads a RunAgentInput: strict about what the protocol names, lenient about what it does not.

A member, role or content part that AG-UI 1.0 does not know is left out with a log line and the run goes on; a known
one of the wrong shape is refused. Old peers' shapes are made new here and nowhere else.
Rules: AG-UI 1.0, basic/run-input and basic/processing.
"""

from __future__ import annotations

import json
import logging
import math
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from http import HTTPStatus
from typing import Any

from ag_ui.core import Message, RunAgentInput
from pydantic import TypeAdapter, ValidationError

from agui_lambda.errors import RequestError
from agui_lambda.events.stream import PROTOCOL_VERSION

logger = logging.getLogger(__name__)

JSON = dict[str, Any]

KNOWN = frozenset(
    "threadId runId protocolVersion parentRunId state messages tools context forwardedProps resume".split()
)
_COMMON = frozenset("id role metadata subagentRunId".split())
_MESSAGE = {
    "developer": _COMMON | {"content", "name", "encryptedValue"},
    "system": _COMMON | {"content", "name", "encryptedValue"},
    "user": _COMMON | {"content", "name", "encryptedValue"},
    "assistant": _COMMON | {"content", "name", "toolCalls", "encryptedValue"},
    "tool": _COMMON | {"content", "toolCallId", "error", "encryptedValue"},
    "reasoning": _COMMON | {"content", "encryptedValue"},
    "activity": _COMMON | {"activityType", "content"},
}
_MEDIA = frozenset({"type", "source", "metadata", "id"})
_PART = {
    "text": frozenset({"type", "text", "id", "metadata"}),
    "image": _MEDIA,
    "audio": _MEDIA,
    "video": _MEDIA,
    "document": _MEDIA,
}


_MESSAGES: TypeAdapter[Any] = TypeAdapter(list[Message])
AT_ONCE = 50
"""Messages that are checked together: some cost little more than one, but each can make a thousand complaints."""

LIMITS = {"messages": 10_000, "tools": 1_000, "context": 1_000, "resume": 1_000}
"""Items of one input."""
MOST_PARTS = 1_000
"""Content parts of one message."""


@dataclass(frozen=True, slots=True)
class RunInput:
    """A RunAgentInput that was checked. Messages and the rest stay plain JSON with camelCase members."""

    thread_id: str
    run_id: str
    messages: list[JSON]
    parent_run_id: str | None = None
    protocol_version: str | None = None
    """None: the peer is older than AG-UI 1.0."""
    state: Any = None
    tools: list[JSON] = field(default_factory=list)
    context: list[JSON] = field(default_factory=list)
    forwarded_props: Any = None
    resume: list[JSON] = field(default_factory=list)


def read_input(body: bytes) -> RunInput:
    """The input in `body` (JSON, UTF-8). Raises RequestError: 400 when it is not JSON, 422 when it is no
    RunAgentInput, with the member to blame in `field`."""
    document = {name: value for name, value in _parse(body).items() if value is not None}
    strange = _Strange()
    for name in [name for name in document if name not in KNOWN]:
        strange.add("member", name)
        del document[name]
    for name, most in LIMITS.items():
        _check_list(name, document.get(name, []), most)
    if "messages" in document:
        document["messages"] = _messages(document["messages"], strange)
    strange.log()
    # The models only check: to write them out again would cost more than all the rest of a turn.
    _validate(RunAgentInput.model_validate, {**document, "messages": []} if "messages" in document else document)
    return RunInput(
        thread_id=document["threadId"],
        run_id=document["runId"],
        messages=document["messages"],
        parent_run_id=document.get("parentRunId"),
        protocol_version=document.get("protocolVersion"),
        state=document.get("state"),
        tools=document.get("tools", []),
        context=document.get("context", []),
        forwarded_props=document.get("forwardedProps"),
        resume=document.get("resume", []),
    )


class _Strange:
    """What the protocol does not know of an input, for one line in the log however much of it there is."""

    def __init__(self) -> None:
        self._names: Counter[str] = Counter()

    def add(self, kind: str, name: str) -> None:
        if len(self._names) < 10 or f"{kind} {name[:50]!r}" in self._names:
            self._names[f"{kind} {name[:50]!r}"] += 1

    def log(self) -> None:
        if self._names:
            found = ", ".join(f"{name} ({count} times)" for name, count in self._names.items())
            logger.warning("the input has what AG-UI %s does not know: %s", PROTOCOL_VERSION, found)


def _parse(body: bytes) -> JSON:
    try:
        document = json.loads(body.decode(), parse_constant=_refuse_constant, parse_float=_finite)
    except (ValueError, RecursionError) as error:
        reason = "it is nested too deeply" if isinstance(error, RecursionError) else str(error)
        raise RequestError(HTTPStatus.BAD_REQUEST, "INVALID_JSON", f"The body is not JSON: {reason[:200]}") from None
    if not isinstance(document, dict):
        raise _refused("", "The body is not a JSON object.")
    return document


def _refuse_constant(name: str) -> None:
    raise ValueError(f"{name} is no JSON number")


def _finite(number: str) -> float:
    value = float(number)
    if math.isinf(value):
        raise ValueError(f"{number[:50]} is too large a number")
    return value


def _check_list(path: str, items: Any, most: int) -> None:
    """Before the models do, which would complain of each of a million wrong items, at a gigabyte of memory."""
    if not isinstance(items, list):
        raise _refused(path, "must be a list")
    if len(items) > most:
        raise _refused(path, f"has {len(items)} items; {most} are the most")
    for n, item in enumerate(items):
        if not isinstance(item, dict):
            raise _refused(f"{path}.{n}", "must be an object")


def _messages(sent: list[JSON], strange: _Strange) -> list[JSON]:
    """The messages of known kinds, with what we know of them. Raises RequestError for the first that is malformed."""
    known: list[JSON] = []
    positions: list[int] = []
    for position, raw in enumerate(sent):
        if message := _message(raw, f"messages.{position}", strange):
            known.append(message)
            positions.append(position)
    for start in range(0, len(known), AT_ONCE):
        _validate(_MESSAGES.validate_python, known[start : start + AT_ONCE], "messages", positions[start:])
    return known


def _message(message: JSON, path: str, strange: _Strange) -> JSON | None:
    role = message.get("role")
    if not isinstance(role, str):
        raise _refused(f"{path}.role", "must be a string")
    if role not in _MESSAGE:
        strange.add("role", role)
        return None
    known = {name: value for name, value in message.items() if value is not None and name in _MESSAGE[role]}
    for name in message:
        if name not in _MESSAGE[role]:
            strange.add("member", name)
    if isinstance(parts := known.get("content"), list) and role in ("user", "tool"):
        _check_list(f"{path}.content", parts, MOST_PARTS)
        known["content"] = [part for sent in parts if (part := _part(sent, strange))]
    return known


def _part(part: JSON, strange: _Strange) -> JSON | None:
    kind = part.get("type")
    if not isinstance(kind, str):
        return part  # for the model to complain of
    if kind == "binary":
        return _from_binary(part)
    if kind not in _PART:
        strange.add("part", kind)
        return None
    return {name: value for name, value in part.items() if name in _PART[kind]}


def _from_binary(part: JSON) -> JSON:
    """The deprecated `binary` part of clients before 1.0, as the part that replaced it."""
    mime_type = part.get("mimeType")
    family = str(mime_type).partition("/")[0]
    source: JSON = {"mimeType": mime_type} if mime_type else {}
    for member, source_type in (("data", "data"), ("url", "url"), ("id", "file")):
        if part.get(member):
            source |= {"type": source_type, "value": part[member]}
            break
    return {"type": family if family in ("image", "audio", "video") else "document", "source": source}


def _validate(check: Callable[[Any], object], value: Any, path: str = "", positions: Sequence[int] = ()) -> None:
    """Raises RequestError for the complaint that goes deepest: a union complains once per arm, and the arm that was
    meant got furthest. `positions`: where the items of `value` stand in the list at `path`."""
    try:
        check(value)
    except ValidationError as invalid:
        errors = invalid.errors(include_url=False, include_input=False, include_context=False)
        located = [(error["loc"], error["msg"]) for error in errors]
        if positions:
            first = min(int(location[0]) for location, _ in located)
            located = [((positions[first], *rest), message) for (n, *rest), message in located if n == first]
        found = max(((_path(location), message) for location, message in located), key=lambda pair: pair[0].count("."))
        raise _refused(".".join(filter(None, (path, found[0]))), found[1]) from None


def _refused(path: str, reason: str) -> RequestError:
    message = f"{path}: {reason}" if path else reason
    return RequestError(HTTPStatus.UNPROCESSABLE_ENTITY, "INVALID_INPUT", message[:400], field=path)


def _path(location: tuple[int | str, ...]) -> str:
    """`messages.0.content`: without the names of union arms, which the wire does not know."""
    path: list[str] = []
    previous: int | str = ""
    for step in location:
        chosen = isinstance(previous, int) or previous in ("content", "source")
        if isinstance(step, int) or (step.isidentifier() and not (chosen and step in _ARMS)):
            path.append(str(step))
        previous = step
    return ".".join(path)


_ARMS = {*_MESSAGE, *_PART, "str", "data", "url", "file"}
