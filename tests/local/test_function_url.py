"""The function URL: what a request becomes, what a reply becomes, and when its bytes arrive."""

import asyncio
import base64
import json
import re
import sys
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import aiohttp
import pytest

from local.child import ROOT
from local.cors import Cors
from local.stack import LocalStack
from tests.local.waiting import until

pytestmark = pytest.mark.anyio

HERE = Path(__file__).parent
RAW = (sys.executable, str(HERE / "raw_runtime.py"))
JSON = {"content-type": "application/json"}


@asynccontextmanager
async def raw_stack(**options) -> AsyncIterator[LocalStack]:
    options = {"table": False, "model": None, "command": RAW, "task_root": HERE} | options
    async with LocalStack(**options) as stack:
        yield stack


@pytest.fixture(scope="module")
def anyio_backend() -> str:
    return "asyncio"


@pytest.fixture(scope="module")
async def stack() -> AsyncIterator[LocalStack]:
    async with raw_stack() as stack:
        yield stack


@pytest.fixture
async def http() -> AsyncIterator[aiohttp.ClientSession]:
    async with aiohttp.ClientSession(auto_decompress=False) as session:
        yield session


async def play(http, stack, *steps, **options):
    """Posts the steps that the raw runtime shall do; returns the response and its body."""
    options["headers"] = JSON | options.get("headers", {})
    async with http.post(stack.url + "/", data=json.dumps(steps), **options) as response:
        return response, await response.read()


# --- request -> event ---------------------------------------------------------------------------------------


async def echo(http, url, method="GET", **options) -> dict:
    """The event that the function got; the raw runtime echoes one without a body."""
    async with http.request(method, url, **options) as response:
        return await response.json()


async def test_the_event_is_a_function_urls(http, stack):
    url = stack.url + "/a%20b/c?x=1&x=2&y=%C3%BC&z="
    headers = {"X-Thing": "T", "Cookie": "a=1; b=2", "User-Agent": "me/1"}
    event = await echo(http, aiohttp.client.URL(url, encoded=True), headers=headers)
    context = event["requestContext"]
    assert event["version"] == "2.0"
    assert event["rawPath"] == context["http"]["path"] == "/a%20b/c"
    assert event["rawQueryString"] == "x=1&x=2&y=%C3%BC&z="
    assert event["queryStringParameters"] == {"x": "1,2", "y": "ü", "z": ""}
    assert event["cookies"] == ["a=1", "b=2"]
    assert event["headers"]["x-thing"] == "T"
    assert "cookie" not in event["headers"]
    assert event["headers"]["host"] == stack.url.removeprefix("http://")
    assert event["headers"]["x-forwarded-proto"] == "http"
    assert event["isBase64Encoded"] is False
    assert "body" not in event
    assert context["domainName"].endswith(".lambda-url.us-east-1.on.aws")
    assert context["http"] | {"path": ""} == {
        "method": "GET", "path": "", "protocol": "HTTP/1.1", "sourceIp": "127.0.0.1", "userAgent": "me/1",
    }  # fmt: skip
    assert abs(context["timeEpoch"] / 1000 - time.time()) < 5


@pytest.mark.parametrize(
    ("content_type", "body", "encoded"),
    [
        ("application/json", b'{"a":1}', False),
        ("text/plain; charset=utf-8", "ü".encode(), False),
        ("application/problem+json", b"{}", False),
        ("application/octet-stream", b"{}", True),
        ("application/x-www-form-urlencoded", b"a=1", True),
        ("text/plain", b"\xff\xfe", True),
    ],
)
def test_bodies_travel_as_text_or_base64(content_type, body, encoded):
    from local.event import event_of

    scope = {"method": "POST", "path": "/", "headers": [(b"content-type", content_type.encode())]}
    event = event_of(scope, body, url_id="u", region="us-east-1", request_id="r")
    assert event["isBase64Encoded"] is encoded
    assert (base64.b64decode(event["body"]) if encoded else event["body"].encode()) == body


