"""The handler called as an ordinary function: what Mangum answers, but one start-up and one loop for all calls."""

import json
import sys
from pathlib import Path
from typing import Any

import pytest
from fastapi import FastAPI, Response
from fastapi.responses import StreamingResponse
from mangum import Mangum

from response_streaming import StreamingMangum
from response_streaming.adapter import streams
from response_streaming.bootstrap import import_path

startups: list[int] = []


async def lifespan(app):
    startups.append(1)
    yield


def make_app() -> FastAPI:
    app = FastAPI()

    @app.post("/stream")
    async def stream():
        async def body():
            yield b"a"
            yield "ü".encode()

        return StreamingResponse(body(), media_type="text/event-stream")

    @app.get("/image")
    async def image():
        response = Response(b"\x89PNG", media_type="image/png")
        response.set_cookie("a", "1")
        response.set_cookie("b", "2")
        return response

    @app.get("/fails")
    async def fails():
        async def body():
            yield b"half"
            raise ValueError

        return StreamingResponse(body())

    return app


def url_event(method: str = "GET", path: str = "/", domain: str = "abc.lambda-url.eu-west-1.on.aws") -> dict[str, Any]:
    return {
        "version": "2.0",
        "rawPath": path,
        "rawQueryString": "",
        "headers": {"host": domain},
        "requestContext": {"domainName": domain, "http": {"method": method, "path": path, "sourceIp": "1.2.3.4"}},
        "isBase64Encoded": False,
    }


def rest_event(method: str, path: str) -> dict[str, Any]:
    context = {"identity": {"sourceIp": "1.2.3.4"}}
    return {
        "resource": "/{proxy+}",
        "path": path,
        "httpMethod": method,
        "headers": {"host": "x"},
        "requestContext": context,
    }


def load_balancer_event(method: str, path: str) -> dict[str, Any]:
    headers = {"host": "x", "x-forwarded-for": "1.2.3.4", "x-forwarded-port": "80"}
    return {
        "requestContext": {"elb": {}},
        "httpMethod": method,
        "path": path,
        "headers": headers,
        "body": "",
        "isBase64Encoded": False,
        "queryStringParameters": {},
    }


def answer(app: FastAPI, *events: dict[str, Any]) -> dict[str, Any]:
    """The answer to the last of `events`, from a handler that is called as an ordinary function."""
    handler = StreamingMangum(app)
    try:
        return [handler(event, None) for event in events][-1]
    finally:
        handler.close()


@pytest.mark.parametrize("make_event", [url_event, rest_event, load_balancer_event])
@pytest.mark.parametrize(
    ("method", "path"), [("POST", "/stream"), ("GET", "/image"), ("GET", "/missing"), ("GET", "/fails")]
)
def test_the_answer_is_mangums(make_event, method, path):
    event = make_event(method, path)
    assert answer(make_app(), event) == Mangum(make_app())(event, None)


def test_start_up_runs_once_for_all_calls():
    assert answer(FastAPI(lifespan=lifespan), *[url_event(path="/openapi.json")] * 3)["statusCode"] == 200
    assert len(startups) == 1


def test_a_run_of_an_agent_is_whole_in_one_piece():
    """The BUFFERED invoke mode, an HTTP API, a load balancer: nothing is lost but the waiting."""
    whole = answer(make_app(), url_event("POST", "/stream"))
    assert (whole["body"], whole["isBase64Encoded"]) == ("aü", False)
    assert whole["headers"]["content-type"].startswith("text/event-stream")


@pytest.mark.parametrize(
    ("event", "environment", "expected"),
    [
        (url_event(), {}, True),
        (url_event(domain="x.execute-api.eu-west-1.amazonaws.com"), {}, False),
        (rest_event("GET", "/"), {}, False),
        (rest_event("GET", "/"), {"RESPONSE_STREAMING": "always"}, True),
        (load_balancer_event("GET", "/"), {}, False),
        (url_event(), {"AWS_SAM_LOCAL": "true"}, False),
        (url_event(), {"RESPONSE_STREAMING": "never"}, False),
        ({}, {}, False),
    ],
)
def test_who_gets_a_stream(monkeypatch, event, environment, expected):
    for name, value in environment.items():
        monkeypatch.setenv(name, value)
    assert streams(event) is expected


def test_the_sample_events_are_function_url_events():
    events = list((Path(__file__).parents[3] / "events").glob("*.json"))
    assert events
    assert all(streams(json.loads(file.read_text())) for file in events if "version" in json.loads(file.read_text()))


def test_imports_are_looked_up_in_lambdas_order():
    bare = ["/opt/python/response_streaming", "/usr/lib/python3"]
    path = import_path("/opt/python", "/var/task", "/var/runtime", bare, python_path_is_set=False)
    site_packages = f"/opt/python/lib/python{sys.version_info.major}.{sys.version_info.minor}/site-packages"
    assert path == ["/var/task", site_packages, "/opt/python", "/usr/lib/python3", "/var/runtime"]


def test_a_python_path_of_the_functions_own_decides_about_layers():
    bare = ["/opt/python/response_streaming", "/my/packages", "/usr/lib/python3"]
    path = import_path("/opt/python", "/var/task", "/var/runtime", bare, python_path_is_set=True)
    assert path[:3] == ["/var/task", "/my/packages", "/usr/lib/python3"]
    assert path[-2:] == ["/opt/python", "/var/runtime"]
