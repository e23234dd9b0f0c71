"""The demo model as the official client sees it: OpenAI's shapes, a kept thread, honest words."""

import json
import re
import subprocess
import sys
import time
from collections.abc import AsyncIterator, Iterator
from datetime import datetime
from pathlib import Path
from typing import Any

import httpx2
import openai
import pytest

from local.child import start_child

pytestmark = pytest.mark.anyio

ROOT = Path(__file__).resolve().parents[2]


@pytest.fixture(scope="module")
def url() -> Iterator[str]:
    command = [sys.executable, "-m", "local.demo_model", "--token-delay", "0"]
    with subprocess.Popen(command, cwd=ROOT, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        yield process.stdout.readline().removeprefix("ready ").strip() + "/v1"
        process.communicate()


@pytest.fixture
async def client(url: str) -> AsyncIterator[openai.AsyncOpenAI]:
    async with openai.AsyncOpenAI(base_url=url, api_key="any", max_retries=0) as client:
        yield client


class Chat:
    """A thread as a client keeps it."""

    def __init__(self, client: openai.AsyncOpenAI) -> None:
        self.client = client
        self.messages: list[Any] = [{"role": "system", "content": "Be nice."}]

    async def say(self, text: str) -> str:
        self.messages.append({"role": "user", "content": text})
        stream = await self.client.chat.completions.create(model="any", messages=self.messages, stream=True)
        answer = "".join([c.choices[0].delta.content or "" async for c in stream])
        self.messages.append({"role": "assistant", "content": answer})
        return answer


async def test_a_stream_has_the_exact_shape_of_openais(url: str) -> None:
    async with httpx2.AsyncClient() as http:
        answer = await http.post(
            f"{url}/chat/completions",
            json={
                "model": "gpt-x",
                "stream": True,
                "stream_options": {"include_usage": True},
                "messages": [{"role": "user", "content": "count to 3"}],
            },
        )
    assert answer.headers["content-type"].startswith("text/event-stream")
    *frames, done, end = answer.text.split("\n\n")
    assert (done, end) == ("data: [DONE]", "")
    first, *pieces, finish, usage = [json.loads(frame.removeprefix("data: ")) for frame in frames]
    for chunk in (first, *pieces, finish, usage):
        assert chunk["id"] == first["id"]
        assert chunk["id"].startswith("chatcmpl-")
        assert (chunk["object"], chunk["model"]) == ("chat.completion.chunk", "gpt-x")
        assert abs(chunk["created"] - time.time()) < 60
    assert first["choices"] == [
        {
            "index": 0,
            "delta": {"role": "assistant", "content": "", "refusal": None},
            "logprobs": None,
            "finish_reason": None,
        }
    ]
    assert [piece["choices"][0]["delta"]["content"] for piece in pieces][-3:] == ["1 ", "2 ", "3."]
    assert finish["choices"] == [{"index": 0, "delta": {}, "logprobs": None, "finish_reason": "stop"}]
    assert finish["usage"] is None
    assert usage["choices"] == []
    assert usage["usage"]["completion_tokens"] == len(pieces)
    assert usage["usage"]["total_tokens"] == usage["usage"]["prompt_tokens"] + len(pieces)


async def test_without_stream_the_answer_comes_whole(client: openai.AsyncOpenAI) -> None:
    whole = await client.chat.completions.create(model="any", messages=[{"role": "user", "content": "hello"}])
    assert (whole.object, whole.choices[0].finish_reason) == ("chat.completion", "stop")
    assert whole.choices[0].message.content.startswith("I am a scripted demo model, not a real one. Hello!")
    assert whole.usage.completion_tokens > 10
    assert [entry.id for entry in (await client.models.list()).data] == ["demo"]


async def test_it_says_once_that_it_is_scripted_and_proves_that_the_thread_is_kept(
    client: openai.AsyncOpenAI,
) -> None:
    chat = Chat(client)
    assert (await chat.say("My cat is called Plum")).startswith("I am a scripted demo model")
    second = await chat.say("She likes fish")
    assert "scripted" not in second
    assert "“She likes fish”" in second
    assert "message 2 of yours" in second
    assert "“My cat is called Plum”" in second
    assert "“My cat is called Plum”" in await chat.say("What did I say first?")
    everything = await chat.say("what did I say?")
    assert "3 messages" in everything
    assert "2. “She likes fish”" in everything


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("Hello!", r"Hello! Your words"),
        ("What can you do?", r"count to 20"),
        ("please count to 20", r"1 2 3 .* 19 20\.$"),
        ("write a long answer", r"(?s)# A long answer.*```python.*the end of the long answer"),
        ("what did I say first?", r"first thing you have said"),
        ("hithere", r"You said: “hithere”"),
        ("", r"You sent me no text"),
        ("Grüße 🌊", r"“Grüße 🌊”"),
    ],
)
async def test_what_it_answers(client: openai.AsyncOpenAI, text: str, expected: str) -> None:
    assert re.search(expected, await Chat(client).say(text))


