"""What the soak invokes, well and badly, and what its caller must see of it. One class method per kind."""

import asyncio
import itertools
import json
from collections.abc import Awaitable, Callable

import aiohttp

from local.event import event_of
from local.function import TooManyRequestsError
from local.invocation import Reply
from local.stack import LocalStack

HUGE = 100_000
LARGE = 50


class Invocations:
    """Invokes the app of one stack. Each kind raises AssertionError when the caller sees something else."""

    def __init__(self, stack: LocalStack, http: aiohttp.ClientSession) -> None:
        self._stack = stack
        self._http = http
        self._ids = itertools.count()

    # How often each is in a round.
    @property
    def round(self) -> list[Callable[[], Awaitable[None]]]:
        return [
            *[self.steady] * 12,
            *[self.leaves] * 4,
            *[self.invoker_has_gone] * 2,
            *[self.unknown_event] * 2,
            *[self.bad_header] * 2,
            *[self.raises_at_first] * 2,
            *[self.raises_at_thousandth] * 2,
            *[self.never_starts] * 2,
            *[self.goes_on_after_the_end] * 2,
            *[self.huge_header] * 2,
            self.single_bytes,
            self.large,
        ]

    async def steady(self) -> None:
        number = next(self._ids)
        status, headers, body = await self._get(f"/steady?id={number}&pieces=50")
        assert (status, headers.get("x-id")) == (200, str(number)), (status, headers)
        assert body == b"".join(b"%d:%d\n" % (number, n) for n in range(50)), body[:100]

    async def single_bytes(self) -> None:
        status, _, body = await self._get("/single-bytes?count=10000")
        assert (status, body) == (200, b"0123456789" * 1000), (status, len(body))

    async def large(self) -> None:
        status, _, body = await self._get(f"/large?megabytes={LARGE}")
        assert (status, len(body), set(body)) == (200, LARGE * 1_000_000, {ord("x")}), (status, len(body))

    async def huge_header(self) -> None:
        status, headers, _ = await self._get(f"/huge-header?size={HUGE}")
        assert (status, headers["x-huge"]) == (200, "h" * HUGE)

    async def bad_header(self) -> None:
        status, headers, _ = await self._get("/bad-header")
        assert status == 502, status
        assert "set-cookie" not in headers

    async def raises_at_first(self) -> None:
        status, _, body = await self._get("/raises?after=0")
        assert (status, body) == (200, b""), (status, body[:100])

    async def raises_at_thousandth(self) -> None:
        status, _, body = await self._get("/raises?after=1000")
        assert (status, body) == (200, b"x" * 1000), (status, len(body))

    async def never_starts(self) -> None:
        status, _, _ = await self._get("/never-starts")
        assert status == 502, status

    async def goes_on_after_the_end(self) -> None:
        status, _, body = await self._get("/goes-on-after-the-end")
        assert (status, body) == (200, b"whole"), (status, body)

    async def leaves(self) -> None:
        """A client that closes the connection in the middle."""
        number = next(self._ids)
        while True:
            response = await self._http.get(f"{self._stack.url}/steady?id={number}&pieces=2000")
            if response.status != 429:
                break
            await response.read()
            await asyncio.sleep(0.01)
        assert (await response.content.readany()).startswith(b"%d:0\n" % number)
        response.close()

    async def invoker_has_gone(self) -> None:
        """Lambda takes no more of a stream: the runtime is told so in the middle."""
        reply = await self._invoke("/steady", b"id=1&pieces=200000")
        async for _ in reply:
            reply.refuse(400)
        assert reply.outcome is not None

    async def unknown_event(self) -> None:
        reply = await self._invoke(None, b"")
        body = b"".join([piece async for piece in reply])
        assert reply.outcome is not None
        assert reply.outcome.error_type, body[:100]
        assert not reply.outcome.truncated, reply.outcome

    async def _get(self, path: str) -> tuple[int, aiohttp.typedefs.LooseHeaders, bytes]:
        """As a caller does it: tries again at 429, when clients that left keep environments busy."""
        while True:
            async with self._http.get(self._stack.url + path) as response:
                body = await response.read()
            if response.status != 429:
                return response.status, response.headers, body
            await asyncio.sleep(0.01)

    async def _invoke(self, path: str | None, query: bytes) -> Reply:
        event = {"surprise": next(self._ids)}
        if path:
            scope = {"method": "GET", "path": path, "query_string": query, "headers": []}
            event = event_of(scope, b"", url_id="u", region="us-east-1", request_id="r")
        while True:
            try:
                return await self._stack.function.invoke(json.dumps(event).encode())
            except TooManyRequestsError:
                await asyncio.sleep(0.01)
