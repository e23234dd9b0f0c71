"""The Runtime API, byte by byte: the answers that AWS's own server gives to right and wrong requests of a runtime."""

import asyncio
import base64
import json
from collections.abc import AsyncIterator

import pytest

from local.invocation import InitError
from local.runtime_api import RuntimeAPI
from tests.local.exchange import ARN, connected, content, invocation, invoked, serving
from tests.local.raw_runtime import NEXT, Http

pytestmark = pytest.mark.anyio

NODE_PRELUDE = b'{"statusCode":200,"headers":{"Content-Type":"text/event-stream","X-Custom":"a"}}'


@pytest.fixture
async def api() -> AsyncIterator[RuntimeAPI]:
    async with serving() as api:
        yield api


@pytest.fixture
async def http(api: RuntimeAPI) -> AsyncIterator[Http]:
    async with connected(api) as http:
        yield http


async def test_next_waits_for_an_invocation_and_carries_its_headers(api, http):
    http.send(f"GET {NEXT} HTTP/1.1")
    await api.initialized
    await api.polled()
    api.invoke(invocation())
    status, headers, event = await http.answer()
    assert (status, event) == (200, b'{"n":1}')
    assert headers["lambda-runtime-aws-request-id"] == "r1"
    assert headers["lambda-runtime-deadline-ms"] == "1700000000000"
    assert headers["lambda-runtime-invoked-function-arn"] == ARN
    assert headers["lambda-runtime-trace-id"].startswith("Root=1-")
    assert headers["content-type"] == "application/json"


async def test_next_before_any_answer_gives_the_same_event_again(api, http):
    await invoked(api, http)
    assert await http.next() == ("r1", b'{"n":1}')


async def test_a_buffered_response_is_whole(api, http):
    reply = await invoked(api, http)
    http.respond("r1", body=b'{"ok":true}')
    assert (await http.answer())[0::2] == (202, b'{"status":"OK"}\n')
    assert await content(reply) == b'{"ok":true}'
    assert not reply.streaming
    assert reply.outcome.error_type is None


async def test_a_streamed_response_is_handed_on_before_it_ends(api, http):
    reply = await invoked(api, http)
    pieces = aiter(reply)
    http.stream("r1")
    for sent in (NODE_PRELUDE, b"\0" * 8, b'data: {"n":1}\n\n'):
        http.chunk(sent)
        assert await anext(pieces) == sent
    assert reply.streaming
    assert reply.content_type == "application/vnd.awslambda.http-integration-response"
    http.end()
    assert (await http.answer())[0] == 202
    assert [piece async for piece in pieces] == []
    assert not reply.outcome.truncated


async def test_trailers_tell_of_an_error_in_mid_stream(api, http):
    reply = await invoked(api, http)
    error = {"errorType": "Error", "errorMessage": "mid-stream ü", "trace": []}
    http.stream("r1")
    http.chunk(b"x")
    encoded = base64.b64encode(json.dumps(error).encode()).decode()
    http.end("Lambda-Runtime-Function-Error-Type: Error", f"Lambda-Runtime-Function-Error-Body: {encoded}")
    assert (await http.answer())[0] == 202
    assert await content(reply) == b"x"
    assert reply.outcome.error_type == "Error"
    assert json.loads(reply.outcome.error) == error
    assert not reply.outcome.truncated


async def test_trailers_that_were_not_declared_are_dropped(api, http):
    reply = await invoked(api, http)
    http.send(
        "POST /2018-06-01/runtime/invocation/r1/response HTTP/1.1",
        "Lambda-Runtime-Function-Response-Mode: streaming",
        "Transfer-Encoding: chunked",
    )
    http.end("Lambda-Runtime-Function-Error-Type: Error")
    assert (await http.answer())[0] == 202
    assert await content(reply) == b""
    assert reply.outcome.error_type is None


@pytest.mark.parametrize(("size", "status"), [(3950, 202), (4138, 400)])
async def test_a_trailer_block_has_to_be_smaller_than_4096_bytes(api, http, size, status):
    reply = await invoked(api, http)
    http.stream("r1")
    name = "Lambda-Runtime-Function-Error-Body: "
    http.end("Lambda-Runtime-Function-Error-Type: E", name + "A" * (size - len(name)))
    assert (await http.answer())[0] == status
    await content(reply)
    assert reply.outcome.truncated == (status == 400)


