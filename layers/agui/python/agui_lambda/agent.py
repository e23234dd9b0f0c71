"""What a user declares: an agent. Nothing here does anything; `run/` does."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from agui_lambda.threads.merge import History


@dataclass(frozen=True)
class Agent:
    """An agent: a name, instructions, and the model that follows them.

    name: what front ends show; also the `name` under which it is listed.
    instructions: the system prompt; always first in the model's request, and never sent to the client.
    model: the model's name at the provider; None takes `OPENAI_MODEL` from the environment.
    model_options: further members of the Chat Completions request, for example `{"temperature": 0.2}`.
    model_timeout: seconds of silence after which the model is given up, before its first byte and between two.
    history: whose list of messages counts. `auto` tells whole histories, tails and new messages apart by their ids;
    with `client` the list in the request is always the whole conversation; with `server` the stored thread is, and
    a request can only add to it.
    """

    name: str
    instructions: str = ""
    model: str | None = None
    model_options: Mapping[str, Any] = field(default_factory=dict)
    model_timeout: float = 60.0
    history: History = "auto"
