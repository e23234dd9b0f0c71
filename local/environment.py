"""One execution environment: a runtime process and its Runtime API, from INIT to the end of its life.

Holds what Lambda promises a process: its environment variables, INIT once, one invocation at a time, SIGKILL at
the deadline. How many environments there are is decided in `function`.
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
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from local.child import ROOT
from local.invocation import InitError, Invocation, Outcome, Reply
from local.logs import Log
from local.runtime_api import RuntimeAPI

logger = logging.getLogger(__name__)

STREAMING_LAYER = ROOT / "layers" / "streaming"

# What starts a runtime on the managed image with AWS_LAMBDA_EXEC_WRAPPER set: wrapper, interpreter, bootstrap.
STREAMING_RUNTIME = (str(STREAMING_LAYER / "response-streaming"), sys.executable, "/var/runtime/bootstrap.py")

# Variables of the shell that would make a runtime believe that it runs somewhere else.
_NOT_INHERITED = ("AWS_LAMBDA_", "_LAMBDA_", "LAMBDA_", "AWS_SAM_LOCAL", "_HANDLER", "_X_AMZN_", "PYTHONPATH")


@dataclass(frozen=True)
class Configuration:
    """A function's configuration, in the words of `aws lambda get-function-configuration`.

    `task_root` is the folder of the code (/var/task), `layers` go on PYTHONPATH in this order (/opt/python).
    `timeout` is in seconds, `memory` in MB; memory is only told to the process, not enforced. `command` starts
    the runtime. `env` comes on top of the variables of this process, which are passed on as they are; None takes one
    away.
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
            "AWS_LAMBDA_INITIALIZATION_TYPE": "on-demand",
            "AWS_LAMBDA_LOG_GROUP_NAME": f"/aws/lambda/{self.name}",
            "AWS_LAMBDA_LOG_STREAM_NAME": f"{time.strftime('%Y/%m/%d')}/[$LATEST]{uuid.uuid4().hex}",
            "AWS_LAMBDA_RUNTIME_API": runtime_api,
            "LAMBDA_RUNTIME_DIR": "/var/runtime",
            "LAMBDA_TASK_ROOT": str(self.task_root),
            "TZ": ":UTC",
            "PYTHONPATH": os.pathsep.join(map(str, self.layers)),
            "PYTHONUNBUFFERED": "1",
        }
        variables = inherited | lambdas_own | dict(self.env)
        return {name: value for name, value in variables.items() if value is not None}


class Environment:
    """One runtime process. `start`, then any number of `invoke` and `idle` in turn, then `stop`."""

    def __init__(self, configuration: Configuration) -> None:
        self.configuration = configuration
        self.retired = False
        self.idle_since = 0.0
        self._api = RuntimeAPI()
        self._log = Log()
        self._process: asyncio.subprocess.Process | None = None
        self._exited: asyncio.Task[int] | None = None
        self._reply: Reply | None = None
        self._deadline: asyncio.TimerHandle | None = None

    @property
    def alive(self) -> bool:
        return self._exited is not None and not self._exited.done()

    @property
    def finishing(self) -> bool:
        """Whether it has answered its invocation, but not yet asked for the next."""
        return self._reply is not None and self._reply.outcome is not None

    async def start(self) -> None:
        """INIT: starts the process and returns when it asks for its first invocation.

        Raises InitError with what the runtime reported, or with Runtime.ExitError when it ended without a word.
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
            either: set[asyncio.Future[Any]] = {self._exited, self._api.initialized}
            await asyncio.wait(either, return_when=asyncio.FIRST_COMPLETED)
            if not self._api.initialized.done():
                raise InitError("Runtime.ExitError", _exit_error(self._exited.result()))
            self._api.initialized.result()
        except OSError as error:
            await self.stop()
            message = f"cannot start {self.configuration.command[0]}: {error.strerror}"
            raise InitError("Runtime.InvalidEntrypoint", _json("Runtime.InvalidEntrypoint", message)) from error
        except BaseException:
            await self.stop()
            raise
        self.idle_since = time.monotonic()
        logger.info("INIT %s in %.0f ms", self.configuration.name, (self.idle_since - began) * 1000)

    def invoke(self, event: bytes, request_id: str | None = None) -> Reply:
        """Hands an event (JSON) to the waiting runtime and starts the clock. Await `idle` before the next one."""
        timeout = self.configuration.timeout
        invocation = Invocation(
            event,
            deadline_ms=int((time.time() + timeout) * 1000),
            function_arn=self.configuration.arn,
            request_id=request_id or str(uuid.uuid4()),
        )
        self._reply = self._api.invoke(invocation)
        self._deadline = asyncio.get_running_loop().call_later(timeout, self._time_out, invocation, self._reply)
        return self._reply

    async def idle(self) -> bool:
        """Waits for the runtime to ask for its next invocation. False when the process ended instead."""
        assert self._exited is not None
        polled = asyncio.create_task(self._api.polled())
        try:
            either: set[asyncio.Future[Any]] = {self._exited, polled}
            await asyncio.wait(either, return_when=asyncio.FIRST_COMPLETED)
        finally:
            polled.cancel()
        if self._deadline:
            self._deadline.cancel()
        self._reply = None
        self.idle_since = time.monotonic()
        return self.alive

    async def stop(self) -> None:
        """SIGKILL, as Lambda does it without extensions; an open reply ends truncated. May be called twice."""
        if self._deadline:
            self._deadline.cancel()
        if self._reply:
            self._reply.finish(Outcome.failed("Runtime.ExitError", "the environment was stopped"))
        self._kill()
        if self._exited:
            await self._exited
            await self._log.close()
        if self._api.initialized.done():
            self._api.initialized.exception()  # Retrieved, or asyncio would complain about it.
        await self._api.close()

    def _time_out(self, invocation: Invocation, reply: Reply) -> None:
        message = (
            f"RequestId: {invocation.request_id} Error: Task timed out after {self.configuration.timeout:.2f} seconds"
        )
        logger.error(message)
        reply.finish(Outcome.failed("Sandbox.Timeout", message))
        self._kill()

    def _kill(self) -> None:
        if self._process:
            try:
                os.killpg(self._process.pid, signal.SIGKILL)
            except ProcessLookupError:
                pass  # It and all its children have ended.

    async def _watch(self, process: asyncio.subprocess.Process) -> int:
        code = await process.wait()
        if self._reply and not self._reply.outcome:
            logger.error("%s", _exit_message(code))
            self._reply.finish(Outcome.failed("Runtime.ExitError", _exit_message(code)))
        return code


def _exit_message(code: int) -> str:
    how = f"signal: {signal.Signals(-code).name}" if code < 0 else f"exit status {code}"
    return f"Runtime exited with error: {how}"


def _exit_error(code: int) -> bytes:
    return _json("Runtime.ExitError", _exit_message(code))


def _json(error_type: str, message: str) -> bytes:
    return json.dumps({"errorType": error_type, "errorMessage": message}).encode()
