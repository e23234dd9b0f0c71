"""Every way into a function: what the app sees of an event, streamed and in one piece, is what Mangum reads from it."""

import base64
import json
from typing import Any

import pytest
from fastapi import FastAPI, Request, Response

from response_streaming import StreamingMangum
from response_streaming.adapter import BufferedReply

pytestmark = pytest.mark.anyio

app = FastAPI()


@app.api_route("/{path:path}", methods=["GET", "POST"])
async def echo(request: Request, path: str) -> Response:
    seen = {
        "method": request.method,
        "path": request.url.path,
        "query": request.query_params.multi_items(),
        "headers": sorted(
            (name, value) for name, value in request.headers.items() if name.startswith(("x-", "cookie"))
        ),
        "body": base64.b64encode(await request.body()).decode(),
        "client": request.client.host if request.client else None,
    }
    response = Response(json.dumps(seen), media_type="application/json")
    response.set_cookie("a", "1")
    response.set_cookie("b", "2")
    return response


BINARY = b"\x00\xff\x89PNG"


def function_url(**changes: Any) -> dict[str, Any]:
    http = {"method": "POST", "path": "/a%20b", "sourceIp": "1.2.3.4", "protocol": "HTTP/1.1", "userAgent": "test"}
    event = {
        "version": "2.0",
        "rawPath": "/a%20b",
        "rawQueryString": "q=1&q=2&e=%C3%BC",
        "cookies": ["c=1", "d=2"],
        "headers": {"host": "abc.lambda-url.eu-west-1.on.aws", "x-a": "1,2"},
        "requestContext": {"domainName": "abc.lambda-url.eu-west-1.on.aws", "http": http},
        "body": base64.b64encode(BINARY).decode(),
        "isBase64Encoded": True,
    }
    return {**event, **changes}


def http_api() -> dict[str, Any]:
    context = {**function_url()["requestContext"], "domainName": "x.execute-api.eu-west-1.amazonaws.com"}
    return function_url(requestContext=context)


def rest_api() -> dict[str, Any]:
    return {
        "resource": "/{proxy+}",
        "path": "/a%20b",
        "httpMethod": "POST",
        "headers": {"Host": "x.execute-api.eu-west-1.amazonaws.com", "X-A": "2", "Cookie": "c=1; d=2"},
        "multiValueHeaders": {
            "Host": ["x.execute-api.eu-west-1.amazonaws.com"],
            "X-A": ["1", "2"],
            "Cookie": ["c=1; d=2"],
        },
        "queryStringParameters": {"q": "2", "e": "ü"},
        "multiValueQueryStringParameters": {"q": ["1", "2"], "e": ["ü"]},
        "requestContext": {"identity": {"sourceIp": "1.2.3.4"}, "stage": "prod"},
        "body": base64.b64encode(BINARY).decode(),
        "isBase64Encoded": True,
    }


def load_balancer() -> dict[str, Any]:
    headers = {
        "host": ["x.elb.amazonaws.com"], "x-a": ["1", "2"], "cookie": ["c=1; d=2"],
        "x-forwarded-for": ["1.2.3.4"], "x-forwarded-port": ["80"], "x-forwarded-proto": ["http"],
    }  # fmt: skip
    return {
        "requestContext": {"elb": {"targetGroupArn": "arn"}},
        "httpMethod": "POST",
        "path": "/a%20b",
        "multiValueHeaders": headers,
        "multiValueQueryStringParameters": {"q": ["1", "2"], "e": ["%C3%BC"]},
        "body": base64.b64encode(BINARY).decode(),
        "isBase64Encoded": True,
    }


SOURCES = {"function URL": function_url, "HTTP API": http_api, "REST API": rest_api, "load balancer": load_balancer}


async def streamed(event: dict[str, Any], **options: Any) -> BufferedReply:
    """The reply as it is put on the stream."""
    reply = BufferedReply()
    await StreamingMangum(app, lifespan="off", **options).cycle(event, None, reply).respond()
    return reply


@pytest.mark.parametrize("source", SOURCES)
async def test_the_app_sees_the_whole_request(source):
    seen = json.loads((await streamed(SOURCES[source]())).body)
    assert (seen["method"], seen["path"]) == ("POST", "/a b")
    assert seen["query"] == [["q", "1"], ["q", "2"], ["e", "ü"]]
    assert base64.b64decode(seen["body"]) == BINARY
    headers = dict(seen["headers"])
    assert headers["x-a"].replace(" ", "") in ("1,2", "2")  # Mangum keeps the last of several from a load balancer
    assert headers["cookie"] == "c=1; d=2"
    assert seen["client"] == "1.2.3.4"


@pytest.mark.parametrize("source", SOURCES)
async def test_a_buffered_answer_has_every_cookie(source):
    answer = await StreamingMangum(app, lifespan="off").buffered(SOURCES[source](), None)
    cookies = answer.get("cookies") or answer.get("multiValueHeaders", {}).get("set-cookie") or []
    if source == "load balancer":
        cookies = [value for name, value in _headers(answer) if name.lower() == "set-cookie"]
    assert [cookie.split(";")[0] for cookie in cookies] == ["a=1", "b=2"]


def _headers(answer: dict[str, Any]) -> list[tuple[str, str]]:
    single = list((answer.get("headers") or {}).items())
    return single + [
        (name, value) for name, values in (answer.get("multiValueHeaders") or {}).items() for value in values
    ]


@pytest.mark.parametrize("body", ["", None])
async def test_a_request_without_a_body(body):
    seen = json.loads((await streamed(function_url(body=body, isBase64Encoded=False))).body)
    assert seen["body"] == ""


async def test_a_body_of_text_is_utf_8():
    seen = json.loads((await streamed(function_url(body="grüße 😀", isBase64Encoded=False))).body)
    assert base64.b64decode(seen["body"]).decode() == "grüße 😀"


@pytest.mark.parametrize(
    ("path", "seen"), [("/prod/agent", "/agent"), ("/prod", "/"), ("/other", "/other"), ("//agent", "//agent")]
)
async def test_a_base_path_is_taken_off(path, seen):
    event = function_url()
    event["requestContext"]["http"]["path"] = path
    assert json.loads((await streamed(event, api_gateway_base_path="/prod")).body)["path"] == seen


@pytest.mark.parametrize(
    "event", [{}, [], "text", None, 3, {"Records": [{"eventSource": "aws:sqs"}]}, {"version": "2.0"}]
)
async def test_what_is_no_request_is_an_error_and_not_a_crash(event):
    with pytest.raises(Exception):  # noqa: B017, PT011 - whatever Mangum raises, the runtime reports it
        StreamingMangum(app, lifespan="off").cycle(event, None, BufferedReply())
