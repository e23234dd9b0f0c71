"""Reports of errors beside those of AWS's own Python runtime, for the same failures."""

import json
import sys
from pathlib import Path
from typing import Any

import pytest

from local.environment import STREAMING_RUNTIME
from tests.ground_truth.raw_api import Given, Request, Run, run

pytestmark = pytest.mark.anyio

APPS = Path(__file__).parent / "apps"
GIVEN = [
    Given("id-fails", "/fails", [("Lambda-Runtime-Invocation-Id", "nonce")]),
    Given("id-wordless", "/fails-without-a-word"),
    Given("id-context", "/works", [("Lambda-Runtime-Client-Context", "{")]),
    Given("id-identity", "/works", [("Lambda-Runtime-Cognito-Identity", "{")]),
]
IDS = [given.request_id for given in GIVEN]

# Modules that cannot be used, and the name of a handler in each.
BROKEN = {
    "missing.handler": "",
    "syntax.handler": "def handler(:\n",
    "imports.handler": "import nothing_of_this_name\n",
    "raises.handler": "def load():\n    raise ValueError('no ü')\n\nload()\n",
    "empty.handler": "\n",
    "nodot": "",
    "sys.handler": "",
    "folder/missing.handler": "",
}


def awslambdaric(handler: str) -> tuple[str, ...]:
    return sys.executable, "-m", "awslambdaric", handler


@pytest.fixture(scope="module")
async def awss() -> Run:
    return await run(awslambdaric("diary.plain"), "diary.plain", APPS, GIVEN)


@pytest.fixture(scope="module")
async def ours() -> Run:
    return await run(STREAMING_RUNTIME, "diary.handler", APPS, GIVEN)


def cause(request: Request) -> dict[str, Any]:
    """The cause for X-Ray: a document in a header."""
    name = "lambda-runtime-function-xray-error-cause"
    document: dict[str, Any] = json.loads(next(value for key, value in request.headers if key.lower() == name))
    return document


def of_the_function(trace: list[str]) -> list[str]:
    return [frame for frame in trace if ", in work\n" in frame or ", in load\n" in frame]


@pytest.mark.parametrize("request_id", IDS)
async def test_an_error_has_the_same_path_and_document(awss: Run, ours: Run, request_id: str) -> None:
    expected, reported = awss.answer(request_id), ours.answer(request_id)
    assert reported.line == expected.line
    for name in ("content-type", "lambda-runtime-invocation-id"):
        assert reported.header(name) == expected.header(name)
    aws_error, our_error = json.loads(expected.body), json.loads(reported.body)
    assert of_the_function(our_error.pop("stackTrace")) == of_the_function(aws_error.pop("stackTrace"))
    assert our_error == aws_error
    # Documented, though AWS's own client leaves it to the document.
    assert reported.header("lambda-runtime-function-error-type") == [our_error["errorType"]]


@pytest.mark.parametrize(
    "request_id",
    IDS,
)
async def test_an_error_has_the_same_cause_for_x_ray(awss: Run, ours: Run, request_id: str) -> None:
    expected, reported = cause(awss.answer(request_id)), cause(ours.answer(request_id))
    for document in (expected, reported):
        document.pop("paths")
        for exception in document["exceptions"]:
            exception["stack"] = [frame for frame in exception["stack"] if frame["label"] == "work"]
    assert reported == expected


async def test_a_trace_begins_in_the_function(awss: Run, ours: Run) -> None:
    for each in (awss, ours):
        assert "diary.py" in json.loads(each.answer("id-fails").body)["stackTrace"][0]
        assert all("diary.py" in frame["path"] for frame in cause(each.answer("id-fails"))["exceptions"][0]["stack"])


@pytest.mark.parametrize("handler", BROKEN)
async def test_a_function_that_cannot_be_loaded_is_the_same_report(tmp_path: Path, handler: str) -> None:
    if source := BROKEN[handler]:
        (tmp_path / f"{handler.partition('.')[0]}.py").write_text(source)
    expected = await run(awslambdaric(handler), handler, tmp_path)
    reported = await run(STREAMING_RUNTIME, handler, tmp_path)
    (aws_request,), (our_request,) = expected.requests, reported.requests
    assert our_request.line == aws_request.line == "POST /2018-06-01/runtime/init/error HTTP/1.1"
    aws_error, our_error = json.loads(aws_request.body), json.loads(our_request.body)
    aws_trace, our_trace = aws_error.pop("stackTrace"), our_error.pop("stackTrace")
    assert of_the_function(our_trace) == of_the_function(aws_trace)
    assert our_error == aws_error
    name = "lambda-runtime-function-error-type"
    assert our_request.header(name) == aws_request.header(name) == [our_error["errorType"]]
    assert reported.exit_code == expected.exit_code == 1
