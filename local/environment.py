"""One execution environment: a runtime process and its Runtime API, from INIT to the end of its life.

Holds what Lambda promises a process: its environment variables, INIT once, one invocation at a time, SIGKILL at
the deadline; or the other promises of SnapStart and of Managed Instances. How many environments there are is decided
in `function`.
"""

from __future__ import annotations

import asyncio
import json
import logging
import os
import signal
import sys
import time
import uuid
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from local.child import ROOT
from local.freezer import Freezer
from local.invocation import Caller, InitError, Invocation, Outcome, Reply
from local.logs import Log
from local.runtime_api import STREAMED_LIMIT, RuntimeAPI

logger = logging.getLogger(__name__)

STREAMING_LAYER = ROOT / "layers" / "streaming"

# What starts a runtime on the managed image with AWS_LAMBDA_EXEC_WRAPPER set: wrapper, interpreter, bootstrap.
STREAMING_RUNTIME = (str(STREAMING_LAYER / "response-streaming"), sys.executable, "/var/runtime/bootstrap.py")

# Seconds for the hooks after a restore: https://docs.aws.amazon.com/lambda/latest/dg/snapstart-runtime-hooks.html
RESTORE_TIMEOUT = 10

# Seconds that a runtime has to end after SIGTERM, so that the whole stack ends while a person waits for it.
TERMINATION = 1.0

# Variables of the shell that would make a runtime believe that it runs somewhere else.
_NOT_INHERITED = ("AWS_LAMBDA_", "_LAMBDA_", "LAMBDA_", "AWS_SAM_LOCAL", "_HANDLER", "_X_AMZN_", "PYTHONPATH")


@dataclass(frozen=True)
class Configuration:
    """A function's configuration, in the words of `aws lambda get-function-configuration`.

    `task_root` is the folder of the code (/var/task), `layers` go on PYTHONPATH in this order (/opt/python).
    `timeout` and `init_timeout` are in seconds, `memory` in MB; memory is only told to the process, not enforced.
    `command` starts the runtime. `env` comes on top of the variables of this process, which are passed on as they are;
    None takes one away. `streamed_limit` is the size of a streamed reply in bytes.

    `max_concurrency` makes it a function on Managed Instances: so many invocations at once in an environment, which is
    not killed at a deadline. `snap_start` takes it through a snapshot and a restore. `freeze` stops an environment
    between invocations, as on-demand ones are. `invocation_ids` sends the nonce of newer Runtime APIs, which Managed
    Instances always do. Raises ValueError for what cannot go together.
    """

    handler: str
    task_root: Path
    command: tuple[str, ...] = STREAMING_RUNTIME
    layers: tuple[Path, ...] = ()
    name: str = "agent"
    timeout: float = 900
    memory: int = 512
    region: str = "us-east-1"
    env: Mapping[str, str | None] = field(default_factory=dict)
    init_timeout: float = 10
    streamed_limit: int = STREAMED_LIMIT
    max_concurrency: int | None = None
    snap_start: bool = False
    freeze: bool = False
    invocation_ids: bool = False

    def __post_init__(self) -> None:
        if self.max_concurrency is not None and (self.snap_start or self.freeze):
            raise ValueError("on Managed Instances (max_concurrency) there is no SnapStart, and nothing is frozen")
        if self.max_concurrency is not None and self.max_concurrency < 1:
            raise ValueError("max_concurrency has to be 1 or more")

    @property
    def managed(self) -> bool:
        """Whether it runs on Managed Instances."""
        return self.max_concurrency is not None

    @property
    def arn(self) -> str:
        return f"arn:aws:lambda:{self.region}:012345678912:function:{self.name}"

    def variables(self, runtime_api: str) -> dict[str, str]:
        """The whole environment of a runtime process.

        Source: https://docs.aws.amazon.com/lambda/latest/dg/configuration-envvars.html#configuration-envvars-runtime
        """
        inherited = {name: value for name, value in os.environ.items() if not name.startswith(_NOT_INHERITED)}
        lambdas_own = {
            "_HANDLER": self.handler,
            "AWS_REGION": self.region,
            "AWS_DEFAULT_REGION": self.region,
            "AWS_EXECUTION_ENV": f"AWS_Lambda_python{sys.version_info.major}.{sys.version_info.minor}",
            "AWS_LAMBDA_EXEC_WRAPPER": "/opt/response-streaming",
            "AWS_LAMBDA_FUNCTION_MEMORY_SIZE": str(self.memory),
            "AWS_LAMBDA_FUNCTION_NAME": self.name,
            "AWS_LAMBDA_FUNCTION_VERSION": "$LATEST",
            "AWS_LAMBDA_INITIALIZATION_TYPE": self._initialization_type,
            "AWS_LAMBDA_LOG_GROUP_NAME": f"/aws/lambda/{self.name}",
            "AWS_LAMBDA_LOG_STREAM_NAME": f"{time.strftime('%Y/%m/%d')}/[$LATEST]{uuid.uuid4().hex}",
            "AWS_LAMBDA_RUNTIME_API": runtime_api,
            "LAMBDA_RUNTIME_DIR": "/var/runtime",
            "LAMBDA_TASK_ROOT": str(self.task_root),
            "TZ": ":UTC",
            "PYTHONPATH": os.pathsep.join(map(str, self.layers)),
            "PYTHONUNBUFFERED": "1",
        }
        if self.managed:
            lambdas_own["AWS_LAMBDA_MAX_CONCURRENCY"] = str(self.max_concurrency)
        variables = inherited | lambdas_own | dict(self.env)
        return {name: value for name, value in variables.items() if value is not None}

    @property
    def _initialization_type(self) -> str:
        if self.managed:
            return "lambda-managed-instances"
        return "snap-start" if self.snap_start else "on-demand"


