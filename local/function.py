"""A Lambda function: its environments, and which of them takes the next invocation.

Starts environments when all are busy and ends them when they are not needed or their code is old. What an
environment is lies in `environment`; where invocations come from does not matter here.
"""

from __future__ import annotations

import asyncio
import logging
import time

from local.environment import Configuration, Environment
from local.invocation import Caller, InitError, Reply

logger = logging.getLogger(__name__)


# How long a request waits for an environment that has answered, but not yet asked for more (seconds). A caller on
# loopback is back sooner than that, and would otherwise find a cold environment each time.
FINISHING = 0.1


class TooManyRequestsError(Exception):
    """Every environment is busy and no more are allowed (Lambda's concurrency limit, HTTP 429)."""


class Function:
    """A pool of environments. `start`, then `invoke` from as many tasks as you like, then `stop`.

    `max_environments` is the concurrency limit. `idle_after` is how long, in seconds, an environment that is
    not needed is kept; one is always kept warm.
    """

    def __init__(self, configuration: Configuration, *, max_environments: int = 10, idle_after: float = 300) -> None:
        self.configuration = configuration
        self.max_environments = max_environments
        self.idle_after = idle_after
        self._environments: set[Environment] = set()
        # Those initialised, the last one used at the end.
        self._ready: list[Environment] = []
        self._starting: dict[Environment, asyncio.Task[None]] = {}
        self._tasks: set[asyncio.Task[None]] = set()
        self._released = asyncio.Event()

    @property
    def environments(self) -> int:
        """How many environments there are, starting ones included."""
        return len(self._environments)

    @property
    def pids(self) -> set[int]:
        """The runtime processes of the environments that are initialised."""
        return {one.pid for one in self._ready if one.pid}

    async def start(self) -> None:
        """Starts the first environment, so that an error of INIT shows now. Raises InitError."""
        self._keep(asyncio.create_task(self._scale_in()))
        await self._prepare()

    async def invoke(
        self,
        event: bytes,
        request_id: str | None = None,
        caller: Caller = Caller(),  # noqa: B008 - immutable
    ) -> Reply:
        """Runs one event (JSON) in a free environment, or in a new one.

        Returns as soon as the runtime has it; the reply is read by iterating over it. Raises
        TooManyRequestsError, and InitError when a new environment cannot be initialised.
        """
        environment = await self._acquire()
        reply = environment.invoke(event, request_id, caller)
        self._keep(asyncio.create_task(self._release(environment, reply)))
        return reply

    async def restart(self) -> None:
        """New code: idle environments end now, busy ones after their invocations, one new one is started.

        Raises InitError when that fails; the next invocation then tries again.
        """
        for environment in self._environments:
            environment.retired = True
        for environment, starting in self._starting.items():
            if not environment.busy:
                starting.cancel()
        await asyncio.gather(*(self._end(one) for one in self._ready if not one.busy))
        await self._prepare()

    async def stop(self) -> None:
        """Kills every environment; open replies end truncated, and there are no new ones."""
        self.max_environments = 0
        tasks = [*self._tasks, *self._starting.values()]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        await asyncio.gather(*map(self._end, list(self._environments)))

    # --- the pool -------------------------------------------------------------------------------------------

    async def _prepare(self) -> None:
        """Starts an environment ahead of the first event, which may already come while it initialises."""
        starting = self._begin()[1]
        try:
            # Shielded: a request that has claimed it goes on waiting for it, and `stop` is what ends it.
            await asyncio.shield(starting)
        except asyncio.CancelledError:
            if not starting.cancelled():
                raise
            # A restart overtook this one.

    async def _acquire(self) -> Environment:
        """An environment with room, which has to be used before anything else is awaited."""
        await asyncio.gather(*(self._end(one) for one in self._ready if not (one.alive or one.busy)))
        await self._wait_for_finishing()
        environment = self._with_room()
        if environment is None:
            if len(self._environments) >= self.max_environments:
                raise TooManyRequestsError
            environment, _ = self._begin()
        if starting := self._starting.get(environment):
            with environment.claim():
                try:
                    await asyncio.shield(starting)
                except asyncio.CancelledError:
                    if not starting.cancelled():
                        raise
                    raise InitError("Runtime.ExitError", b"the environment was stopped") from None
        return environment

    def _with_room(self) -> Environment | None:
        # The last one used is the warmest, and the others get the chance to grow old.
        ready = (one for one in reversed(self._ready) if one.alive and one.room)
        return next(ready, None) or next((one for one in self._starting if one.room), None)

    async def _wait_for_finishing(self) -> None:
        try:
            async with asyncio.timeout(FINISHING):
                while not self._with_room() and any(one.finishing for one in self._environments):
                    self._released.clear()
                    await self._released.wait()
        except TimeoutError:
            pass

    def _begin(self) -> tuple[Environment, asyncio.Task[None]]:
        environment = Environment(self.configuration)
        self._environments.add(environment)
        starting = self._starting[environment] = asyncio.create_task(self._start(environment))
        return environment, starting

    async def _start(self, environment: Environment) -> None:
        try:
            await environment.start()
        except BaseException as error:
            self._environments.discard(environment)
            if isinstance(error, InitError):
                logger.error("INIT failed: %s", error)
            raise
        else:
            self._ready.append(environment)
        finally:
            del self._starting[environment]

    async def _release(self, environment: Environment, reply: Reply) -> None:
        alive = await environment.finished(reply)
        if not alive or (environment.retired and not environment.busy):
            await self._end(environment)
        elif environment in self._ready:
            self._ready.remove(environment)
            self._ready.append(environment)
        self._released.set()

    async def _end(self, environment: Environment) -> None:
        environment.retired = True
        if environment in self._ready:
            self._ready.remove(environment)
        await environment.stop()
        self._environments.discard(environment)

    async def _scale_in(self) -> None:
        while True:
            await asyncio.sleep(self.idle_after / 4)
            limit = time.monotonic() - self.idle_after
            # The oldest stand first; the last one stays, so that the next request finds a warm environment.
            for environment in [one for one in self._ready if not one.busy][:-1]:
                if environment.idle_since < limit and not environment.busy:
                    await self._end(environment)

    def _keep(self, task: asyncio.Task[None]) -> None:
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