async def test_a_request_over_six_megabytes_is_413_and_the_function_never_sees_it(http, stack):
    for size in (6_291_456, 20_000_000):
        async with http.post(stack.url, data=b"a" * size, headers={"content-type": "text/plain"}) as response:
            assert response.status == 413
            assert "6291456" in (await response.json())["Message"]
    assert (await play(http, stack, {"json": 1}))[1] == b"1"


async def test_half_a_request_is_not_invoked(http, stack, tmp_path):
    touched = tmp_path / "touched"
    steps = json.dumps([{"touch": str(touched)}, {"json": 1}]).encode()
    _, writer = await asyncio.open_connection("127.0.0.1", int(stack.url.rpartition(":")[2]))
    writer.write(b"POST / HTTP/1.1\r\nhost: x\r\ncontent-type: application/json\r\n")
    writer.write(b"content-length: %d\r\n\r\n" % (len(steps) + 1) + steps)
    await writer.drain()
    writer.close()
    assert (await play(http, stack, {"json": 1}))[1] == b"1"
    assert not touched.exists()


# --- reply -> response --------------------------------------------------------------------------------------


async def test_the_prelude_becomes_status_headers_and_cookies(http, stack):
    prelude = {
        "statusCode": 201,
        "headers": {"Content-Type": "text/event-stream", "x-a": "1, 2", "content-length": "99", "connection": "x"},
        "cookies": ["a=1; Path=/", "b=2; HttpOnly"],
    }
    response, body = await play(
        http, stack, {"prelude": prelude}, {"chunk": "data: 1\n\n"}, {"end": []}, headers={"accept-encoding": "gzip"}
    )
    assert (response.status, body) == (201, b"data: 1\n\n")
    assert response.headers["content-type"] == "text/event-stream"
    assert response.headers["x-a"] == "1, 2"
    assert response.headers.getall("set-cookie") == ["a=1; Path=/", "b=2; HttpOnly"]
    assert response.headers["transfer-encoding"] == "chunked"
    assert not {"content-length", "connection", "content-encoding"} & {name.lower() for name in response.headers}


async def test_the_eight_nuls_are_found_wherever_the_stream_is_cut(http, stack):
    stream = '{"statusCode":202,"headers":{"x-a":"ü"}}' + "\0" * 8 + "body\0\0\0\0\0\0\0\0more"
    response, body = await play(http, stack, {"byte_by_byte": stream}, {"end": []})
    assert (response.status, body) == (202, b"body\0\0\0\0\0\0\0\0more")


@pytest.mark.parametrize("status", [204, 304, 307])
async def test_a_response_without_a_body(http, stack, status):
    prelude = {"statusCode": status, "headers": {"location": "/there"}}
    response, body = await play(http, stack, {"prelude": prelude}, {"end": []}, allow_redirects=False)
    assert (response.status, response.headers["location"], body) == (status, "/there", b"")


async def test_each_chunk_arrives_before_the_next_one_is_made(http, stack, tmp_path):
    steps = [{"prelude": {"headers": {"content-type": "text/event-stream"}}}]
    for n in range(3):
        steps += [{"wait_for_file": str(tmp_path / str(n))}, {"chunk": f"{n}"}]
    async with http.post(stack.url, data=json.dumps([*steps, {"end": []}]), headers=JSON) as response:
        # The head alone is here while the function waits.
        assert response.status == 200
        for n in range(3):
            (tmp_path / str(n)).touch()
            assert await response.content.readany() == f"{n}".encode()


async def test_paced_chunks_are_passed_on_within_milliseconds(http, stack):
    delays = []
    steps = [{"prelude": {}}, {"paced": 100}, {"end": []}]
    async with http.post(stack.url, data=json.dumps(steps), headers=JSON) as response:
        async for line in response.content:
            delays.append(time.time() - float(line))
    delays.sort()
    assert len(delays) == 100
    # Well under the 100 ms that a reader notices, with room for a busy machine.
    assert delays[50] < 0.01


