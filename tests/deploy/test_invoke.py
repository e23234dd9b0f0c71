"""The events of events/ through AWS's own runtime interface emulator and the built layers."""

import json
import platform
import subprocess
import sys
from collections.abc import AsyncIterator, Callable
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any

import pytest

from local.child import ROOT
from local.invoke import Answer, Emulator, settings

pytestmark = [pytest.mark.anyio, pytest.mark.skipif(sys.platform != "linux", reason="the emulator needs Linux")]

CHAT = (ROOT / "events" / "chat.json").read_bytes()
SECOND_TURN = (ROOT / "events" / "second-turn.json").read_bytes()


@pytest.fixture
def build(built: Callable[[str], Path]) -> Path:
    return built("arm64" if platform.machine() in ("aarch64", "arm64") else "x86_64")


@pytest.fixture
async def local(tmp_path: Path) -> AsyncIterator[dict[str, str]]:
    """Settings that name a table and a model on this machine."""
    async with AsyncExitStack() as stack:
        yield await settings(stack, tmp_path / "threads.jsonl")


def text(answer: Answer) -> str:
    return "".join(event["delta"] for event in answer.events if event["type"] == "TEXT_MESSAGE_CONTENT")


def with_body(event: bytes, body: str) -> bytes:
    return json.dumps(json.loads(event) | {"body": body}).encode()


async def test_one_environment_answers_turn_after_turn(build: Path, local: dict[str, str]) -> None:
    async with Emulator(build, local) as emulator:
        first = Answer(await emulator.invoke(CHAT))
        second = Answer(await emulator.invoke(SECOND_TURN))
    assert first.status == second.status == 200
    assert first.headers["content-type"].startswith("text/event-stream")
    assert first.events[0]["type"] == "RUN_STARTED"
    assert first.finished
    assert second.finished
    assert "my name is Ada" in text(second)


async def test_a_thread_outlives_its_environment(build: Path, local: dict[str, str]) -> None:
    async with Emulator(build, local) as emulator:
        await emulator.invoke(CHAT)
    async with Emulator(build, local) as emulator:
        second = Answer(await emulator.invoke(SECOND_TURN))
    assert "my name is Ada" in text(second)


async def test_bad_input_is_refused_before_a_stream_begins(build: Path, local: dict[str, str]) -> None:
    async with Emulator(build, local) as emulator:
        broken = Answer(await emulator.invoke(with_body(CHAT, "{")))
        incomplete = Answer(await emulator.invoke(with_body(CHAT, '{"threadId":"thread-1"}')))
    assert broken.status == 400
    assert 400 <= incomplete.status < 500
    assert b"runId" in incomplete.body or b"messages" in incomplete.body
    assert not broken.finished
    assert not incomplete.finished


async def test_the_built_function_wants_its_token(build: Path, local: dict[str, str]) -> None:
    locked = local | {"ACCESS": "token", "ACCESS_TOKEN": "the-right-one"}
    event: dict[str, Any] = json.loads(CHAT)
    async with Emulator(build, locked) as emulator:
        refused = Answer(await emulator.invoke(json.dumps(event).encode()))
        event["headers"]["authorization"] = "Bearer the-right-one"
        answered = Answer(await emulator.invoke(json.dumps(event).encode()))
    assert refused.status == 401
    assert answered.finished


@pytest.mark.parametrize("variables", [{"AWS_SAM_LOCAL": "true"}, {"AWS_LAMBDA_EXEC_WRAPPER": ""}])
async def test_without_a_stream_the_answer_comes_in_one_piece(
    build: Path, local: dict[str, str], variables: dict[str, str]
) -> None:
    """Under `sam local invoke`, and under the stock runtime when the wrapper is taken away."""
    async with Emulator(build, local | variables) as emulator:
        for event in (CHAT, SECOND_TURN):
            answer = json.loads(await emulator.invoke(event))
            assert answer["statusCode"] == 200
            assert '"RUN_STARTED"' in answer["body"]
            assert '"RUN_FINISHED"' in answer["body"]


async def test_the_page_is_in_the_layers(build: Path, local: dict[str, str]) -> None:
    event = json.loads(CHAT)
    del event["body"]
    event["rawPath"] = event["requestContext"]["http"]["path"] = "/agui-inspector/"
    event["requestContext"]["http"]["method"] = "GET"
    event["headers"] = {"accept": "text/html", "host": event["requestContext"]["domainName"]}
    async with Emulator(build, local | {"INSPECTOR": "on"}) as emulator:
        answer = Answer(await emulator.invoke(json.dumps(event).encode()))
    assert answer.status == 200
    assert b"<html" in answer.body.lower()


def command(*arguments: str, env: dict[str, str] | None = None) -> subprocess.CompletedProcess[str]:
    program = [sys.executable, "-m", "local.invoke", *arguments]
    return subprocess.run(program, cwd=ROOT, env=env, text=True, capture_output=True, timeout=60)


async def test_the_command_prints_the_run(build: Path, tmp_path: Path) -> None:
    shell = {"PATH": "/usr/bin:/bin"}
    done = command("events/chat.json", "--build", str(build), "--data", str(tmp_path / "data.jsonl"), env=shell)
    assert done.returncode == 0, done.stderr
    assert done.stdout.startswith("HTTP 200\ncontent-type: text/event-stream")
    assert '"RUN_FINISHED"' in done.stdout


async def test_the_command_fails_when_the_run_does(build: Path, tmp_path: Path, unused_port: int) -> None:
    nobody = {"OPENAI_BASE_URL": f"http://127.0.0.1:{unused_port}/v1", "OPENAI_API_KEY": "x", "OPENAI_MODEL": "m"}
    shell = {"PATH": "/usr/bin:/bin", **nobody}
    done = command("events/chat.json", "--build", str(build), "--data", str(tmp_path / "data.jsonl"), env=shell)
    assert done.returncode == 1
    assert '"RUN_ERROR"' in done.stdout


async def test_the_command_says_what_is_missing(tmp_path: Path) -> None:
    done = command("events/chat.json", "--build", str(tmp_path / "nothing"), "--data", str(tmp_path / "data.jsonl"))
    assert done.returncode == 1
    assert "make invoke" in done.stderr
    assert "Traceback" not in done.stderr


async def test_an_event_that_is_not_there_is_one_sentence() -> None:
    done = command("nix")
    assert done.returncode == 1
    assert done.stderr == "There is no file nix: name an event, such as events/chat.json.\n"
