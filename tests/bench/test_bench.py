"""The benchmark runs, measures what it says, and compares like with like. No figure is judged here."""

import asyncio
import os
import re
from functools import partial
from itertools import pairwise
from typing import Any

import pytest

from bench import plain
from bench.__main__ import run
from bench.answer import WrongAnswer, ask, run_input
from bench.client import Exchange, exchange
from bench.plain import streaming_servers
from bench.plan import QUICK
from bench.process import child_running
from bench.programs.model import TOKEN, script
from bench.stage import FLOOR, LAMBDA, RUNTIME, Stage, Subject, set_up
from local.child import ChildFailed, LoopbackServer, listen

pytestmark = pytest.mark.anyio


async def test_a_quick_run_fills_its_tables():
    report = await run(QUICK)

    tables = [[line.strip("|").split("|") for line in part.splitlines()] for part in report.split("\n\n")[:-1]]
    figures = {row[0].strip(): [cell.strip() for cell in row[1:]] for rows in tables for row in rows[2:]}
    assert len(tables) == 3
    for label, cells in figures.items():
        measured = [cell for cell in cells if cell]
        assert all(float(cell.replace(",", "")) > 0 for cell in measured), label
        # A cold start is measured on the local Lambda and the floor alone.
        assert len(measured) == (2 if label.startswith("cold start") else len(cells)), label


async def test_the_floor_writes_the_bytes_of_our_app():
    async def bytes_of(subject: Subject) -> bytes:
        reply = await asyncio.to_thread(subject.post, run_input("t", script(3), history=2))
        assert reply.status == 200
        body = b"".join(piece for _, piece in reply.body)
        return re.sub(rb"msg_[0-9a-f]{32}|(?<=delta\":\")\d+", b"", body)

    async with set_up() as stage:
        bodies = {subject.name: await bytes_of(subject) for subject in stage.subjects}

    assert bodies[FLOOR].count(TOKEN.encode()) == 2
    assert set(bodies.values()) == {bodies[FLOOR]}


async def test_a_paced_token_carries_the_time_at_which_it_was_sent():
    async with set_up() as stage:
        answer = await next(subject for subject in stage.subjects if subject.name == LAMBDA).ask(5, pause=1)

    sent = [int(text) for _, text in answer.content]
    assert all(answer.sent < stamp < arrival for stamp, (arrival, _) in zip(sent, answer.content, strict=True))
    assert all(later - earlier >= 1_000_000 for earlier, later in pairwise(sent))


async def test_a_paced_chunk_carries_the_time_at_which_it_was_made():
    stage = Stage(dict(os.environ), table_url="")
    async with streaming_servers(stage) as subjects:
        streams = [await asyncio.to_thread(plain.ask, subject.post, 5, pause=1) for subject in subjects]

    for stream in streams:
        assert all(made < arrived for made, arrived in zip(stream.made, stream.arrived, strict=True))
        assert all(later - earlier >= 1_000_000 for earlier, later in pairwise(stream.made))


async def test_the_bare_lambda_has_many_streams_open_at_once():
    stage = Stage(dict(os.environ), table_url="")
    async with plain.start(stage, RUNTIME, "chunks", streams=2) as subject:
        streams = await asyncio.gather(
            *(asyncio.to_thread(plain.ask, subject.post, 10, pause=20) for _ in range(2)),
        )

    assert max(stream.made[0] for stream in streams) < min(stream.made[-1] for stream in streams)


async def test_a_function_that_cannot_start_is_told_at_once():
    with pytest.raises(ChildFailed, match="could not be initialised"):
        async with plain.start(Stage(dict(os.environ), table_url=""), RUNTIME, "no_such_app"):
            pass


async def test_half_a_stream_is_not_measured():
    def half(_: bytes) -> Exchange:
        return Exchange(0, 200, [(1, b"0" * 100)])

    with pytest.raises(WrongAnswer, match="200 with 100 bytes"):
        plain.ask(half, count=2, size=100)


async def test_what_is_no_whole_run_is_not_measured():
    async def broken(scope: Any, receive: Any, send: Any) -> None:
        await send({"type": "http.response.start", "status": 503, "headers": []})
        await send({"type": "http.response.body", "body": b"not today"})

    server = LoopbackServer(broken, listen())
    await server.start()
    with pytest.raises(WrongAnswer, match="503 b'not today'"):
        await asyncio.to_thread(ask, partial(exchange, "POST", f"http://127.0.0.1:{server.port}"), "t", tokens=3)
    await server.stop()


def test_a_process_that_is_not_there_is_not_measured():
    with pytest.raises(LookupError, match="no child that runs no-such-program"):
        child_running(1, "no-such-program")
