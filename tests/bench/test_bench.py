"""The benchmark runs, measures what it says, and compares like with like. No figure is judged here."""

import asyncio
import re
from functools import partial
from itertools import pairwise
from typing import Any

import pytest

from bench.__main__ import run
from bench.answer import WrongAnswer, ask, run_input
from bench.client import exchange
from bench.plan import QUICK
from bench.process import child_running
from bench.programs.model import TOKEN, script
from bench.stage import FLOOR, LAMBDA, Subject, set_up
from local.child import LoopbackServer, listen

pytestmark = pytest.mark.anyio


async def test_a_quick_run_fills_its_tables():
    report = await run(QUICK)

    tables = [[line.strip("|").split("|") for line in part.splitlines()] for part in report.split("\n\n")[:-1]]
    figures = {row[0].strip(): [cell.strip() for cell in row[1:]] for rows in tables for row in rows[2:]}
    assert len(tables) == 2
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
