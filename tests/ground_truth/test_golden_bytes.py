"""Our runtime's bytes beside those of AWS's Node.js client, both taken from the wire for the same answers."""

import base64
import json

import pytest

from local.environment import STREAMING_RUNTIME
from tests.ground_truth.node import FOLDER
from tests.ground_truth.raw_api import Given, Request, run

pytestmark = pytest.mark.anyio

PATHS = ("/events", "/fails", "/no-content", "/empty", "/throws")
NULS = b"\0" * 8


@pytest.fixture(scope="module")
async def ours() -> dict[str, Request]:
    given = [Given(f"id-{path[1:]}", path) for path in PATHS]
    result = await run(STREAMING_RUNTIME, "app.handler", FOLDER / "apps", given)
    return {one.path: result.answer(one.request_id) for one in given}


@pytest.fixture(scope="module")
async def awss(node: tuple[str, ...]) -> dict[str, Request]:
    given = [Given(f"id-{path[1:]}", path) for path in PATHS]
    result = await run(node, "cases.handler", FOLDER, given)
    return {one.path: result.answer(one.request_id) for one in given}


def prelude(request: Request) -> dict[str, object]:
    head, delimiter, _ = request.body.partition(NULS)
    assert delimiter
    return {"headers": {}} | json.loads(head)


def said(request: Request) -> dict[str, list[str]]:
    """The request's headers without those about the connection, whose values say nothing to Lambda."""
    names = {name.lower() for name, _ in request.headers} - {"connection", "host"}
    return {name: request.header(name) for name in names}


@pytest.mark.parametrize("path", ["/events", "/fails", "/no-content"])
async def test_the_head_is_the_same(ours: dict[str, Request], awss: dict[str, Request], path: str) -> None:
    assert ours[path].line == awss[path].line
    assert said(ours[path]) == said(awss[path])
    assert said(ours[path]) == {
        "lambda-runtime-function-response-mode": ["streaming"],
        "trailer": ["Lambda-Runtime-Function-Error-Type", "Lambda-Runtime-Function-Error-Body"],
        "content-type": ["application/vnd.awslambda.http-integration-response"],
        "transfer-encoding": ["chunked"],
    }


@pytest.mark.parametrize("path", ["/events", "/fails"])
async def test_the_body_is_the_same_byte_for_byte(
    ours: dict[str, Request], awss: dict[str, Request], path: str
) -> None:
    assert ours[path].body == awss[path].body


async def test_the_chunks_are_the_same_but_prelude_and_delimiter_are_one_of_ours(
    ours: dict[str, Request], awss: dict[str, Request]
) -> None:
    """A reader that takes the first chunk for the prelude, as some do, has the delimiter as well."""
    first, second, *rest = awss["/events"].chunks
    assert second == NULS
    assert ours["/events"].chunks == [first + second, *rest]
    assert ours["/events"].raw.endswith(b"b\r\ndata: bye\n\n\r\n0\r\n\r\n")
    assert awss["/events"].raw.endswith(b"b\r\ndata: bye\n\n\r\n0\r\n\r\n")


async def test_an_error_in_the_middle_ends_in_the_same_trailers(
    ours: dict[str, Request], awss: dict[str, Request]
) -> None:
    assert [name for name, _ in ours["/fails"].trailers] == [name for name, _ in awss["/fails"].trailers]
    (_, our_type), (_, our_body) = ours["/fails"].trailers
    (_, aws_type), (_, aws_body) = awss["/fails"].trailers
    assert (our_type, aws_type) == ("ValueError", "Error")
    our_error, aws_error = (json.loads(base64.b64decode(body, validate=True)) for body in (our_body, aws_body))
    assert our_error["errorMessage"] == aws_error["errorMessage"] == "mid-stream ü"
    assert our_error["errorType"] == our_type
    assert aws_error["errorType"] == aws_type
    # Each language's own name for it: Python's runtime says stackTrace in all its errors.
    assert "app.py" in our_error["stackTrace"][-1]
    assert "cases.mjs" in aws_error["trace"][1]


async def test_an_answer_without_a_body_says_the_same(ours: dict[str, Request], awss: dict[str, Request]) -> None:
    assert prelude(ours["/no-content"]) == prelude(awss["/no-content"]) == {"statusCode": 204, "headers": {}}
    assert ours["/no-content"].body.endswith(NULS)
    assert awss["/no-content"].body.endswith(NULS)


async def test_where_awss_client_loses_the_prelude_ours_does_not(
    ours: dict[str, Request], awss: dict[str, Request]
) -> None:
    assert (awss["/empty"].body, awss["/empty"].trailers) == (b"", [])
    assert ours["/empty"].body == ours["/events"].body.partition(NULS)[0] + NULS


async def test_an_error_before_the_first_byte_is_reported_in_one_of_the_two_ways(
    ours: dict[str, Request], awss: dict[str, Request]
) -> None:
    """AWS's Node.js client ends an empty stream with trailers, its Python client and ours post to `/error`."""
    assert ours["/throws"].line == "POST /2018-06-01/runtime/invocation/id-throws/error HTTP/1.1"
    assert ours["/throws"].header("lambda-runtime-function-error-type") == ["ValueError"]
    assert awss["/throws"].line == "POST /2018-06-01/runtime/invocation/id-throws/response HTTP/1.1"
    assert dict(awss["/throws"].trailers)["Lambda-Runtime-Function-Error-Type"] == "TypeError"
    our_error = json.loads(ours["/throws"].body)
    aws_error = json.loads(base64.b64decode(dict(awss["/throws"].trailers)["Lambda-Runtime-Function-Error-Body"]))
    assert our_error["errorMessage"] == aws_error["errorMessage"] == "before the first write"
