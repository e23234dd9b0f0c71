"""Replies that are not taken to their end: too large, too late, of another invocation, for an invoker who has left."""

import asyncio
import json
from collections.abc import AsyncIterator

import pytest

from local.invocation import Caller
from local.runtime_api import RuntimeAPI
from tests.local.exchange import connected, content, invocation, invoked, serving
from tests.local.raw_runtime import NEXT, Http

pytestmark = pytest.mark.anyio

KIB = 1024


@pytest.fixture
async def api() -> AsyncIterator[RuntimeAPI]:
    async with serving(streamed_limit=100 * KIB) as api:
        yield api


@pytest.fixture
async def http(api: RuntimeAPI) -> AsyncIterator[Http]:
    async with connected(api) as http:
        yield http


async def refused(http: Http) -> tuple[int, str, bool]:
    """Status, error type, and whether the connection ends with it."""
    status, headers, body = await http.answer()
    return status, json.loads(body)["errorType"], headers.get("connection") == "close"


async def send(http: Http, kib: int) -> None:
    for _ in range(kib):
        http.chunk(b"x" * KIB)
        await http.writer.drain()


async def silent(http: Http, asked: asyncio.Task) -> bool:
    """Whether the Runtime API has said nothing, although it has read all that was sent."""
    await asyncio.sleep(0.05)
    return not asked.done()


async def next_works(api: RuntimeAPI, http: Http) -> None:
    reply = await invoked(api, http, "r2")
    http.respond("r2", body=b"2")
    assert (await http.answer())[0] == 202
    assert await content(reply) == b"2"


async def test_a_stream_over_the_limit_is_413_at_its_end_and_the_reader_sees_the_cut(api, http):
    reply = await invoked(api, http)
    http.stream("r1")
    await send(http, 100)
    asked = asyncio.create_task(refused(http))
    assert not reply.outcome
    await send(http, 100)
    assert await silent(http, asked)
    assert len(await content(reply)) == 100 * KIB
    assert (reply.outcome.error_type, reply.outcome.truncated) == ("Function.ResponseSizeTooLarge", True)
    http.end()
    assert await asked == (413, "RequestEntityTooLarge", False)
    await next_works(api, http)


async def test_a_stream_far_over_the_limit_is_413_after_256_kib_more_and_the_connection_ends(api, http):
    await invoked(api, http)
    http.stream("r1")
    await send(http, 100 + 250)
    asked = asyncio.create_task(refused(http))
    assert await silent(http, asked)
    await send(http, 20)
    assert await asked == (413, "RequestEntityTooLarge", True)
    assert await http.reader.read() == b""
    async with connected(api) as again:
        await next_works(api, again)


@pytest.mark.parametrize(("size", "status"), [(6_291_556, 202), (6_291_557, 413), (20_000_000, 413)])
async def test_a_buffered_reply_may_have_six_megabytes(api, http, size, status):
    reply = await invoked(api, http)
    reading = asyncio.create_task(content(reply))
    http.respond("r1", body=b"1" * size)
    assert (await http.answer())[0] == status
    assert len(await reading) == (size if status == 202 else 0)
    assert reply.outcome.error_type == (None if status == 202 else "Function.ResponseSizeTooLarge")


async def test_an_invoker_who_leaves_is_not_told_before_the_body_ends(api, http):
    reply = await invoked(api, http)
    http.stream("r1")
    http.chunk(b"x")
    await anext(aiter(reply))
    reply.refuse(400)
    asked = asyncio.create_task(refused(http))
    await send(http, 200)
    assert await silent(http, asked)
    http.end()
    assert await asked == (400, "TruncatedHTTPRequest", True)
    assert await http.reader.read() == b""
    async with connected(api) as again:
        await next_works(api, again)


async def test_an_invoker_who_leaves_is_told_after_256_kib_more(api, http):
    reply = await invoked(api, http)
    http.stream("r1")
    reply.refuse(400)
    asked = asyncio.create_task(refused(http))
    await send(http, 257)
    assert await asked == (400, "TruncatedHTTPRequest", True)


@pytest.mark.parametrize("status", [400, 410, 413])
async def test_a_refusal_can_come_at_once_while_the_runtime_is_silent(api, http, status):
    reply = await invoked(api, http)
    http.stream("r1")
    http.chunk(b"x")
    await anext(aiter(reply))
    reply.refuse(status, swallow=0)
    assert (await refused(http))[::2] == (status, True)
    assert await content(reply) == b""
    assert reply.outcome.error_type
    async with connected(api) as again:
        await next_works(api, again)


async def test_a_reply_that_has_not_begun_is_refused_when_it_does(api, http):
    reply = await invoked(api, http)
    reply.refuse(410)
    http.respond("r1")
    assert await refused(http) == (410, "InvokeTimeout", False)
    await next_works(api, http)


async def test_a_reader_who_waits_for_more_is_told_of_the_refusal(api, http):
    reply = await invoked(api, http)
    http.stream("r1")
    waiting = asyncio.create_task(content(reply))
    reply.refuse(400)
    assert await waiting == b""
    assert reply.outcome.truncated


async def test_what_comes_after_the_end_is_not_refused_any_more(api, http):
    reply = await invoked(api, http)
    http.respond("r1", body=b"1")
    assert (await http.answer())[0] == 202
    reply.refuse(413)
    assert await content(reply) == b"1"
    assert reply.outcome.error_type is None


async def test_the_invocation_id_is_sent_and_a_wrong_echo_is_410(api, http):
    http.send(f"GET {NEXT} HTTP/1.1")
    await api.polled()
    reply = api.invoke(invocation(invocation_id="nonce"))
    _, headers, _ = await http.answer()
    assert headers["lambda-runtime-invocation-id"] == "nonce"
    for path in ("response", "error"):
        http.respond("r1", "Lambda-Runtime-Invocation-Id: other", path=path)
        assert await refused(http) == (410, "InvokeTimeout", False)
    http.respond("r1", "Lambda-Runtime-Invocation-Id: nonce", body=b"1")
    assert (await http.answer())[0] == 202
    assert await content(reply) == b"1"


async def test_an_older_runtime_that_echoes_nothing_is_taken(api, http):
    reply = await invoked(api, http, invocation_id="nonce")
    http.respond("r1", body=b"1")
    assert (await http.answer())[0] == 202
    assert await content(reply) == b"1"


async def test_the_invocation_id_is_not_sent_unless_asked_for(api, http):
    http.send(f"GET {NEXT} HTTP/1.1")
    await api.polled()
    api.invoke(invocation())
    _, headers, _ = await http.answer()
    told = {"lambda-runtime-invocation-id", "lambda-runtime-client-context", "lambda-runtime-aws-tenant-id"}
    assert not told & headers.keys()


async def test_what_the_caller_tells_of_itself_is_in_the_headers(api, http):
    caller = Caller({"custom": {"a": "ü"}}, {"cognitoIdentityId": "i", "cognitoIdentityPoolId": "p"}, "blue")
    http.send(f"GET {NEXT} HTTP/1.1")
    await api.polled()
    api.invoke(invocation(caller=caller))
    _, headers, _ = await http.answer()
    assert json.loads(headers["lambda-runtime-client-context"]) == {"custom": {"a": "ü"}}
    assert json.loads(headers["lambda-runtime-cognito-identity"])["cognitoIdentityId"] == "i"
    assert headers["lambda-runtime-aws-tenant-id"] == "blue"