async def test_a_buffered_response_works_too(http, stack):
    value = {
        "statusCode": 418,
        "headers": {"content-type": "text/plain"},
        "cookies": ["a=1"],
        "body": base64.b64encode(b"\x00\xff").decode(),
        "isBase64Encoded": True,
    }
    response, body = await play(http, stack, {"json": value})
    assert (response.status, body) == (418, b"\x00\xff")
    assert response.headers["set-cookie"] == "a=1"
    assert response.headers["content-length"] == "2"


async def test_any_other_json_is_the_body_of_a_200(http, stack):
    response, body = await play(http, stack, {"json": {"a": [1]}})
    assert (response.status, response.headers["content-type"], body) == (200, "application/json", b'{"a": [1]}')


@pytest.mark.parametrize(
    "steps",
    [
        [{"error": {"errorType": "ValueError", "errorMessage": "no"}}],
        [{"exit": 1}],
        [{"byte_by_byte": ""}, {"end": ["Lambda-Runtime-Function-Error-Type: TypeError"]}],
        [{"byte_by_byte": ""}, {"end": []}],
        [{"byte_by_byte": "not json" + "\0" * 8}, {"end": []}],
        [{"prelude": {"statusCode": "fine"}}, {"end": []}],
        [{"prelude": {"headers": {"x": "a\r\nset-cookie: stolen=1"}}}, {"end": []}],
        [{"prelude": {"headers": {"x y": "1"}}}, {"end": []}],
        [{"json": {"statusCode": 200, "body": {"not": "a string"}}}],
    ],
    ids=lambda steps: json.dumps(steps)[:40],
)
async def test_an_error_before_the_first_byte_is_502(http, stack, steps):
    response, body = await play(http, stack, *steps)
    assert (response.status, json.loads(body)) == (502, {"Message": "Internal Server Error"})
    assert (await play(http, stack, {"json": 1}))[1] == b"1"


async def test_a_stream_that_breaks_off_is_seen_as_broken_off(http, stack):
    with pytest.raises(aiohttp.ClientPayloadError):
        await play(http, stack, {"prelude": {}}, {"chunk": "half"}, {"exit": 1})


async def test_at_the_deadline_the_client_sees_the_cut(http):
    async with raw_stack(timeout=0.5) as stack:
        with pytest.raises(aiohttp.ClientPayloadError):
            await play(http, stack, {"prelude": {}}, {"chunk": "half"}, {"hang": None})
        response, _ = await play(http, stack, {"hang": None})
        assert response.status == 502


async def test_a_client_that_leaves_does_not_stop_the_function(http, stack, tmp_path):
    go, done = tmp_path / "go", tmp_path / "done"
    steps = [{"prelude": {}}, {"chunk": "x"}, {"wait_for_file": str(go)}, {"bulk": 5}, {"touch": str(done)}]
    response = await http.post(stack.url, data=json.dumps([*steps, {"end": []}]), headers=JSON)
    await response.content.readany()
    response.close()
    go.touch()
    await until(done.exists)
    assert (await play(http, stack, {"json": 1}))[1] == b"1"
    assert stack.function.environments <= 2


async def test_too_many_requests_at_once_are_429(http, tmp_path, caplog):
    async with raw_stack(max_environments=1) as stack:
        go = tmp_path / "go"
        steps = [{"prelude": {}}, {"chunk": "x"}, {"wait_for_file": str(go)}, {"end": []}]
        async with http.post(stack.url, data=json.dumps(steps), headers=JSON) as first:
            assert first.status == 200
            response, _ = await play(http, stack, {"json": 1})
            assert response.status == 429
            assert "All 1 environments are busy (--max-environments)" in caplog.messages
            go.touch()
            assert await first.read() == b"x"
        assert (await play(http, stack, {"json": 1}))[1] == b"1"


# --- CORS ---------------------------------------------------------------------------------------------------

PAGE = "http://localhost:5173"
PREFLIGHT = {
    "origin": PAGE,
    "access-control-request-method": "POST",
    "access-control-request-headers": "authorization,content-type",
}


def allowed(response) -> list[str]:
    return response.headers.getall("access-control-allow-origin", [])


