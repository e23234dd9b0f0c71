"""Our runtime under AWS's emulator in its Managed Instances mode: there AWS's own code reads the trailers, notices a
cut stream, wants the invocation's nonce back and has several invocations in one process."""

import asyncio
import json
import re
import sys
from collections.abc import AsyncIterator

import pytest

from tests.ground_truth.emulator import ManagedInstances, build, invoke, namespaces_or_skip
from tests.ground_truth.test_emulator import EVENTS, PRELUDE
from tests.local.waiting import until

pytestmark = [pytest.mark.anyio, pytest.mark.skipif(sys.platform != "linux", reason="the emulator needs Linux")]


@pytest.fixture(scope="module")
async def emulator(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[ManagedInstances]:
    namespaces_or_skip()
    async with ManagedInstances(build(tmp_path_factory.mktemp("managed")), {}) as emulator:
        yield emulator


async def test_a_stream_is_taken_as_one_of_http(emulator: ManagedInstances) -> None:
    answer = await invoke(emulator, "/events")
    assert answer.body == PRELUDE + EVENTS
    assert answer.headers["content-type"] == "application/vnd.awslambda.http-integration-response"
    assert answer.headers["lambda-runtime-function-response-mode"] == "streaming"
    assert "error-type" not in answer.headers
    assert (await invoke(emulator, "/empty")).body == PRELUDE


async def test_an_error_in_the_middle_is_read_from_the_trailers(emulator: ManagedInstances) -> None:
    answer = await invoke(emulator, "/fails")
    assert "error-type" in answer.headers
    error = json.loads(answer.body)
    assert (error["errorType"], error["errorMessage"]) == ("ValueError", "mid-stream ü")
    assert "app.py" in error["stackTrace"][-1]
    assert (await invoke(emulator, "/events")).body == PRELUDE + EVENTS


async def test_an_error_larger_than_trailers_may_be_is_read_all_the_same(emulator: ManagedInstances) -> None:
    """A block of 4,096 bytes would make a truncated response of it, and the error would be lost."""
    answer = await invoke(emulator, "/fails-loudly")
    assert answer.headers["error-type"] != "Runtime.TruncatedResponse"
    error = json.loads(answer.body)
    assert error["errorType"] == "ValueError"
    assert set(error["errorMessage"]) == {"ü"}


async def test_an_error_larger_than_trailers_may_be_says_where_it_was_raised(emulator: ManagedInstances) -> None:
    error = json.loads((await invoke(emulator, "/fails-loudly")).body)
    assert "in fail_loudly" in error["stackTrace"][-1]


async def test_a_body_of_many_and_of_large_pieces_is_taken_whole(emulator: ManagedInstances) -> None:
    assert (await invoke(emulator, "/large")).body == PRELUDE + b"x" * 1_000 + b"y" * 1_000_000


async def test_a_response_that_is_too_large_is_given_up_early(emulator: ManagedInstances) -> None:
    """AWS's code says 413 while the response is being made; the app is stopped then, and the next one is served."""
    answer = await invoke(emulator, "/endless")
    assert answer.headers["error-type"] == "Function.ResponseSizeTooLarge"
    await until(lambda: "it answered 413" in emulator.log.read_text())
    (pieces,) = re.findall(r"stopped after (\d+) pieces", emulator.log.read_text())
    assert int(pieces) < 2_000
    assert (await invoke(emulator, "/events")).body == PRELUDE + EVENTS


async def test_a_header_that_http_does_not_allow_is_named(emulator: ManagedInstances) -> None:
    answer = await invoke(emulator, "/bad-header")
    assert "x-bad" in json.loads(answer.body)["errorMessage"]


async def test_a_line_of_the_log_holds_what_awss_does(emulator: ManagedInstances) -> None:
    await invoke(emulator, "/throws")
    await asyncio.gather(*(invoke(emulator, f"/meets?keys-{name}") for name in "ab"))
    await until(lambda: emulator.log.read_text().count('"keys-') == 4)
    lines = [json.loads(line) for line in emulator.log.read_text().splitlines() if '"keys-' in line]
    assert {tuple(line) for line in lines} == {("timestamp", "level", "message", "logger", "requestId")}


async def test_an_error_before_the_first_byte_is_the_answer(emulator: ManagedInstances) -> None:
    answer = await invoke(emulator, "/throws")
    assert "error-type" in answer.headers
    assert json.loads(answer.body)["errorMessage"] == "before the first write"


async def test_the_nonce_of_an_invocation_is_enforced_and_ours_is_right(emulator: ManagedInstances) -> None:
    """Who answers with another nonce is refused; the runtime, which then answers the same invocation, is not."""
    before = len(emulator.log.read_text())
    answer = await invoke(emulator, "/answers-elsewhere?another")
    said = json.loads(answer.body.partition(b"\0" * 8)[2])
    assert said["status"] == 410
    assert json.loads(said["body"])["errorType"] == "InvokeTimeout"
    # The runtime would say so before it asks for the next invocation, which this one is in any case.
    for _ in range(2):
        assert (await invoke(emulator, "/events")).body == PRELUDE + EVENTS
    log = emulator.log.read_text()[before:]
    assert "Cross-wiring detected: invocation ID mismatch on response" in log
    assert log.count("Cross-wiring") == 1
    assert "did not take" not in log


async def test_two_invocations_meet_in_one_process_and_stay_apart(emulator: ManagedInstances) -> None:
    answers = await asyncio.gather(*(invoke(emulator, f"/meets?emulator-{name}") for name in "ab"))
    told = [answer.body.partition(b"\0" * 8)[2].decode().split() for answer in answers]
    assert [name for _, _, name in told] == ["emulator-a", "emulator-b"]
    assert len({pid for pid, _, _ in told}) == 1
    ids = {name: request_id for _, request_id, name in told}
    assert len(set(ids.values())) == 2

    def lines() -> list[dict[str, str]]:
        written = emulator.log.read_text().splitlines(keepends=True)
        return [json.loads(line) for line in written if '"emulator-' in line and line.endswith("\n")]

    # The emulator passes on what the function writes when it gets to it.
    await until(lambda: len(lines()) == 4)
    assert {line["message"] for line in lines()} == {f"{name} {word}" for name in ids for word in ("came", "met")}
    assert all(line["requestId"] == ids[line["message"].split()[0]] for line in lines())


async def test_a_runtime_that_dies_in_the_middle_leaves_a_cut_stream(tmp_path_factory: pytest.TempPathFactory) -> None:
    namespaces_or_skip()
    async with ManagedInstances(build(tmp_path_factory.mktemp("dying")), {}) as emulator:
        answer = await invoke(emulator, "/dies")
    assert answer.headers["error-type"] == "Runtime.TruncatedResponse"
