"""Who takes part in a measurement, and how they are started: four subjects, one model, one table."""

from __future__ import annotations

import asyncio
import itertools
import os
from collections.abc import AsyncIterator, Callable
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, field, replace
from functools import partial

from bench.answer import Answer, Post, ask
from bench.bare_lambda import BareLambda
from bench.client import exchange
from bench.process import child_running
from local.child import Child, start_child
from local.environment import Configuration
from local.stack import AGENT, LAYERS, TABLE_NAME

LAMBDA = "local Lambda"
RUNTIME = "our runtime"
UVICORN = "uvicorn"
FLOOR = "floor"

WARM_UP = 2_000
"""Content events; caches and connections are warm after one."""


@dataclass(frozen=True)
class Subject:
    """A server that is measured. `pid` is the process whose CPU and memory count."""

    name: str
    post: Post
    pid: Callable[[], int]

    async def ask(self, tokens: int, pause: float | None = None, history: int = 0, thread: str | None = None) -> Answer:
        """A run, on a new thread unless one is named; see `answer.ask`."""
        return await asyncio.to_thread(ask, self.post, thread or new_thread(), tokens, pause, history)


_threads = itertools.count(1)


def new_thread() -> str:
    """The id of a thread that nobody has used."""
    return f"thread-{next(_threads)}"


@dataclass(frozen=True)
class Stage:
    """Everything that runs. `subjects` in the order of the table; all of them are warm."""

    settings: dict[str, str]
    table_url: str
    subjects: list[Subject] = field(default_factory=list)

    @asynccontextmanager
    async def cold_lambda(self) -> AsyncIterator[Subject]:
        """The local Lambda without an environment: the first request starts one."""
        child = await start_child(["-m", "bench.programs.local_lambda"], self.settings)
        try:
            yield Subject(LAMBDA, _http(child), lambda: child_running(child.process.pid, "bootstrap.py"))
        finally:
            await child.stop()

    @asynccontextmanager
    async def program(self, name: str, *module: str) -> AsyncIterator[Subject]:
        """A server that `python -m` starts; `module` may be followed by its arguments."""
        child = await start_child(["-m", *module], self.settings)
        try:
            yield Subject(name, _http(child), lambda: child.process.pid)
        finally:
            await child.stop()

    @asynccontextmanager
    async def bare_lambda(self, configuration: Configuration) -> AsyncIterator[Subject]:
        """Our runtime with the function of `configuration`, whose `env` comes on top of `settings`."""
        # Where a function finds its modules, and whether they are compiled, is not for our shell to say.
        settings = {**self.settings, "PYTHONDONTWRITEBYTECODE": None, **configuration.env}
        settings.pop("PYTHONPATH", None)
        bare = await asyncio.to_thread(BareLambda, replace(configuration, env=settings))
        try:
            yield Subject(RUNTIME, bare.exchange, lambda: bare.pid)
        finally:
            bare.close()


def _http(child: Child) -> Post:
    return partial(exchange, "POST", child.url)


@asynccontextmanager
async def set_up() -> AsyncIterator[Stage]:
    """Starts everything and ends it again. Raises ChildFailed, and WrongAnswer when a subject does not work."""
    async with AsyncExitStack() as running:

        async def start(module: str) -> Child:
            child = await start_child(["-m", module])
            running.push_async_callback(child.stop)
            return child

        model, table = await start("bench.programs.model"), await start("bench.programs.table")
        stage = Stage(_settings(model.url, table.url), table.url)
        for subject in (
            stage.cold_lambda(),
            stage.bare_lambda(Configuration(handler="app.handler", task_root=AGENT, layers=LAYERS)),
            stage.program(UVICORN, "bench.programs.under_uvicorn", "app"),
            stage.program(FLOOR, "bench.programs.floor"),
        ):
            stage.subjects.append(await running.enter_async_context(subject))
        for warm in stage.subjects:
            await warm.ask(WARM_UP)
        yield stage


def _settings(model_url: str, table_url: str) -> dict[str, str]:
    """The environment of the subjects: that of the deployed function, with a model and a table on this machine."""
    foreign = ("AWS_", "OPENAI_", "INSPECTOR", "PYTHONDONTWRITEBYTECODE")
    inherited = {name: value for name, value in os.environ.items() if not name.startswith(foreign)}
    return inherited | {
        "ACCESS": "none",
        "TABLE_NAME": TABLE_NAME,
        "AWS_ENDPOINT_URL_DYNAMODB": table_url,
        "AWS_DEFAULT_REGION": "us-east-1",
        "AWS_ACCESS_KEY_ID": "local",
        "AWS_SECRET_ACCESS_KEY": "local",
        "OPENAI_BASE_URL": f"{model_url}/v1",
        "OPENAI_API_KEY": "bench",
        "OPENAI_MODEL": "bench",
        "NO_PROXY": "127.0.0.1",
    }
