"""AWS's own streaming client through our Runtime API and function URL: it works there, and gets what AWS gives."""

from collections.abc import AsyncIterator

import aiohttp
import pytest

from local.stack import LocalStack
from tests.ground_truth.node import FOLDER

pytestmark = pytest.mark.anyio


@pytest.fixture(scope="module")
async def stack(node: tuple[str, ...]) -> AsyncIterator[LocalStack]:
    async with LocalStack(
        table=False, model=None, cors=None, task_root=FOLDER, handler="cases.handler", command=node, timeout=30
    ) as stack:
        yield stack


@pytest.fixture
async def http(stack: LocalStack) -> AsyncIterator[aiohttp.ClientSession]:
    async with aiohttp.ClientSession(stack.url) as session:
        yield session


async def test_a_stream_arrives_whole_with_its_headers_and_cookies(http: aiohttp.ClientSession) -> None:
    async with http.get("/events") as response:
        assert response.status == 200
        assert response.headers["content-type"] == "text/event-stream"
        assert response.headers["x-custom"] == "a"
        assert response.headers.getall("set-cookie") == ["a=1; Path=/", "b=2; HttpOnly"]
        assert await response.read() == b'data: {"n":1}\n\ndata: {"n":2}\n\ndata: bye\n\n'


async def test_an_error_in_the_middle_keeps_what_was_sent_and_its_trailers_are_read(
    http: aiohttp.ClientSession, caplog: pytest.LogCaptureFixture
) -> None:
    async with http.get("/fails") as response:
        assert response.status == 200
        assert await response.read() == b'data: {"n":1}\n\ndata: {"n":2}\n\n'
    assert "Error in the stream: mid-stream ü" in caplog.text


async def test_an_error_before_the_first_byte_is_a_502(
    http: aiohttp.ClientSession, caplog: pytest.LogCaptureFixture
) -> None:
    async with http.get("/throws") as response:
        assert (response.status, await response.json()) == (502, {"Message": "Internal Server Error"})
    assert "TypeError: before the first write" in caplog.text


async def test_a_stream_without_a_prelude_is_a_502_that_says_so(
    http: aiohttp.ClientSession, caplog: pytest.LogCaptureFixture
) -> None:
    """On AWS the caller waits for the status for minutes; nobody wants that of a tool to develop with."""
    async with http.get("/empty") as response:
        assert response.status == 502
    assert "ended without prelude" in caplog.text


async def test_an_answer_without_a_body_keeps_its_status(http: aiohttp.ClientSession) -> None:
    async with http.get("/no-content") as response:
        assert (response.status, await response.read()) == (204, b"")
        assert "transfer-encoding" not in response.headers


async def test_a_stream_of_another_type_is_all_body(http: aiohttp.ClientSession) -> None:
    async with http.get("/raw") as response:
        assert (response.status, response.headers["content-type"]) == (200, "text/plain")
        assert await response.read() == b"raw"


async def test_one_process_serves_them_all_and_knows_its_invocation(
    stack: LocalStack, http: aiohttp.ClientSession
) -> None:
    seen = []
    for path in ("/context", "/fails", "/throws", "/empty", "/no-content", "/context"):
        async with http.get(path) as response:
            if path == "/context":
                seen.append(await response.json())
                assert seen[-1]["awsRequestId"] == response.headers["x-amzn-requestid"]
                assert 0 < seen[-1]["remaining"] <= 30_000
            else:
                await response.read()
    assert seen[0]["pid"] == seen[1]["pid"]
    assert stack.function.environments == 1
