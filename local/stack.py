"""The whole local stack as one object: table, model, function and function URL, started and ended together.

What each part does is elsewhere; here is only which variables the function gets and in which order things start.
"""

from __future__ import annotations

import asyncio
import logging
import tempfile
from collections.abc import Callable, Coroutine, Mapping, Sequence
from contextlib import AsyncExitStack
from dataclasses import replace
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from local.child import ROOT, Child, LoopbackServer, listen, start_child
from local.cors import Cors
from local.environment import STREAMING_RUNTIME, Configuration
from local.function import Function
from local.function_url import FunctionURL
from local.invocation import InitError
from local.reload import restart_on_change
from local.runtime_api import STREAMED_LIMIT

logger = logging.getLogger(__name__)

AGENT = ROOT / "functions" / "agent"
LAYERS = (ROOT / "layers" / "streaming" / "python", ROOT / "layers" / "agui" / "python")
TABLE_NAME = "threads"

MODELS = {"demo": "local.demo_model", "smollm2": "local.smollm2"}


class LocalStack:
    """A function behind a URL on loopback, with everything it needs. In a test:

        async with LocalStack(env={"OPENAI_BASE_URL": fake.url + "/v1", "OPENAI_API_KEY": "x"}) as stack:
            response = await client.post(stack.url + "/", json=...)

    Entering returns when the first environment is initialised, and raises InitError when it cannot be (except with
    `reload`, which waits for the next change of the code), OSError when `port` is taken, ChildFailed when the table
    or the model does not start. Leaving ends every process.

    port              of the function URL; 0 takes a free one
    data              folder of the table's file, which outlives the stack; None: a temporary one
    table             False: no DynamoDB; AWS credentials of this process then reach the function as they are
    model             "demo", "smollm2" or None; a model is started only if `env` does not name OPENAI_BASE_URL
    token             the bearer token that is asked for; None: nobody is asked
    env               more variables for the function; they win over those the stack sets
    handler, task_root, command, timeout (s), memory (MB), init_timeout (s), streamed_limit (bytes), max_concurrency,
    snap_start, freeze, invocation_ids
                      the function's configuration; see `local.environment.Configuration`
    max_environments  the concurrency limit: one more request at once gets 429
    cors              of the function URL; None: the app's own business. Pages of origins that it does not list are
                      refused; by default, and with None, those of other machines
    source            whose events the function gets: "function-url", "http-api", "rest" or "alb"; the last three leave
                      the headers of CORS to the app
    reload            restart the environments when a file under `task_root` or layers/ changes

    `url` has no trailing slash; `function` gives `invoke()`, `restart()` and `environments`; `table_url` and
    `model_url` are None where nothing was started.
    """

    def __init__(
        self,
        *,
        port: int = 0,
        data: Path | None = None,
        table: bool = True,
        model: str | None = "demo",
        token: str | None = None,
        env: Mapping[str, str] | None = None,
        handler: str = "app.handler",
        task_root: Path = AGENT,
        command: Sequence[str] = STREAMING_RUNTIME,
        timeout: float = 900,
        memory: int = 512,
        init_timeout: float = 10,
        streamed_limit: int = STREAMED_LIMIT,
        max_concurrency: int | None = None,
        snap_start: bool = False,
        freeze: bool = False,
        invocation_ids: bool = False,
        max_environments: int = 10,
        cors: Cors | None = Cors(),  # noqa: B008 - immutable
        source: str = "function-url",
        reload: bool = False,
    ) -> None:
        self._port = port
        self._data = data
        self._with_table = table
        self._model = model
        self._token = token
        self._env = dict(env or {})
        # Without variables: those are known when table and model have started.
        self._configuration = Configuration(
            handler=handler,
            task_root=task_root.resolve(),
            command=tuple(command),
            layers=LAYERS,
            timeout=timeout,
            memory=memory,
            init_timeout=init_timeout,
            streamed_limit=streamed_limit,
            max_concurrency=max_concurrency,
            snap_start=snap_start,
            freeze=freeze,
            invocation_ids=invocation_ids,
        )
        self._max_environments = max_environments
        self._cors = cors
        self._source = source
        self._reload = reload
        self._running = AsyncExitStack()
        self._stops: list[Callable[[], Coroutine[Any, Any, None]]] = []
        self._children: list[Child] = []
        self.url = ""
        self.table_url: str | None = None
        self.model_url: str | None = None
        self.function: Function

    async def __aenter__(self) -> Self:
        try:
            await self._start()
        except BaseException:
            await self._running.aclose()
            raise
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self._running.aclose()

    async def _start(self) -> None:
        listener = listen(self._port)
        self._running.callback(listener.close)
        port = listener.getsockname()[1]
        self.url = f"http://127.0.0.1:{port}"

        folder = self._data or Path(self._running.enter_context(tempfile.TemporaryDirectory()))
        self._running.push_async_callback(self._stop)
        await self._start_children(folder.resolve() / f"threads-{port}.jsonl")

        configuration = replace(self._configuration, env=self._variables() | self._env)
        self.function = Function(configuration, max_environments=self._max_environments)
        # A reply that is cut is logged where it is known why; uvicorn would complain about each again.
        front = LoopbackServer(FunctionURL(self.function, self._cors, self._source), listener, log_level="critical")
        await front.start()
        self._stops = [self.function.stop, front.stop]
        try:
            await self.function.start()
        except InitError:
            if not self._reload:
                raise
            logger.info("Waiting for a change of the code")
        if self._reload:
            folders = {configuration.task_root, ROOT / "layers"}
            watcher = asyncio.create_task(restart_on_change(self.function, sorted(folders)))
            self._running.callback(watcher.cancel)
            # Lets it set its watches: a change made from now on counts.
            await asyncio.sleep(0)

    async def _stop(self) -> None:
        # At once: environments that end also end the replies that the front would wait for. The table is there until
        # they have stored what they answered.
        await asyncio.gather(*(stop() for stop in self._stops))
        await asyncio.gather(*(child.stop() for child in self._children))

    async def _start_children(self, table_file: Path) -> None:
        starting: list[Coroutine[Any, Any, None]] = []
        if self._with_table:
            starting.append(self._start_table(table_file))
        if self._model and "OPENAI_BASE_URL" not in self._env:
            starting.append(self._start_model(self._model))
        tasks = [asyncio.create_task(one) for one in starting]
        try:
            await asyncio.gather(*tasks)
        finally:
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)

    async def _start_table(self, file: Path) -> None:
        child = await self._start_child(["-m", "local.table", "--data", str(file), "--table", TABLE_NAME])
        self.table_url = child.url

    async def _start_model(self, model: str) -> None:
        # The small real model may have to be loaded from a slow disk.
        child = await self._start_child(["-m", MODELS[model]], ready_within=300)
        self.model_url = child.url

    async def _start_child(self, arguments: list[str], ready_within: float = 30) -> Child:
        child = await start_child(arguments, ready_within=ready_within)
        self._children.append(child)
        watcher = asyncio.create_task(_report_end(child, arguments[1]))
        self._running.callback(watcher.cancel)
        return child

    def _variables(self) -> dict[str, str | None]:
        variables: dict[str, str | None] = {"INSPECTOR": "on", "ACCESS": "none", "ACCESS_TOKEN": None}
        if self._token:
            variables |= {"ACCESS": "token", "ACCESS_TOKEN": self._token}
        if self.table_url:
            # The table takes any credentials, and the developer's own have no business there.
            variables |= {
                "TABLE_NAME": TABLE_NAME,
                "AWS_ENDPOINT_URL_DYNAMODB": self.table_url,
                "AWS_ACCESS_KEY_ID": "local",
                "AWS_SECRET_ACCESS_KEY": "local",
                "AWS_SESSION_TOKEN": None,
                "AWS_PROFILE": None,
            }
        if self.model_url:
            variables |= {
                "OPENAI_BASE_URL": f"{self.model_url}/v1",
                "OPENAI_API_KEY": "local",
                "OPENAI_MODEL": self._model,
            }
        return variables


async def _report_end(child: Child, name: str) -> None:
    """A child that ends on its own shows as errors far from their cause: says so."""
    code = await child.process.wait()
    logger.error("%s ended with exit code %s: start the stack again", name, code)
