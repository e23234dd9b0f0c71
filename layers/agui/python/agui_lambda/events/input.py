"""Reads a RunAgentInput: strict about what the protocol names, lenient about what it does not.

A member, role or content part that AG-UI 1.0 does not know is left out with a log line and the run goes on; a known
one of the wrong shape is refused. Old peers' shapes are made new here and nowhere else.
Rules: AG-UI 1.0, basic/run-input and basic/processing.
"""

from __future__ import annotations

import json
import logging
from dataclasses import dataclass, field
from http import HTTPStatus
from typing import Any

from ag_ui.core import RunAgentInput
from pydantic import ValidationError

from agui_lambda.errors import RequestError

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
    for name in [name for name in document if name not in KNOWN]:
        logger.warning("the input has an unknown member %r", name[:100])
        del document[name]
    messages = document.get("messages")
    if isinstance(messages, list):
        document["messages"] = [message for message in map(_message, messages) if message is not None]
    try:
        # Only to check: the models would cost more to write out again than all the rest of a turn.
        RunAgentInput.model_validate(document)
    except ValidationError as invalid:
        raise _refusal(invalid) from None
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


def _parse(body: bytes) -> JSON:
    try:
        document = json.loads(body, parse_constant=_refuse_constant)
    except (ValueError, RecursionError) as error:
        reason = "it is nested too deeply" if isinstance(error, RecursionError) else str(error)
        raise RequestError(HTTPStatus.BAD_REQUEST, "INVALID_JSON", f"The body is not JSON: {reason[:200]}") from None
    if not isinstance(document, dict):
        raise RequestError(HTTPStatus.UNPROCESSABLE_ENTITY, "INVALID_INPUT", "The body is not a JSON object.", field="")
    return document


def _refuse_constant(name: str) -> None:
    raise ValueError(f"{name} is no JSON number")


def _message(message: Any) -> Any:
    """The message with what we know; None for one of an unknown kind. What is no message is left to the validation."""
    if not isinstance(message, dict) or not isinstance(role := message.get("role"), str):
        return message
    if role not in _MESSAGE:
        logger.warning("a message has the unknown role %r", role[:100])
        return None
    known = {name: value for name, value in message.items() if value is not None and name in _MESSAGE[role]}
    if dropped := [name for name in message if name not in _MESSAGE[role]]:
        logger.warning("a message has unknown members: %r", dropped[:10])
    if isinstance(parts := known.get("content"), list) and role in ("user", "tool"):
        known["content"] = [part for part in map(_part, parts) if part is not None]
    return known


def _part(part: Any) -> Any:
    if not isinstance(part, dict) or not isinstance(kind := part.get("type"), str):
        return part
    if kind == "binary":
        return _from_binary(part)
    if kind not in _PART:
        logger.warning("a message has a part of the unknown type %r", kind[:100])
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


def _refusal(invalid: ValidationError) -> RequestError:
    """The complaint that goes deepest, with the path of the member as `messages.0.content`.

    A union complains once per arm, and the arm that was meant got furthest.
    """
    errors = invalid.errors(include_url=False, include_input=False, include_context=False)
    path, reason = max(((_path(error["loc"]), error["msg"]) for error in errors), key=lambda pair: pair[0].count("."))
    return RequestError(
        HTTPStatus.UNPROCESSABLE_ENTITY, "INVALID_INPUT", f"{path or 'The input'}: {reason[:300]}", field=path
    )


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
