"""A Lambda function: its environments, and which of them takes the next invocation.

Starts environments when all are busy and ends them when they are not needed or their code is old. What an
environment is lies in `environment`; where invocations come from does not matter here.
"""

from __future__ import annotations

import asyncio
import logging
import time

from local.environment import Configuration, Environment
from local.invocation import InitError, Reply

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
        self._idle: list[Environment] = []
        self._prepared: asyncio.Task[Environment] | None = None
        self._tasks: set[asyncio.Task[None]] = set()
        self._released = asyncio.Event()

    @property
    def environments(self) -> int:
        """How many environments there are, starting ones included."""
        return len(self._environments)

    async def start(self) -> None:
        """Starts the first environment, so that an error of INIT shows now. Raises InitError."""
        self._keep(asyncio.create_task(self._scale_in()))
        await self._prepare()

    async def invoke(self, event: bytes, request_id: str | None = None) -> Reply:
        """Runs one event (JSON) in a free environment, or in a new one.

        Returns as soon as the runtime has it; the reply is read by iterating over it. Raises
        TooManyRequestsError, and InitError when a new environment cannot be initialised.
        """
        environment = await self._acquire()
        reply = environment.invoke(event, request_id)
        self._keep(asyncio.create_task(self._release(environment)))
        return reply

    async def restart(self) -> None:
        """New code: idle environments end now, busy ones after their invocation, one new one is started.

        Raises InitError when that fails; the next invocation then tries again.
        """
        for environment in self._environments:
            environment.retired = True
        prepared, self._prepared = self._prepared, None
        idle, self._idle = self._idle, []
        if prepared:
            prepared.cancel()
        await asyncio.gather(*map(self._end, idle))
        await self._prepare()

    async def stop(self) -> None:
        """Kills every environment; open replies end truncated, and there are no new ones."""
        self.max_environments = 0
        self._idle.clear()
        tasks = [*self._tasks, *([self._prepared] if self._prepared else [])]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        await asyncio.gather(*map(self._end, list(self._environments)))

    # --- the pool -------------------------------------------------------------------------------------------

    async def _prepare(self) -> None:
        """Starts an environment ahead of the first event, which may already come while it initialises."""
        self._prepared = preparing = asyncio.create_task(self._new())
        try:
            # Shielded: a request that has claimed it goes on waiting for it, and `stop` is what ends it.
            environment = await asyncio.shield(preparing)
        except asyncio.CancelledError:
            if preparing.cancelled():
                return  # A restart overtook this one.
            raise
        except InitError:
            if self._prepared is preparing:
                self._prepared = None
            raise
        if self._prepared is preparing:
            self._prepared = None
            self._idle.append(environment)

    async def _acquire(self) -> Environment:
        await self._wait_for_finishing()
        while self._idle:
            # The last one used is the warmest, and the others get the chance to grow old.
            environment = self._idle.pop()
            if environment.alive:
                return environment
            await self._end(environment)
        if self._prepared:
            preparing, self._prepared = self._prepared, None
            return await preparing
        if len(self._environments) >= self.max_environments:
            raise TooManyRequestsError
        return await self._new()

    async def _wait_for_finishing(self) -> None:
        try:
            async with asyncio.timeout(FINISHING):
                while not self._idle and any(one.finishing for one in self._environments):
                    self._released.clear()
                    await self._released.wait()
        except TimeoutError:
            pass

    async def _new(self) -> Environment:
        environment = Environment(self.configuration)
        self._environments.add(environment)
        try:
            await environment.start()
        except BaseException as error:
            self._environments.discard(environment)
            if isinstance(error, InitError):
                logger.error("INIT failed: %s", error)
            raise
        return environment

    async def _release(self, environment: Environment) -> None:
        alive = await environment.idle()
        if alive and not environment.retired:
            self._idle.append(environment)
        else:
            await self._end(environment)
        self._released.set()

    async def _end(self, environment: Environment) -> None:
        await environment.stop()
        self._environments.discard(environment)

    async def _scale_in(self) -> None:
        while True:
            await asyncio.sleep(self.idle_after / 4)
            limit = time.monotonic() - self.idle_after
            # The oldest stand first; the last one stays, so that the next request finds a warm environment.
            for environment in [one for one in self._idle[:-1] if one.idle_since < limit]:
                self._idle.remove(environment)
                await self._end(environment)

    def _keep(self, task: asyncio.Task[None]) -> None:
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
