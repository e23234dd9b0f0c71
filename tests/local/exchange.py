"""A Runtime API in this process and a runtime of raw bytes at it: how they begin, and an invocation between them."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from local.invocation import Invocation, Reply
from local.runtime_api import RuntimeAPI
from tests.local.raw_runtime import Http

ARN = "arn:aws:lambda:us-east-1:012345678912:function:agent"


@asynccontextmanager
async def serving(**options) -> AsyncIterator[RuntimeAPI]:
    api = RuntimeAPI(**options)
    await api.start()
    try:
        yield api
    finally:
        await api.close()


@asynccontextmanager
async def connected(api: RuntimeAPI) -> AsyncIterator[Http]:
    http = await Http.connect(api.address)
    try:
        yield http
    finally:
        http.writer.close()


def invocation(request_id: str = "r1", event: bytes = b'{"n":1}', **more) -> Invocation:
    return Invocation(event, deadline_ms=1_700_000_000_000, function_arn=ARN, request_id=request_id, **more)


async def invoked(api: RuntimeAPI, http: Http, request_id: str = "r1", **more) -> Reply:
    """A runtime that has just been given an invocation."""
    asking = asyncio.create_task(http.next())
    await api.polled()
    reply = api.invoke(invocation(request_id, **more))
    assert (await asking)[0] == request_id
    return reply


async def content(reply: Reply) -> bytes:
    return b"".join([piece async for piece in reply])
