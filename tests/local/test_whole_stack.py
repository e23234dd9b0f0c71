"""The agent as a newcomer meets it: the default stack, its demo model and its table, over HTTP."""

import asyncio
import json
import time
from itertools import pairwise
from pathlib import Path

import aiohttp
import pytest

from local.child import listen
from local.stack import LocalStack

pytestmark = pytest.mark.anyio


async def chat(http: aiohttp.ClientSession, stack: LocalStack, text: str, thread: str = "t1") -> str:
    """Sends one new message; returns the answer's text."""
    body = {"threadId": thread, "runId": text, "messages": [{"id": text, "role": "user", "content": text}]}
    async with http.post(stack.url, json=body) as response:
        assert response.status == 200, await response.text()
        events = [json.loads(line[6:]) async for line in response.content if line.startswith(b"data: ")]
    assert events[-1]["type"] == "RUN_FINISHED", events[-1]
    return "".join(event.get("delta", "") for event in events)


async def test_tokens_arrive_one_by_one_and_uncompressed():
    async with LocalStack() as stack, aiohttp.ClientSession(auto_decompress=False) as http:
        body = {"threadId": "t1", "runId": "r1", "messages": [{"id": "m1", "role": "user", "content": "Hello"}]}
        began = time.monotonic()
        async with http.post(stack.url, json=body, headers={"accept-encoding": "gzip"}) as response:
            assert "content-encoding" not in response.headers
            arrivals = [
                (json.loads(line[6:])["type"], time.monotonic() - began)
                async for line in response.content
                if line.startswith(b"data: ")
            ]
        tokens = [at for kind, at in arrivals if kind == "TEXT_MESSAGE_CONTENT"]
        assert arrivals[0][0] == "RUN_STARTED"
        assert arrivals[0][1] < 0.2
        # The model leaves time between its tokens, and that time is still there.
        assert len(tokens) > 5
        assert max(later - earlier for earlier, later in pairwise(tokens)) < 0.5
        assert tokens[-1] - tokens[0] > 0.01 * len(tokens)


async def test_threads_outlive_the_environments_and_the_stack(tmp_path: Path):
    with listen() as free:
        port = free.getsockname()[1]
    async with aiohttp.ClientSession() as http:
        async with LocalStack(port=port, data=tmp_path) as stack:
            assert "first message" in await chat(http, stack, "one")
            await stack.function.restart()
            assert "first message" not in await chat(http, stack, "two")
        async with LocalStack(port=port, data=tmp_path) as stack:
            assert "first message" not in await chat(http, stack, "three")


async def test_a_stack_that_is_stopped_in_the_middle_of_an_answer_keeps_what_was_said(tmp_path: Path):
    with listen() as free:
        port = free.getsockname()[1]
    body = {"threadId": "t1", "runId": "r1", "messages": [{"id": "m1", "role": "user", "content": "count to 500"}]}
    async with aiohttp.ClientSession() as http:
        async with LocalStack(port=port, data=tmp_path) as stack:
            running = await http.post(stack.url, json=body)
            said = ""
            async for line in running.content:
                if line.startswith(b"data: "):
                    said += json.loads(line[6:]).get("delta", "")
                if " 3 " in said:
                    break
            began = time.monotonic()
        assert time.monotonic() - began < 2
        with pytest.raises(aiohttp.ClientPayloadError):
            await running.read()
        kept = next(tmp_path.glob("threads-*.jsonl")).read_text()
        assert said.strip() in kept
        async with LocalStack(port=port, data=tmp_path) as stack:
            assert "count to 500" in await chat(http, stack, "two")


async def test_two_stacks_side_by_side_share_nothing(tmp_path: Path):
    async with (
        LocalStack(data=tmp_path) as one,
        LocalStack(data=tmp_path) as two,
        aiohttp.ClientSession() as http,
    ):
        answers = await asyncio.gather(chat(http, one, "one"), chat(http, two, "one"))
    assert all("first message" in answer for answer in answers)
