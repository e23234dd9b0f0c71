"""Agents of an official AG-UI client, as a test uses them; `agent.mjs` is their other half.

Every stream that a client was given is checked here, against the wire rules and with `ag-ui-validate`.
"""

from __future__ import annotations

import asyncio
import itertools
import json
import uuid
from collections.abc import Generator, Mapping
from typing import Any

from ag_ui_validate.pytest_plugin import assert_valid_agui

from tests.clients.node import JSON, NodeProgram


def user(content: Any) -> JSON:
    return {"id": f"user-{uuid.uuid4()}", "role": "user", "content": content}


class Client:
    """One version of the client. `agent` makes an agent for a thread, a new one if none is named."""

    def __init__(self, program: NodeProgram, url: str, headers: Mapping[str, str]) -> None:
        self._program = program
        self._url = url
        self._headers = dict(headers)
        self._names = map("agent-{}".format, itertools.count(1))

    async def agent(self, thread: str | None = None, headers: Mapping[str, str] | None = None) -> Agent:
        name, thread = next(self._names), thread or str(uuid.uuid4())
        sent = self._headers if headers is None else dict(headers)
        await self._program.request({"open": name, "url": self._url, "thread": thread, "headers": sent})
        return Agent(self._program, name, thread)


class Agent:
    """`run` sends what the agent has, with new messages behind; `run_only` sends these messages and no others;
    `run_body` sends this text, for what the client itself would not let out.

    All of them start the run; `await` the Run for its end.
    """

    def __init__(self, program: NodeProgram, name: str, thread: str) -> None:
        self.thread = thread
        self._program = program
        self._name = name

    def run(self, *new: JSON) -> Run:
        return Run(self._program, {"run": self._name, "add": new})

    def run_only(self, *messages: JSON) -> Run:
        return Run(self._program, {"run": self._name, "set": messages})

    def run_body(self, body: str) -> Run:
        return Run(self._program, {"run": self._name, "body": body})


class Run:
    """`events` are those that the client has reported so far.

    Known at the end: the client's `messages`; its `error` (`message`, `status`, `payload`) if it rejected; the
    answer's `status`, content `type` and `body` as it was sent.
    """

    def __init__(self, program: NodeProgram, command: JSON) -> None:
        self.events: list[JSON] = []
        self.messages: list[JSON] = []
        self.error: JSON | None = None
        self.status = 0
        self.type = ""
        self.body = ""
        self._program = program
        self._reported = asyncio.Event()
        self._over = asyncio.create_task(self._run(command))

    async def _run(self, command: JSON) -> None:
        for name, value in (await self._program.request(command, self._on_event)).items():
            setattr(self, name, value)
        if self.status == 200:
            check_stream(self.type, self.body)

    def _on_event(self, event: JSON) -> None:
        self.events.append(event)
        self._reported.set()

    def __await__(self) -> Generator[Any, None, Run]:
        yield from self._over.__await__()
        return self

    async def reported(self, type: str, number: int = 1) -> None:
        """Returns when the client has reported this many events of the type, whatever is still to come."""
        while self.types.count(type) < number:
            assert not self._over.done(), f"the run ended with {self.types}"
            self._reported.clear()
            waiting = asyncio.create_task(self._reported.wait())
            await asyncio.wait({waiting, self._over}, return_when=asyncio.FIRST_COMPLETED)
            waiting.cancel()

    @property
    def types(self) -> list[str]:
        return [event["type"] for event in self.events]

    @property
    def deltas(self) -> list[str]:
        return [event["delta"] for event in self.events if event["type"] == "TEXT_MESSAGE_CONTENT"]

    @property
    def conversation(self) -> list[tuple[str, Any]]:
        """The client's messages as (role, content)."""
        return [(message["role"], message.get("content")) for message in self.messages]


def check_stream(type: str, body: str) -> None:
    """The wire rules that the strictest client wants (AG-UI 1.0, transports/http-sse), then those of the events."""
    assert type == "text/event-stream"
    assert "\r" not in body
    *frames, rest = body.split("\n\n")
    assert rest == ""
    events = [frame for frame in frames if not frame.startswith(":")]
    assert all(event.startswith("data: ") and "\n" not in event for event in events)
    # No exceptions: nothing that is sent today is legal in AG-UI 1.0 and unknown to the validator's older rules.
    assert_valid_agui([json.loads(event.removeprefix("data: ")) for event in events], max_warnings=0)