async def test_content_in_parts_is_read_and_odd_messages_do_no_harm(client: openai.AsyncOpenAI) -> None:
    messages: list[Any] = [
        {"role": "developer", "content": "x"},
        {"role": "user", "content": [{"type": "text", "text": "one "}, {"type": "text", "text": "two"}]},
        {"role": "assistant", "content": None, "tool_calls": []},
        {"role": "tool", "tool_call_id": "c", "content": "result"},
    ]
    whole = await client.chat.completions.create(model="any", messages=messages)
    assert "“one two”" in whole.choices[0].message.content


async def test_the_time_it_tells_is_the_time_of_sending(client: openai.AsyncOpenAI) -> None:
    before = time.time()
    said = re.search(r"\S+Z", await Chat(client).say("What time is it?"))
    assert before - 0.002 <= datetime.fromisoformat(said[0]).timestamp() <= time.time()


async def test_a_token_limit_cuts_the_answer_with_length(client: openai.AsyncOpenAI) -> None:
    whole = await client.chat.completions.create(
        model="any", messages=[{"role": "user", "content": "hello"}], max_completion_tokens=3
    )
    assert (whole.choices[0].message.content, whole.choices[0].finish_reason) == ("I am a ", "length")
    assert whole.usage.completion_tokens == 3


@pytest.mark.parametrize(
    ("body", "param"),
    [
        (b"{nonsense", None),
        (b"[]", None),
        (b'{"messages":[{"role":"user","content":"x"}]}', "model"),
        (b'{"model":"m"}', "messages"),
        (b'{"model":"m","messages":[]}', "messages"),
        (b'{"model":"m","messages":["x"]}', "messages[0]"),
        (b'{"model":"m","messages":[{"role":"user","content":7}]}', "messages[0].content"),
        (b'{"model":"m","messages":[{"role":"user"}],"max_tokens":"3"}', "max_completion_tokens"),
    ],
)
async def test_a_malformed_request_gets_openais_400(url: str, body: bytes, param: str | None) -> None:
    async with httpx2.AsyncClient() as http:
        answer = await http.post(f"{url}/chat/completions", content=body)
        unknown = await http.post(f"{url}/nothing", content=body)
    error = answer.json()["error"]
    assert (answer.status_code, error["type"], error["param"]) == (400, "invalid_request_error", param)
    assert error["message"]
    assert (unknown.status_code, unknown.json()["error"]["type"]) == (404, "invalid_request_error")


async def test_tokens_take_their_time() -> None:
    child = await start_child(["-m", "local.demo_model", "--token-delay", "20"])
    try:
        async with openai.AsyncOpenAI(base_url=f"{child.url}/v1", api_key="any") as client:
            start = time.monotonic()
            stream = await client.chat.completions.create(
                model="any", messages=[{"role": "user", "content": "hello"}], stream=True, max_tokens=5
            )
            times = [time.monotonic() - start async for c in stream if c.choices[0].delta.content]
        # Never early; how late it may be depends on the machine.
        assert times[0] >= 0.9 * 0.020 * 9
        assert times[-1] - times[0] >= 0.9 * 0.020 * 4 - 0.02
    finally:
        await child.stop()
