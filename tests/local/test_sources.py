"""Other fronts than a function URL: the same request as an HTTP API, a REST API and a load balancer hand it on."""

import base64
from pathlib import Path

import aiohttp
import pytest
from mangum.handlers.alb import ALB
from mangum.handlers.api_gateway import APIGateway, HTTPGateway

from local.function_url import SOURCES
from local.stack import LocalStack
from tests.local.test_function_url import play, raw_stack

pytestmark = pytest.mark.anyio

APPS = Path(__file__).parent / "apps"
SCOPE = {
    "method": "POST",
    "path": "/a b/c",
    "raw_path": b"/a%20b/c",
    "query_string": b"x=1&x=2&y=%C3%BC",
    "client": ("127.0.0.1", 4711),
    "headers": [
        *[(b"host", b"h:1"), (b"X-Thing", b"1"), (b"x-thing", b"2")],
        *[(b"cookie", b"a=1"), (b"content-type", b"text/plain")],
    ],
}


def event_from(source: str, body: bytes = b"b\xc3\xbc") -> dict:
    return SOURCES[source](SCOPE, body, url_id="u" * 32, region="us-east-1", request_id="r")


@pytest.mark.parametrize(
    ("source", "reader"), [("function-url", HTTPGateway), ("http-api", HTTPGateway), ("rest", APIGateway), ("alb", ALB)]
)
def test_mangum_reads_the_request_back(source, reader):
    event = event_from(source)
    assert [one for one in (ALB, HTTPGateway, APIGateway) if one.infer(event, None, {})] == [reader]
    read = reader(event, None, {"api_gateway_base_path": "/", "exclude_headers": [], "text_mime_types": []})
    headers = {bytes(name): bytes(value) for name, value in read.scope["headers"]}
    assert (read.scope["method"], read.scope["path"], read.body) == ("POST", "/a b/c", "bü".encode())
    assert headers[b"cookie"] == b"a=1"
    assert headers[b"host"] == b"h:1"
    # Without multi-value headers a load balancer knows the last value alone.
    assert read.scope["query_string"] == (b"x=2&y=%C3%BC" if source == "alb" else b"x=1&x=2&y=%C3%BC")


def test_a_rest_api_gives_every_value_and_the_last_one():
    event = event_from("rest")
    assert (event["headers"]["x-thing"], event["multiValueHeaders"]["x-thing"]) == ("2", ["1", "2"])
    assert event["multiValueQueryStringParameters"] == {"x": ["1", "2"], "y": ["ü"]}
    assert event["requestContext"]["path"] == "/prod/a%20b/c"


def test_a_load_balancer_does_not_decode_the_query():
    assert event_from("alb")["queryStringParameters"] == {"x": "2", "y": "%C3%BC"}


@pytest.mark.parametrize("source", SOURCES)
def test_bytes_travel_as_base64_and_no_body_as_none(source):
    event = event_from(source, b"\xff")
    assert (event["isBase64Encoded"], base64.b64decode(event["body"])) == (True, b"\xff")
    assert not event_from(source, b"").get("body")


async def test_headers_with_many_values_are_many_headers():
    value = {
        "statusCode": 201,
        "headers": {"X-A": "hidden", "x-b": "1"},
        "multiValueHeaders": {"x-a": ["1", "2"], "set-cookie": ["a=1", "b=2"]},
        "body": "",
    }
    async with raw_stack(source="rest") as stack, aiohttp.ClientSession() as http:
        response, _ = await play(http, stack, {"json": value})
    assert response.status == 201
    assert response.headers.getall("x-a") == ["1", "2"]
    assert response.headers.getall("set-cookie") == ["a=1", "b=2"]
    assert response.headers["x-b"] == "1"


@pytest.mark.parametrize("source", SOURCES)
async def test_an_app_answers_whatever_stands_in_front(source):
    async with (
        LocalStack(table=False, model=None, task_root=APPS, handler="asgi.handler", source=source) as stack,
        aiohttp.ClientSession() as http,
        http.get(stack.url + "/count", headers={"origin": "http://localhost:5173"}) as response,
    ):
        assert (response.status, await response.text()) == (200, "0\n1\n2\n")
        assert response.headers["content-type"].startswith("text/plain")
        # Only where AWS streams by itself, and only there CORS is the front's.
        assert ("content-length" in response.headers) == (source != "function-url")
        assert ("access-control-allow-origin" in response.headers) == (source == "function-url")


async def test_a_rest_api_streams_when_the_function_is_told_to():
    async with (
        LocalStack(
            table=False, model=None, task_root=APPS, handler="asgi.handler", source="rest",
            env={"RESPONSE_STREAMING": "always"},
        ) as stack,
        aiohttp.ClientSession() as http,
        http.get(stack.url + "/count") as response,
    ):  # fmt: skip
        assert await response.text() == "0\n1\n2\n"
        assert response.headers["transfer-encoding"] == "chunked"