async def test_a_body_cut_by_half_closing_is_truncated_and_says_so(api, http):
    reply = await invoked(api, http)
    http.stream("r1")
    http.chunk(b"half")
    http.writer.write_eof()
    status, _, body = await http.answer()
    assert (status, json.loads(body)["errorType"]) == (400, "TruncatedHTTPRequest")
    assert await content(reply) == b"half"
    assert (reply.outcome.error_type, reply.outcome.truncated) == ("Runtime.TruncatedResponse", True)


async def test_after_a_cut_body_the_runtime_gets_its_next_invocation(api, http):
    reply = await invoked(api, http)
    http.stream("r1")
    http.chunk(b"half")
    http.writer.close()
    assert await content(reply) == b"half"
    again = await Http.connect(api.address)
    reply = await invoked(api, again, "r2")
    again.respond("r2", body=b"2")
    assert (await again.answer())[0] == 202
    assert await content(reply) == b"2"
    again.writer.close()


async def test_a_wrong_request_id_is_refused_and_the_right_one_still_taken(api, http):
    reply = await invoked(api, http)
    http.respond("other")
    status, _, body = await http.answer()
    assert (status, json.loads(body)["errorType"]) == (400, "InvalidRequestID")
    http.respond("r1", body=b"1")
    assert (await http.answer())[0] == 202
    assert await content(reply) == b"1"


async def test_a_second_response_is_refused_and_nothing_is_lost(api, http):
    reply = await invoked(api, http)
    for status in (202, 403):
        http.respond("r1", body=b"1")
        assert (await http.answer())[0] == status
    assert await content(reply) == b"1"
    await invoked(api, http, "r2")


async def test_an_unknown_response_mode_is_refused_and_the_environment_lost(api, http):
    reply = await invoked(api, http)
    http.respond("r1", "Lambda-Runtime-Function-Response-Mode: telepathic")
    status, _, body = await http.answer()
    assert (status, json.loads(body)["errorType"]) == (400, "InvalidFunctionResponseMode")
    await content(reply)
    assert reply.outcome.error_type == "Runtime.InvalidResponseModeHeader"
    http.send(f"GET {NEXT} HTTP/1.1")
    assert (await http.answer())[0] == 403


async def test_an_error_ends_the_invocation_with_its_type_and_body(api, http):
    reply = await invoked(api, http)
    http.respond("r1", "Lambda-Runtime-Function-Error-Type: ValueError", path="error", body=b'{"errorMessage":"no"}')
    assert (await http.answer())[0] == 202
    assert await content(reply) == b""
    assert (reply.outcome.error_type, reply.outcome.error) == ("ValueError", b'{"errorMessage":"no"}')


async def test_an_error_posted_while_the_response_is_open_waits_and_is_refused(api, http):
    reply = await invoked(api, http)
    http.stream("r1")
    http.chunk(b"x")
    await anext(aiter(reply))
    second = await Http.connect(api.address)
    second.respond("r1", path="error")
    late = asyncio.create_task(second.answer())
    http.chunk(b"y")
    http.end()
    assert (await http.answer())[0] == 202
    assert (await late)[0] == 403
    assert await content(reply) == b"y"
    assert reply.outcome.error_type is None
    second.writer.close()


async def test_an_init_error_is_kept(api, http):
    error = b'{"errorType":"Runtime.HandlerNotFound","errorMessage":"no handler"}'
    kind = "Lambda-Runtime-Function-Error-Type: Runtime.HandlerNotFound"
    http.send("POST /2018-06-01/runtime/init/error HTTP/1.1", f"Content-Length: {len(error)}", kind, body=error)
    assert (await http.answer())[0] == 202
    with pytest.raises(InitError) as raised:
        await api.initialized
    assert (raised.value.error_type, raised.value.error) == ("Runtime.HandlerNotFound", error)


async def test_a_slow_reader_holds_the_runtime_up_instead_of_filling_memory(api, http):
    reply = await invoked(api, http)
    http.stream("r1")
    sent = 0

    async def send_for_ever():
        nonlocal sent
        while True:
            http.chunk(b"x" * 100_000)
            sent += 100_000
            await http.writer.drain()

    sending = asyncio.create_task(send_for_ever())
    pieces = aiter(reply)
    first = len(await anext(pieces))
    # Let it run until it is stuck: nothing more is taken from it in a whole round of the loop's clock.
    before = -1
    while sent != before:
        before = sent
        await asyncio.sleep(0.05)
    taken = first + len(await anext(pieces))
    sending.cancel()
    assert taken < 1_000_000
    assert sent < 20_000_000


async def test_a_path_that_is_not_there(api, http):
    http.send("GET /2018-06-01/runtime/nothing HTTP/1.1")
    assert (await http.answer())[0] == 404
