"""Who may call a function on a laptop, where often no token is asked for and every web page can reach 127.0.0.1."""

import asyncio
import json
import logging
import sys
from collections.abc import AsyncIterator
from pathlib import Path

import aiohttp
import pytest

from local.callers import LOOPBACK, is_origin, refusal
from local.cors import Cors
from local.stack import LocalStack

pytestmark = pytest.mark.anyio

HERE = Path(__file__).parent
BARE = {
    "table": False,
    "model": None,
    "command": (sys.executable, str(HERE / "raw_runtime.py")),
    "task_root": HERE,
}
MINE = "https://chat.example.com"


@pytest.fixture(scope="module")
def anyio_backend() -> str:
    return "asyncio"


@pytest.fixture(scope="module")
async def stack() -> AsyncIterator[LocalStack]:
    async with LocalStack(**BARE) as stack:
        yield stack


@pytest.fixture
async def http() -> AsyncIterator[aiohttp.ClientSession]:
    async with aiohttp.ClientSession() as session:
        yield session


def refused(origins, **headers: str) -> bool:
    fields = [(name.encode(), value.encode()) for name, value in headers.items()]
    return refusal(origins, {"headers": fields}) is not None


@pytest.mark.parametrize(
    "origin", ["http://localhost:5173", "http://127.0.0.1:3000", "http://[::1]:1", "http://localhost"]
)
def test_pages_of_this_machine_may_call(origin):
    assert not refused(LOOPBACK, origin=origin, host="127.0.0.1:3000")


@pytest.mark.parametrize(
    "origin",
    [
        "https://page.example",
        "null",
        "http://localhost.page.example",
        "http://localhost:1.page.example",
        "http://localhost:5173@page.example",
        "http://127.0.0.10:3000",
        "http://127a0.0.1:3000",
        "http://page.example/http://localhost:1",
    ],
)
def test_pages_of_others_may_not(origin):
    assert refused(LOOPBACK, origin=origin, host="127.0.0.1:3000")
    assert not refused(["*"], origin=origin, host="127.0.0.1:3000")
    assert not refused([*LOOPBACK, origin], origin=origin, host="127.0.0.1:3000")


@pytest.mark.parametrize("host", ["127.0.0.1", "127.0.0.1:3000", "localhost:3000", "LOCALHOST", "[::1]:3000", ""])
def test_the_names_of_this_machine(host):
    assert not refused(LOOPBACK, host=host)


@pytest.mark.parametrize("host", ["page.example:3000", "localhost.page.example", "127.0.0.1.page.example", "0.0.0.0"])
def test_a_name_that_was_pointed_at_this_machine_is_refused_even_for_a_page_of_that_name(host):
    assert refused(LOOPBACK, host=host)
    assert refused([*LOOPBACK, MINE], host=host, origin=f"http://{host}")
    assert not refused(["*"], host=host)


def test_the_name_in_an_allowed_origin_is_one_of_this_machine():
    assert not refused([MINE], host="chat.example.com", origin=MINE)
    assert not refused(["http://laptop:*"], host="laptop:3000", origin="http://laptop:5173")
    assert refused(["http://laptop:*"], host="desktop:3000")


@pytest.mark.parametrize("text", ["*", "null", MINE, "http://localhost:*", "http://[::1]:3000", "tauri://localhost"])
def test_what_can_be_listed(text):
    assert is_origin(text)


@pytest.mark.parametrize("text", ["localhost:5173", "http://localhost:5173/", "https://*:*:*", "", "http://a b"])
def test_what_is_no_origin(text):
    assert not is_origin(text)


@pytest.mark.parametrize(
    "headers",
    [
        # What a page can send without asking first.
        {"origin": "https://page.example", "content-type": "text/plain"},
        {"host": "page.example", "content-type": "text/plain"},
    ],
)
@pytest.mark.parametrize("source", ["function-url", "rest"])
async def test_a_foreign_page_does_not_reach_the_function(http, headers, source, tmp_path):
    touched = tmp_path / "touched"
    async with (
        LocalStack(**BARE, source=source) as stack,
        http.post(stack.url, data=json.dumps([{"touch": str(touched)}]), headers=headers) as response,
    ):
        assert response.status == 403
        assert "--cors-origin" in (await response.json())["Message"]
        assert not [name for name in response.headers if name.lower().startswith("access-control")]
    assert not touched.exists()


async def test_an_origin_that_is_opened_may_call(http):
    async with (
        LocalStack(**BARE, cors=Cors(allow_origins=[MINE])) as stack,
        http.get(stack.url, headers={"origin": MINE, "host": "chat.example.com"}) as response,
    ):
        assert response.status == 200
        assert response.headers["access-control-allow-origin"] == MINE


async def raw(stack: LocalStack, request: bytes) -> bytes:
    """The whole answer to a request of raw bytes, up to the end of the connection."""
    reader, writer = await asyncio.open_connection("127.0.0.1", int(stack.url.rpartition(":")[2]))
    writer.write(request)
    try:
        async with asyncio.timeout(10):
            return await reader.read()
    finally:
        writer.close()


async def test_a_request_of_two_lengths_is_400_and_the_connection_ends(stack):
    head = b"POST / HTTP/1.1\r\nhost: localhost\r\ncontent-length: 4\r\ntransfer-encoding: chunked\r\n\r\n"
    answer = await raw(stack, head + b"0\r\n\r\nGET /smuggled HTTP/1.1\r\nhost: localhost\r\n\r\n")
    assert answer.startswith(b"HTTP/1.1 400 ")
    assert answer.count(b"HTTP/1.1") == 1


async def test_a_path_cannot_forge_a_line_of_the_log(http, stack, caplog):
    caplog.set_level(logging.INFO, "local")
    await raw(stack, b"GET /%0d%0aforged%1b%C3%BC HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\n\r\n")
    (line,) = [record.getMessage() for record in caplog.records if "forged" in record.getMessage()]
    assert line.startswith("GET /%0D%0Aforged%1B%C3%BC 200, ")


async def test_a_header_cannot_forge_a_line_of_the_log(stack, caplog):
    await raw(stack, b"GET / HTTP/1.1\r\nhost: \xe2\x80\xa8\x85\r\nconnection: close\r\n\r\n")
    assert all(record.getMessage().isascii() for record in caplog.records)
