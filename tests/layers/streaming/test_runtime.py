"""The runtime as Lambda runs it: a process of its own under a Runtime API, seen through a function URL."""

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import aiohttp
import pytest

from local.invocation import InitError
from local.stack import LocalStack

pytestmark = pytest.mark.anyio

APPS = Path(__file__).parent / "apps"


@asynccontextmanager
async def function(handler: str = "asgi.handler", **options) -> AsyncIterator[tuple[LocalStack, aiohttp.ClientSession]]:
    async with (
        LocalStack(handler=handler, task_root=APPS, table=False, model=None, **options) as stack,
        aiohttp.ClientSession(stack.url) as session,
    ):
        yield stack, session


async def test_a_hundred_warm_invocations_share_one_process_one_loop_and_one_startup():
    async with function() as (_, session):
        counts = [await (await session.get("/counts")).json() for _ in range(100)]
    assert len({count["pid"] for count in counts}) == 1
    assert {(count["startups"], count["loops"], count["state"]) for count in counts} == {(1, 1, "hello")}


async def test_each_piece_is_out_before_the_next_is_made(tmp_path):
    gate = tmp_path / "gate"
    gate.touch()
    async with function() as (_, session), session.post("/steps", json={"gate": str(gate)}) as response:
        assert response.status == 200  # status and headers are here, the first piece may not be made yet
        assert response.headers["content-type"].startswith("text/event-stream")
        for n in range(3):
            assert await response.content.readuntil(b"\n\n") == b"data: %d\n\n" % n
            with gate.open("ab") as file:
                file.write(b"x")


@pytest.mark.parametrize(("pieces", "size"), [(0, 0), (10_000, 1), (1, 3_000_000), (50, 65_536)])
async def test_bodies_of_any_shape_arrive_whole(pieces, size):
    async with function() as (_, session):
        body = await (await session.get(f"/stream?pieces={pieces}&size={size}")).read()
    assert body == b"x" * pieces * size


async def test_the_request_is_all_there():
    async with function() as (_, session):
        response = await session.put(
            "/echo?a=1&a=2&b=%C3%BC", data=b"\x00\xff", headers={"X-Custom": "v", "Cookie": "c=1"}
        )
        seen = await response.json()
    assert (seen["method"], seen["path"], seen["body"]) == ("PUT", "/echo", "\x00\xff")
    assert seen["query"] == "a=1&a=2&b=%C3%BC"
    assert seen["headers"]["x-custom"] == "v"
    assert seen["headers"]["cookie"] == "c=1"
    assert 0 < seen["remaining"] <= 900_000
    assert seen["trace"].startswith("Root=1-")
    assert seen["trace_variable"] == seen["trace"]
    assert seen["request_id"] == response.headers["x-amzn-requestid"]


async def test_status_headers_and_cookies_come_through():
    async with function() as (_, session):
        response = await session.get("/cookies")
    assert (response.status, response.headers["x-a"]) == (418, "1")
    assert [cookie.split(";")[0] for cookie in response.headers.getall("set-cookie")] == ["a=1", "b=2"]


async def test_a_response_without_a_body_keeps_its_status():
    async with function() as (_, session):
        assert (await session.get("/empty")).status == 204
        assert (await session.head("/echo")).status == 405


@pytest.mark.parametrize("after", [1, 1_000])
async def test_an_error_in_the_middle_keeps_what_was_sent_and_is_reported(after, caplog, capfd):
    async with function() as (_, session):
        response = await session.get(f"/fails?after={after}")
        assert await response.read() == b"x" * after
        assert (await session.get("/counts")).status == 200  # the next invocation works
    assert "ValueError in the stream" in caplog.text
    log = capfd.readouterr().err
    assert "[ERROR] ValueError: broken on purpose" in log
    line = next(line for line in log.splitlines() if "about to fail" in line)
    assert response.headers["x-amzn-requestid"] in line