class Environment:
    """One runtime process. `start`, then `invoke` and `finished` in turn while there is `room`, then `stop`."""

    def __init__(self, configuration: Configuration) -> None:
        self.configuration = configuration
        self.retired = False
        self.idle_since = 0.0
        self._api = RuntimeAPI(
            snap_start=configuration.snap_start,
            concurrent=configuration.managed,
            streamed_limit=configuration.streamed_limit,
        )
        self._log = Log()
        self._freezer = Freezer()
        self._process: asyncio.subprocess.Process | None = None
        self._exited: asyncio.Task[int] | None = None
        self._running: dict[Reply, asyncio.TimerHandle] = {}
        self._claims = 0
        self._stopping = False

    @property
    def alive(self) -> bool:
        return self._exited is not None and not self._exited.done()

    @property
    def pid(self) -> int | None:
        """Of its runtime process, once that is started."""
        return self._process.pid if self._process else None

    @property
    def busy(self) -> bool:
        return bool(self._running or self._claims)

    @property
    def room(self) -> bool:
        """Whether it may be given an invocation, once it is initialised."""
        return not self.retired and len(self._running) + self._claims < (self.configuration.max_concurrency or 1)

    @contextmanager
    def claim(self) -> Iterator[None]:
        """Keeps room for one invocation while it initialises."""
        self._claims += 1
        try:
            yield
        finally:
            self._claims -= 1

    @property
    def finishing(self) -> bool:
        """Whether it has answered its invocation, but not yet asked for the next."""
        return any(reply.outcome for reply in self._running)

    async def start(self) -> None:
        """INIT: starts the process and returns when it asks for its first invocation.

        Raises InitError with what the runtime reported, with Runtime.ExitError when it ended without a word, or with
        Sandbox.Timeout when it took too long.
        """
        await self._api.start()
        began = time.monotonic()
        try:
            async with self._log.pipe() as log:
                self._process = await asyncio.create_subprocess_exec(
                    *self.configuration.command,
                    stdin=asyncio.subprocess.DEVNULL,
                    stdout=log,
                    stderr=log,
                    cwd=self.configuration.task_root,
                    env=self.configuration.variables(self._api.address),
                    # A group of its own, so that what the function starts ends with it.
                    start_new_session=True,
                )
            self._exited = asyncio.create_task(self._watch(self._process))
            if self.configuration.freeze:
                await self._freezer.start(self._process.pid)
            await self._initialize()
        except OSError as error:
            await self.stop()
            message = f"cannot start {self.configuration.command[0]}: {error.strerror}"
            raise InitError("Runtime.InvalidEntrypoint", _json("Runtime.InvalidEntrypoint", message)) from error
        except BaseException:
            await self.stop()
            raise
        self.idle_since = time.monotonic()
        self._freezer.freeze()
        logger.info("INIT %s in %.0f ms", self.configuration.name, (self.idle_since - began) * 1000)

    async def _initialize(self) -> None:
        if self.configuration.snap_start:
            # Only what is done before the snapshot has the time for INIT, which is longer with SnapStart.
            await self._wait_for(self._api.snapshot, max(130, self.configuration.timeout), "INIT")
            logger.info("SnapStart: snapshot taken, environment restored from it")
            self._api.restore()
            await self._wait_for(self._api.initialized, RESTORE_TIMEOUT, "RESTORE")
        else:
            await self._wait_for(self._api.initialized, self.configuration.init_timeout, "INIT")
        self._api.initialized.result()

    async def _wait_for(self, step: asyncio.Future[None], seconds: float, phase: str) -> None:
        """Returns when the step is done, or INIT with it."""
        assert self._exited is not None
        either: set[asyncio.Future[Any]] = {step, self._api.initialized, self._exited}
        done, _ = await asyncio.wait(either, timeout=seconds, return_when=asyncio.FIRST_COMPLETED)
        if not done:
            message = f"{phase} took longer than {seconds:g} seconds"
            if phase == "INIT" and not self.configuration.snap_start:
                message += "; AWS would start it again within the first invocation, at that invocation's expense"
            raise InitError("Sandbox.Timeout", _json("Sandbox.Timeout", message))
        if done == {self._exited}:
            raise InitError("Runtime.ExitError", _exit_error(self._exited.result()))

    def invoke(self, event: bytes, request_id: str | None = None, caller: Caller = Caller()) -> Reply:  # noqa: B008
        """Hands an event (JSON) to the runtime and starts the clock. Only if there is `room`."""
        timeout = self.configuration.timeout
        with_id = self.configuration.invocation_ids or self.configuration.managed
        invocation = Invocation(
            event,
            deadline_ms=int((time.time() + timeout) * 1000),
            function_arn=self.configuration.arn,
            caller=caller,
            invocation_id=str(uuid.uuid4()) if with_id else None,
            request_id=request_id or str(uuid.uuid4()),
        )
        self._freezer.thaw()
        reply = self._api.invoke(invocation)
        self._running[reply] = asyncio.get_running_loop().call_later(timeout, self._time_out, invocation, reply)
        return reply

    async def finished(self, reply: Reply) -> bool:
        """Waits until there is room for another invocation in place of this one. False when the process ended instead.

        There is when the runtime asks for it; on Managed Instances, where it asks on several connections, when it has
        answered.
        """
        assert self._exited is not None
        done = asyncio.create_task(reply.ended.wait() if self.configuration.managed else self._api.polled())
        try:
            either: set[asyncio.Future[Any]] = {self._exited, done}
            await asyncio.wait(either, return_when=asyncio.FIRST_COMPLETED)
        finally:
            done.cancel()
        self._running.pop(reply).cancel()
        self.idle_since = time.monotonic()
        if self.alive:
            self._freezer.freeze()
        return self.alive

    async def stop(self) -> None:
        """SIGKILL, as Lambda does it without extensions; open replies end truncated. May be called twice.

        In the middle of an answer there is SIGTERM first, and a second of time. Lambda stops nothing there, but a
        person who presses Ctrl-C wants to find what was answered until then.
        """
        for deadline in self._running.values():
            deadline.cancel()
        await self._terminate()
        for reply in self._running:
            reply.finish(Outcome.failed("Runtime.ExitError", "the environment was stopped"))
        self._kill()
        if self._exited:
            await self._exited
            await self._log.close()
        await self._freezer.stop()
        if self._api.initialized.done():
            self._api.initialized.exception()  # Retrieved, or asyncio would complain about it.
        await self._api.close()

    def _time_out(self, invocation: Invocation, reply: Reply) -> None:
        message = (
            f"RequestId: {invocation.request_id} Error: Task timed out after {self.configuration.timeout:.2f} seconds"
        )
        logger.error(message)
        outcome = Outcome.failed("Sandbox.Timeout", message)
        if self.configuration.managed:
            # Others go on in this process. What this one still sends is refused.
            reply.refuse(410, swallow=0, outcome=outcome)
        else:
            reply.finish(outcome)
            self._kill()

    async def _terminate(self) -> None:
        """Lets a runtime that has yet to answer end in order, within a second."""
        if self._process and self._exited and any(not reply.outcome for reply in self._running):
            self._stopping = True
            with suppress(ProcessLookupError):
                self._process.terminate()
            await asyncio.wait({self._exited}, timeout=TERMINATION)

    def _kill(self) -> None:
        if self._process:
            try:
                os.killpg(self._process.pid, signal.SIGKILL)
            except ProcessLookupError:
                pass  # It and all its children have ended.

    async def _watch(self, process: asyncio.subprocess.Process) -> int:
        code = await process.wait()
        open_replies = [reply for reply in self._running if not reply.outcome]
        if open_replies and not self._stopping:
            logger.error("%s", _exit_message(code))
        for reply in open_replies:
            reply.finish(Outcome.failed("Runtime.ExitError", _exit_message(code)))
        return code


def _exit_message(code: int) -> str:
    how = f"signal: {signal.Signals(-code).name}" if code < 0 else f"exit status {code}"
    return f"Runtime exited with error: {how}"


def _exit_error(code: int) -> bytes:
    return _json("Runtime.ExitError", _exit_message(code))


def _json(error_type: str, message: str) -> bytes:
    return json.dumps({"errorType": error_type, "errorMessage": message}).encode()
