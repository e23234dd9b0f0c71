"""Logs beside those of AWS's own Python runtime: the same program under both writes the same lines and frames."""

from __future__ import annotations

import json
import re
import sys
from itertools import product
from pathlib import Path
from typing import Any

import pytest

from local.environment import STREAMING_RUNTIME
from tests.ground_truth.raw_api import Given, Run, run

pytestmark = pytest.mark.anyio

APPS = Path(__file__).parent / "apps"
AWSLAMBDARIC = (sys.executable, "-m", "awslambdaric")
TENANT = [("Lambda-Runtime-Aws-Tenant-Id", "blue")]
INVOCATIONS = [
    Given("id-1", "/works"),
    Given("id-2", "/fails", TENANT),
    Given("id-3", "/fails-without-a-word"),
    Given("id-4", "/works"),
]
SETTINGS = [
    {"AWS_LAMBDA_LOG_FORMAT": log_format, **({"AWS_LAMBDA_LOG_LEVEL": level} if level else {})}
    for log_format, level in product(("Text", "JSON"), (None, "INFO", "ERROR"))
] + [{}]

Frame = tuple[str, str]


async def both(env: dict[str, str], telemetry: bool, suffix: str = "") -> tuple[Run, Run]:
    handler = f"diary.plain{suffix}"
    awss = await run((*AWSLAMBDARIC, handler), handler, APPS, INVOCATIONS, env, telemetry)
    ours = await run(STREAMING_RUNTIME, f"diary.handler{suffix}", APPS, INVOCATIONS, env, telemetry)
    return awss, ours


def frames(telemetry: bytes) -> list[Frame]:
    """Type and message of each frame. Four bytes of type, four of length, eight of time in microseconds."""
    result, place = [], 0
    while place < len(telemetry):
        kind, length = telemetry[place : place + 4].hex(), int.from_bytes(telemetry[place + 4 : place + 8], "big")
        microseconds = int.from_bytes(telemetry[place + 8 : place + 16], "big")
        assert 1_700_000_000 < microseconds / 1e6 < 10_000_000_000
        message = telemetry[place + 16 : place + 16 + length]
        assert len(message) == length
        result.append((kind, comparable(message.decode())))
        place += 16 + length
    return result


def comparable(text: str) -> str:
    """Without times, and in traces only the frames of `work`: those before belong to the two runtimes."""
    text = re.sub(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(\.\d{3})?Z", "TIME", text)
    if text.startswith("{"):
        return "\n".join(_comparable_document(line) for line in text.splitlines())
    frame_of_a_runtime = (
        r'[\r\n][ \xa0]{2}File "[^"]*", line \d+, in (?!work\b)[^\r\n]*'
        r"([\r\n][ \xa0]{4,}[^\r\n]*)*"
    )
    return re.sub(frame_of_a_runtime, "", text)


def _comparable_document(line: str) -> str:
    if not line.startswith("{"):
        return line
    document: dict[str, Any] = json.loads(line)
    if "stackTrace" in document:
        document["stackTrace"] = [frame for frame in document["stackTrace"] if ", in work\n" in frame]
    return json.dumps(document, ensure_ascii=False)  # the order of the keys stays


def lines(output: str) -> list[str]:
    return [comparable(line) for line in output.split("\n")]


@pytest.mark.parametrize("env", SETTINGS, ids=lambda env: "-".join(env.values()) or "default")
async def test_the_same_lines(env: dict[str, str]) -> None:
    awss, ours = await both(env, telemetry=False)
    assert awss.output.count("printed") == 4
    assert awss.output.count(", in work") >= 6  # four caught and two not: their frames are compared
    assert lines(ours.output) == lines(awss.output)


@pytest.mark.parametrize("env", SETTINGS, ids=lambda env: "-".join(env.values()) or "default")
async def test_the_same_frames(env: dict[str, str]) -> None:
    awss, ours = await both(env, telemetry=True)
    assert frames(awss.telemetry)
    assert frames(ours.telemetry) == frames(awss.telemetry)
    assert lines(ours.output) == lines(awss.output)  # what is printed passes the descriptor by


@pytest.mark.parametrize("log_format", ["Text", "JSON"])
async def test_at_debug_level_there_is_nothing_missing(log_format: str) -> None:
    """Our loop, being one of asyncio, has details of its own there."""
    awss, ours = await both({"AWS_LAMBDA_LOG_FORMAT": log_format, "AWS_LAMBDA_LOG_LEVEL": "TRACE"}, telemetry=True)
    more = [message for _, message in frames(ours.telemetry) if "diary" not in message and "detail" not in message]
    assert [frame for frame in frames(awss.telemetry) if frame not in frames(ours.telemetry)] == []
    assert any("a detail" in message for _, message in frames(ours.telemetry))
    assert more


@pytest.mark.parametrize("log_format", ["Text", "JSON"])
async def test_the_same_words_about_a_failed_initialisation(log_format: str) -> None:
    awss, ours = await both({"AWS_LAMBDA_LOG_FORMAT": log_format}, telemetry=True, suffix="_that_is_not_there")
    aws_frames = [(kind, message.replace("plain_that", "handler_that")) for kind, message in frames(awss.telemetry)]
    assert frames(ours.telemetry) == aws_frames
    assert ours.exit_code == awss.exit_code == 1


async def test_the_same_warning_of_a_preview() -> None:
    awss, ours = await both({"AWS_EXECUTION_ENV": "AWS_Lambda_python3.15"}, telemetry=True)
    assert "preview" in frames(awss.telemetry)[0][1]
    assert frames(ours.telemetry) == frames(awss.telemetry)


@pytest.mark.parametrize("log_format", ["Text", "JSON"])
async def test_two_invocations_at_once_have_their_own_ids(log_format: str) -> None:
    env = {"AWS_LAMBDA_MAX_CONCURRENCY": "2", "AWS_LAMBDA_LOG_FORMAT": log_format}
    given = [
        Given("id-a", "/meets?logs-a", [("Lambda-Runtime-Aws-Tenant-Id", "tenant-a")]),
        Given("id-b", "/meets?logs-b", [("Lambda-Runtime-Aws-Tenant-Id", "tenant-b")]),
    ]
    ours = await run(STREAMING_RUNTIME, "app.handler", APPS, given, env)
    said = ours.output.splitlines()
    assert len(said) == 4, ours.output
    for line in said:
        name = "a" if "logs-a" in line else "b"
        if log_format == "JSON":
            document = json.loads(line)
            assert (document["requestId"], document["tenantId"]) == (f"id-{name}", f"tenant-{name}")
        else:
            level, _, request_id, message = line.split("\t")
            assert (level, request_id, message[:6]) == ("[WARNING]", f"id-{name}", f"logs-{name}")
