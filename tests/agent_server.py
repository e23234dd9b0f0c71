"""An app with agents, served over real HTTP on loopback, with a scripted model and a table of its own.

async with agent_server(Agent(name="a")) as served:
    served.model.reply(say("Hi"), fin())
    answer = await served.run(user("hello"))
    assert answer.text == "Hi"
"""

import asyncio
import itertools
import json
import time
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager
from dataclasses import dataclass, field
from typing import Any

import aiohttp
import boto3
import pytest
from moto import mock_aws

from agui_lambda import Agent, create_app
from local.child import LoopbackServer, listen
from tests.model_server import ModelServer, fin, say

TABLE = "threads"


@dataclass
class Answer:
    """A whole answer: `arrivals` holds (seconds since the request, bytes) as they were read."""

    status: int
    headers: dict[str, str]
    arrivals: list[tuple[float, bytes]] = field(default_factory=list)

    @property
    def body(self) -> bytes:
        return b"".join(data for _, data in self.arrivals)

    @property
    def json(self) -> Any:
        return json.loads(self.body)

    @property
    def events(self) -> list[dict[str, Any]]:
        """Every frame must be one `data:` line: what the strictest client takes."""
        frames = self.body.decode().split("\n\n")
        assert frames.pop() == ""
        assert all(frame.startswith("data: ") and "\n" not in frame for frame in frames)
        return [json.loads(frame.removeprefix("data: ")) for frame in frames]

    @property
    def types(self) -> list[str]:
        """The events' types, runs of content as one."""
        return [kind for kind, _ in itertools.groupby(event["type"] for event in self.events)]

    @property
    def text(self) -> str:
        return "".join(event["delta"] for event in self.events if event["type"] == "TEXT_MESSAGE_CONTENT")


def user(content: Any, id: str = "") -> dict[str, Any]:
    return {"id": id or f"m-{content}"[:40], "role": "user", "content": content}


def assistant(content: Any, id: str) -> dict[str, Any]:
    return {"id": id, "role": "assistant", "content": content}


class AgentServer:
    """What is served: `url`, and its `model`."""

    def __init__(self, url: str, model: ModelServer, session: aiohttp.ClientSession) -> None:
        self.url = url
        self.model = model
        self.session = session
        self._runs = itertools.count(1)

    async def run(self, *messages: dict[str, Any], thread: str = "t1", **members: Any) -> Answer:
        """One run, read to its end."""
        return await self.post(self.input(*messages, thread=thread, **members))

    def input(self, *messages: dict[str, Any], thread: str = "t1", **members: Any) -> dict[str, Any]:
        return {"threadId": thread, "runId": f"r{next(self._runs)}", "messages": list(messages), **members}

    async def post(self, body: Any, path: str = "", **headers: str) -> Answer:
        data = body if isinstance(body, bytes) else json.dumps(body).encode()
        started = time.monotonic()
        async with self.session.post(
            self.url + path, data=data, headers={"Content-Type": "application/json", **headers}
        ) as response:
            answer = Answer(response.status, {name.lower(): value for name, value in response.headers.items()})
            async for piece in response.content.iter_any():
                answer.arrivals.append((time.monotonic() - started, piece))
        return answer

    async def kept(self) -> list[tuple[str, Any]]:
        """The thread `t1` as the next turn's model sees it."""
        self.model.reply(say("ok"), fin())
        await self.run(user("and now?", "probe"))
        return self.last_request[:-1]

    @property
    def last_request(self) -> list[tuple[str, Any]]:
        """What the model was asked last, as (role, content)."""
        return [(message["role"], message["content"]) for message in self.model.saw[-1]["messages"]]


@contextmanager
def moto_table() -> Iterator[Any]:
    """An empty table in moto; yields boto3's client for it."""
    with mock_aws():
        client = boto3.client("dynamodb", region_name="us-east-1")
        client.create_table(
            TableName=TABLE,
            BillingMode="PAY_PER_REQUEST",
            KeySchema=[{"AttributeName": "pk", "KeyType": "HASH"}, {"AttributeName": "sk", "KeyType": "RANGE"}],
            AttributeDefinitions=[{"AttributeName": name, "AttributeType": "S"} for name in ("pk", "sk")],
        )
        yield client


@asynccontextmanager
async def agent_server(agents: Any = None, **environment: str | None) -> AsyncIterator[AgentServer]:
    """Serves `agents` (default: one without instructions). `environment` is on top of sane settings; None unsets."""
    async with ModelServer() as model:
        settings = {
            "TABLE_NAME": TABLE,
            "ACCESS": "none",
            "OPENAI_API_KEY": "test-key",
            "OPENAI_BASE_URL": model.url,
            "OPENAI_MODEL": "test-model",
            "AWS_DEFAULT_REGION": "us-east-1",
        }
        with pytest.MonkeyPatch.context() as patch, moto_table():
            for name, value in (settings | environment).items():
                patch.delenv(name, raising=False)
                if value is not None:
                    patch.setenv(name, value)
            server = LoopbackServer(create_app(agents or Agent(name="assistant")), listen())
            await server.start()
            try:
                async with aiohttp.ClientSession() as session:
                    yield AgentServer(f"http://127.0.0.1:{server.port}", model, session)
            finally:
                await server.stop()
                await asyncio.sleep(0)
