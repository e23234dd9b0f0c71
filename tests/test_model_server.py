"""The scripted model server itself: what the other tests take for granted when they script a model."""

import asyncio
from collections.abc import AsyncIterator

import openai
import pytest

from tests.model_server import ModelServer, call, cut, fin, hang, http, raw, say, wait_for, wire

pytestmark = pytest.mark.anyio


@pytest.fixture
async def model() -> AsyncIterator[ModelServer]:
    async with ModelServer() as server:
        yield server


@pytest.fixture
async def client(model: ModelServer) -> AsyncIterator[openai.AsyncOpenAI]:
    async with openai.AsyncOpenAI(base_url=model.url, api_key="k", max_retries=0) as client:
        yield client


async def ask(
    client: openai.AsyncOpenAI, text: str = "hi"
) -> "openai.AsyncStream[openai.types.chat.ChatCompletionChunk]":
    return await client.chat.completions.create(model="any", messages=[{"role": "user", "content": text}], stream=True)


async def texts(client: openai.AsyncOpenAI, text: str = "hi") -> list[str]:
    return [c.choices[0].delta.content or "" for c in [c async for c in await ask(client, text)] if c.choices]


async def test_a_scripted_stream_reaches_the_official_client(model, client):
    model.reply(
        say("Hel", "lo"),
        call(0, "c1", "f", ['{"a"', ":1}"]),
        fin("tool_calls", usage={"prompt_tokens": 1, "completion_tokens": 2, "total_tokens": 3}),
    )
    chunks = [c async for c in await ask(client)]
    assert [c.choices[0].delta.content for c in chunks[:2]] == ["Hel", "lo"]
    assert chunks[2].choices[0].delta.tool_calls[0].function.name == "f"
    assert chunks[-2].choices[0].finish_reason == "tool_calls"
    assert chunks[-1].usage.total_tokens == 3


async def test_it_records_requests_and_counts_connections(model, client):
    model.otherwise(say("ok"), fin())
    for text in ("one", "two", "three"):
        assert await texts(client, text) == ["ok", ""]
    assert [body["messages"][0]["content"] for body in model.saw] == ["one", "two", "three"]
    assert model.requests[0].path == "/v1/chat/completions"
    assert model.requests[0].headers["authorization"] == "Bearer k"
    assert model.connections == 1


async def test_the_test_decides_when_the_next_piece_is_sent(model, client):
    released, reached = asyncio.Event(), asyncio.Event()
    reply = model.reply(say("a"), wait_for(released, reached), say("b"), fin())
    stream = await ask(client)
    assert (await anext(stream)).choices[0].delta.content == "a"
    await reached.wait()
    assert len(reply.sent) == 1
    released.set()
    assert (await anext(stream)).choices[0].delta.content == "b"
    assert [c async for c in stream][-1].choices[0].finish_reason == "stop"
    await reply.over.wait()
    assert not reply.gone.is_set()


async def test_cut_closes_in_the_middle_and_before_any_answer(model, client):
    model.reply(say("a"), cut)
    with pytest.raises(openai.APIConnectionError):
        await texts(client)
    model.reply(cut)
    with pytest.raises(openai.APIConnectionError):
        await ask(client)


async def test_an_http_error_keeps_its_status_body_and_headers(model, client):
    model.reply(http(429, {"error": {"message": "slow down", "code": "rate"}}, {"retry-after": "7"}))
    with pytest.raises(openai.RateLimitError) as refused:
        await ask(client)
    assert refused.value.response.headers["retry-after"] == "7"
    assert refused.value.body == {"message": "slow down", "code": "rate"}


async def test_without_a_script_the_answer_is_400(model, client):
    with pytest.raises(openai.BadRequestError, match="no reply was scripted"):
        await ask(client)


async def test_hang_ends_when_the_client_leaves(model, client):
    reply = model.reply(say("a"), hang)
    stream = await ask(client)
    await anext(stream)
    await stream.close()
    await asyncio.wait_for(reply.gone.wait(), 5)
    await reply.over.wait()


async def test_bytes_arrive_as_they_are(model):
    model.reply(raw(b": beat\r\n\r\n", b"data: \xc3", b"\xa9\r\n\r\n"))
    model.reply(wire(b"not http at all"), cut)
    assert (await exchange(model, b"POST /v1/x HTTP/1.1\r\ncontent-length: 2\r\n\r\n{}")).endswith(
        b"\r\n\r\na\r\n: beat\r\n\r\n\r\n7\r\ndata: \xc3\r\n5\r\n\xa9\r\n\r\n\r\n0\r\n\r\n"
    )
    chunked = b"POST /v1/x HTTP/1.1\r\ntransfer-encoding: chunked\r\n\r\n3\r\n{}\n\r\n0\r\n\r\n"
    assert await exchange(model, chunked) == b"not http at all"
    assert model.saw == [{}, {}]


async def exchange(model: ModelServer, request: bytes) -> bytes:
    host, port = model.url.removeprefix("http://").removesuffix("/v1").split(":")
    reader, writer = await asyncio.open_connection(host, int(port))
    writer.write(request)
    answer = b""
    while piece := await reader.read(1000):
        answer += piece
        if answer.endswith(b"0\r\n\r\n"):
            break
    writer.close()
    return answer