@pytest.mark.parametrize(
    ("path", "outcome"),
    [("/raises", 502), ("/returns", 502), ("/half", b"half"), ("/more", b'"/more"'), ("/fine", b'"/fine"')],
)
async def test_an_app_that_misbehaves_harms_nobody_else(path, outcome):
    async with function("asgi.bare_handler") as (_, session):
        response = await session.get(path)
        if outcome == 502:
            assert response.status == 502
        else:
            assert await response.read() == outcome
        assert await (await session.get("/next")).read() == b'"/next"'


async def test_an_app_that_answers_500_and_raises_is_counted_as_an_error(caplog):
    """FastAPI answers first and raises then: the caller gets the 500, Lambda's error metric the exception."""
    async with function() as (_, session):
        response = await session.get("/crashes")
        assert (response.status, await response.text()) == (500, "Internal Server Error")
    assert "ValueError in the stream" in caplog.text


async def test_a_header_that_http_does_not_allow_is_an_error_and_not_a_second_header():
    async with function() as (_, session):
        response = await session.get("/bad-header")
        assert response.status in (500, 502)
        assert "set-cookie" not in response.headers


async def test_work_behind_the_response_does_not_hold_it_up_and_is_finished(tmp_path):
    gate = tmp_path / "gate"
    async with function() as (_, session):
        assert await (await session.get(f"/background?gate={gate}")).text() == "answered"
        gate.touch()
        assert await (await session.get("/worked")).json() is True


async def test_a_handler_written_for_mangum_streams_without_a_change():
    async with function("asgi.plain_mangum") as (_, session):
        assert (await (await session.get("/counts")).json())["startups"] == 1


@pytest.mark.parametrize(
    ("handler", "kind", "words"),
    [
        ("missing.handler", "Runtime.ImportModuleError", "missing"),
        ("asgi.missing", "Runtime.HandlerNotFound", "missing"),
        ("handler", "Runtime.MalformedHandlerName", "handler"),
        ("asgi.not_a_handler", "Runtime.HandlerNotFound", "StreamingMangum(app)"),
        ("syntax.handler", "Runtime.UserCodeSyntaxError", "syntax"),
        ("asgi.broken_handler", "RuntimeError", "start-up"),
    ],
)
async def test_an_environment_that_cannot_start_says_why(handler, kind, words):
    with pytest.raises(InitError) as caught:
        async with function(handler):
            pass
    assert caught.value.error_type == kind
    assert words in json.loads(caught.value.error)["errorMessage"]


async def test_pth_files_of_the_function_count(tmp_path):
    """As `/var/runtime/bootstrap.py` has it: the function's folder is a site directory."""
    (tmp_path / "vendored").mkdir()
    (tmp_path / "vendored" / "found.py").write_text("from asgi import handler")
    (tmp_path / "vendor.pth").write_text(f"vendored\n{APPS}\n")
    async with (
        LocalStack(handler="found.handler", task_root=tmp_path, table=False, model=None) as stack,
        aiohttp.ClientSession(stack.url) as session,
    ):
        assert (await session.get("/counts")).status == 200


async def test_a_buffered_answer_for_a_terminal_that_emulates_lambda():
    async with function(env={"AWS_SAM_LOCAL": "true"}) as (_, session):
        response = await session.get("/stream?pieces=3")
        assert (await response.read(), response.headers["content-type"]) == (b"xxx", "text/event-stream; charset=utf-8")


async def test_many_invocations_at_once_stay_apart():
    async with function(max_environments=4) as (stack, session):
        sizes = [1_000 * n for n in range(1, 5)]
        bodies = await asyncio.gather(*(fetch(session, f"/stream?pieces=20&size={size}") for size in sizes))
        assert [len(body) for body in bodies] == [20 * size for size in sizes]
        assert stack.function.environments <= 4


async def fetch(session: aiohttp.ClientSession, path: str) -> bytes:
    async with session.get(path) as response:
        return await response.read()
