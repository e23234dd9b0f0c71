"""Requests that carry a conversation: how long it takes until the model is asked.

First on a new thread, where every message has to be stored; then on the next turn of that thread, which loads and
merges them. The local table is slow, so the time it worked is taken away and shown apart. Not through the local
Lambda: the app is the same, and the emulator would add its own reading of a large request.
"""

from __future__ import annotations

import asyncio
import json
from collections import defaultdict
from statistics import median

from bench.answer import Answer
from bench.client import exchange
from bench.plan import Plan
from bench.row import Row
from bench.stage import FLOOR, UVICORN, Stage, Subject, new_thread

NEW = "new thread"
NEW_TABLE = "+ table"
NEXT = "its next turn"
NEXT_TABLE = "+ its table"
COLUMNS = (FLOOR, NEW, NEW_TABLE, NEXT, NEXT_TABLE)


async def measure(stage: Stage, plan: Plan) -> list[Row]:
    subjects = {subject.name: subject for subject in stage.subjects}
    rows: list[Row] = []
    for history in plan.histories:
        samples: dict[str, list[float]] = defaultdict(list)
        for _ in range(plan.repetitions):
            thread = new_thread()
            floor, _ = await _until_asked(stage, subjects[FLOOR], thread, history)
            samples[FLOOR].append(floor)
            for ours, its_table, messages in ((NEW, NEW_TABLE, history), (NEXT, NEXT_TABLE, history + 1)):
                total, table = await _until_asked(stage, subjects[UVICORN], thread, messages)
                samples[ours].append(total - table)
                samples[its_table].append(table)
        rows.append(Row(f"{history:,} messages before the new one", {name: median(samples[name]) for name in COLUMNS}))
    return rows


async def _until_asked(stage: Stage, subject: Subject, thread: str, history: int) -> tuple[float, float]:
    """Milliseconds from the request until the model has read its own, and for how many of them the table worked."""
    await _calls(stage)
    answer = await subject.ask(tokens=1, history=history, thread=thread)
    return (answer.asked - answer.sent) / 1e6, _table_time(await _calls(stage), answer)


def _table_time(calls: list[tuple[int, int]], answer: Answer) -> float:
    return sum(ended - began for began, ended in calls if answer.sent < began and ended < answer.asked) / 1e6


async def _calls(stage: Stage) -> list[tuple[int, int]]:
    """The table's calls since the last question, as [began, ended]."""
    reply = await asyncio.to_thread(exchange, "GET", f"{stage.table_url}/calls")
    calls: list[tuple[int, int]] = json.loads(b"".join(piece for _, piece in reply.body))
    return calls
