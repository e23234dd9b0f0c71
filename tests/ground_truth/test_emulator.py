"""Our runtime under AWS's runtime interface emulator, started as /var/runtime/bootstrap starts an exec wrapper.

The emulator gives answers out in one piece and drops trailers; its other mode, which does not, is in
`test_managed_instances.py`.
"""

import base64
import json
import sys
from pathlib import Path

import pytest

from local.invoke import Emulator
from tests.ground_truth.emulator import build, invoke, invoke_with

pytestmark = [pytest.mark.anyio, pytest.mark.skipif(sys.platform != "linux", reason="the emulator needs Linux")]

PRELUDE = (
    b'{"statusCode":200,"headers":{"content-type":"text/event-stream","x-custom":"a"},'
    b'"cookies":["a=1; Path=/","b=2; HttpOnly"]}' + b"\0" * 8
)
EVENTS = b'data: {"n":1}\n\ndata: {"n":2}\n\ndata: bye\n\n'


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return build(tmp_path_factory.mktemp("emulator"))


def body(reply: bytes) -> dict[str, object]:
    document: dict[str, object] = json.loads(reply.partition(b"\0" * 8)[2])
    return document


async def test_every_answer_is_taken_whole_by_one_process(built: Path, capfd: pytest.CaptureFixture[str]) -> None:
    async with Emulator(built, {}) as emulator:
        before = body((await invoke(emulator, "/context")).body)
        answers = [await invoke(emulator, path) for path in ("/events", "/empty", "/no-content", "/events")]
        after = body((await invoke(emulator, "/context")).body)
    assert [answer.body for answer in answers] == [
        PRELUDE + EVENTS,
        PRELUDE,
        b'{"statusCode":204,"headers":{}}' + b"\0" * 8,
        PRELUDE + EVENTS,
    ]
    assert before["pid"] == after["pid"]
    # The runtime says so when it is answered anything but 202.
    assert "did not take" not in capfd.readouterr().err


async def test_an_error_before_the_first_byte_is_the_answer(built: Path, capfd: pytest.CaptureFixture[str]) -> None:
    async with Emulator(built, {}) as emulator:
        before = body((await invoke(emulator, "/context")).body)
        failed = json.loads((await invoke(emulator, "/throws")).body)
        after = body((await invoke(emulator, "/context")).body)
    assert (failed["errorType"], failed["errorMessage"]) == ("ValueError", "before the first write")
    assert "app.py" in failed["stackTrace"][-1]
    assert before["pid"] == after["pid"]
    assert "did not take" not in capfd.readouterr().err


async def test_an_error_in_the_middle_keeps_what_was_sent(built: Path, capfd: pytest.CaptureFixture[str]) -> None:
    async with Emulator(built, {}) as emulator:
        failed = await invoke(emulator, "/fails")
        assert (await invoke(emulator, "/events")).body == PRELUDE + EVENTS
    assert failed.body == PRELUDE + b'data: {"n":1}\n\ndata: {"n":2}\n\n'
    log = capfd.readouterr().err
    assert "mid-stream" in log
    assert "did not take" not in log


async def test_an_event_that_is_not_http_is_an_error_and_no_more(built: Path) -> None:
    async with Emulator(built, {}) as emulator:
        refused = json.loads((await invoke_with(emulator, b'{"a":1}')).body)
        assert refused["errorType"] == "RuntimeError"
        assert (await invoke(emulator, "/events")).body == PRELUDE + EVENTS


@pytest.mark.parametrize(
    ("handler", "kind"),
    [("nowhere.handler", "Runtime.ImportModuleError"), ("app.nothing", "Runtime.HandlerNotFound")],
)
async def test_an_init_error_is_the_answer(built: Path, handler: str, kind: str) -> None:
    async with Emulator(built, {"_HANDLER": handler}) as emulator:
        answer = await invoke(emulator, "/events")
    assert answer.status == 502
    error = json.loads(answer.body)
    assert error["errorType"] == kind
    assert handler.partition(".")[0 if kind.endswith("ImportModuleError") else 2] in error["errorMessage"]
    assert set(error) == {"errorType", "errorMessage", "requestId", "stackTrace"}


async def test_after_a_timeout_another_process_goes_on(built: Path) -> None:
    async with Emulator(built, {"AWS_LAMBDA_FUNCTION_TIMEOUT": "1"}) as emulator:
        before = body((await invoke(emulator, "/context")).body)
        assert 0 < int(str(before["remaining"])) <= 1_000
        late = await invoke(emulator, "/hangs")
        after = body((await invoke(emulator, "/context")).body)
    assert b"Task timed out after 1.00 seconds" in late.body
    assert before["pid"] != after["pid"]


async def test_what_the_caller_tells_is_in_the_scope(built: Path) -> None:
    """All but the X-Ray id, which this emulator takes and keeps to itself: see `test_context.py`."""
    client_context = {"custom": {"k": "ü"}, "client": {"app_title": "t"}, "w3c": {"traceparent": "00-1-2-01"}}
    headers = {
        "X-Amz-Client-Context": base64.b64encode(json.dumps(client_context).encode()).decode(),
        "X-Amz-Tenant-Id": "blue",
    }
    async with Emulator(built, {}) as emulator:
        told = body((await invoke(emulator, "/context", headers)).body)
        untold = body((await invoke(emulator, "/context")).body)
    assert told["client"] == {"custom": {"k": "ü"}, "title": "t"}
    assert told["w3c"] == {"traceparent": "00-1-2-01"}
    assert told["tenant_id"] == "blue"
    assert str(told["arn"]).startswith("arn:aws:lambda:")
    assert str(told["execution_env"]).startswith("AWS_Lambda_python3.")
    assert (untold["client"], untold["w3c"], untold["tenant_id"]) == (None, {}, None)
    assert untold["request_id"] != told["request_id"]