async def test_a_preflight_is_answered_without_invoking(http, stack):
    # The raw runtime would echo the event of an OPTIONS request.
    async with http.options(stack.url, headers=PREFLIGHT) as response:
        assert (response.status, await response.read()) == (200, b"")
    assert allowed(response) == [PAGE]
    assert response.headers["access-control-allow-methods"] == "GET, POST"
    assert response.headers["access-control-allow-headers"] == "authorization, content-type, accept, x-requested-with"
    assert response.headers["access-control-max-age"] == "600"


async def test_options_without_a_browser_is_the_functions(http, stack):
    assert (await echo(http, stack.url, "OPTIONS"))["requestContext"]["http"]["method"] == "OPTIONS"


async def test_every_answer_is_marked_errors_included(http):
    async with raw_stack(timeout=1, max_environments=1) as stack:
        origin = {"origin": PAGE}
        answers = {
            200: await play(http, stack, {"json": 1}, headers=origin),
            401: await play(http, stack, {"json": {"statusCode": 401}}, headers=origin),
            422: await play(http, stack, {"prelude": {"statusCode": 422}}, {"end": []}, headers=origin),
            502: await play(http, stack, {"error": {}}, headers=origin),
        }
        async with http.post(stack.url, data=b"a" * 7_000_000, headers=origin) as too_large:
            answers[413] = (too_large, b"")
        for status, (response, _) in answers.items():
            assert response.status == status
            assert allowed(response) == [PAGE]
            assert "www-authenticate" in response.headers["access-control-expose-headers"]


@pytest.mark.parametrize("credentials", [True, False])
async def test_another_origin_gets_nothing_and_a_listed_one_its_own_name(http, credentials):
    async with raw_stack(cors=Cors(allow_origins=["https://page.example"], allow_credentials=credentials)) as stack:
        for method in ("POST", "OPTIONS"):
            for origin, expected in (("https://page.example", ["https://page.example"]), ("https://other", [])):
                async with http.request(method, stack.url, headers=PREFLIGHT | {"origin": origin}) as response:
                    assert response.status == (200 if expected else 403)
                    assert allowed(response) == expected
                    assert ("access-control-allow-credentials" in response.headers) == bool(expected and credentials)
                    assert response.headers["vary"] == "Origin"


async def test_anyone_and_whatever_is_asked_for_can_be_allowed(http):
    async with raw_stack(cors=Cors(["*"], allow_methods=["*"], allow_headers=["*"])) as stack:
        asked = {"access-control-request-method": "PUT", "access-control-request-headers": "authorization,x-custom"}
        async with http.options(stack.url, headers={"origin": "https://page.example", **asked}) as response:
            assert allowed(response) == ["*"]
            assert response.headers["access-control-allow-methods"] == "PUT"
            assert response.headers["access-control-allow-headers"] == "authorization,x-custom"


async def test_an_app_that_sets_the_header_itself_does_not_double_it(http, stack):
    prelude = {"headers": {"Access-Control-Allow-Origin": "*", "vary": "accept"}}
    response, _ = await play(http, stack, {"prelude": prelude}, {"end": []}, headers={"origin": PAGE})
    assert allowed(response) == [PAGE]
    assert response.headers.getall("vary") == ["accept", "Origin"]


async def test_a_caller_that_is_no_browser_gets_no_cors_headers(http, stack):
    response, _ = await play(http, stack, {"json": 1})
    assert not [name for name in response.headers if name.lower().startswith("access-control")]


def test_anyone_with_credentials_is_refused():
    with pytest.raises(ValueError, match="credentials"):
        Cors(allow_origins=["*"], allow_credentials=True)


def test_pages_may_do_here_what_they_may_do_on_aws():
    template = (ROOT / "template.yaml").read_text()

    def listed(name: str) -> set[str]:
        found = re.search(rf"^ +{name}: \[(.+)\]$", template, re.MULTILINE)
        assert found
        return {one.strip().lower() for one in found[1].split(",")}

    assert {name.lower() for name in Cors().allow_methods} == listed("AllowMethods")
    assert set(Cors().allow_headers) == listed("AllowHeaders")
    assert set(Cors().expose_headers) == listed("ExposeHeaders")
