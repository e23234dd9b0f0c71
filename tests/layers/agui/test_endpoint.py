"""The HTTP face: what is refused before a run begins, and how an answer looks on the wire."""

import json

import boto3
import pytest
from fastapi import FastAPI
from fastapi.testclient import TestClient

from agui_lambda import Agent, add_agent, create_app
from tests.agent_server import agent_server, user
from tests.model_server import fin, say

pytestmark = pytest.mark.anyio


async def test_an_answer_has_the_headers_that_keep_it_streaming():
    async with agent_server() as served:
        served.model.reply(say("Hi"), fin())
        answer = await served.run(user("hello"))
    assert answer.status == 200
    assert answer.headers["content-type"] == "text/event-stream"
    assert answer.headers["cache-control"] == "no-cache, no-store"
    assert "content-encoding" not in answer.headers
    assert "content-length" not in answer.headers


@pytest.mark.parametrize(
    ("body", "status", "code", "field"),
    [
        (b"{", 400, "INVALID_JSON", None),
        (b"", 400, "INVALID_JSON", None),
        (b"[]", 422, "INVALID_INPUT", ""),
        (b'{"threadId":"t","runId":"r","messages":"hi"}', 422, "INVALID_INPUT", "messages"),
        (b'{"threadId":"t","messages":[]}', 422, "INVALID_INPUT", "runId"),
        (b" " * (6 * 1024 * 1024 + 1), 413, "BODY_TOO_LARGE", None),
    ],
)
async def test_a_bad_request_is_json_that_names_the_member_and_no_stream(body, status, code, field):
    async with agent_server() as served:
        answer = await served.post(body)
    assert (answer.status, answer.json["code"], answer.json.get("field")) == (status, code, field)
    assert answer.json["message"]
    assert answer.headers["content-type"] == "application/json"
    assert served.model.saw == []


@pytest.mark.parametrize("kind", ["text/plain", "application/x-www-form-urlencoded", ""])
async def test_a_body_that_any_web_page_could_send_is_refused(kind):
    async with agent_server() as served:
        answer = await served.post(served.input(user("hello")), **{"Content-Type": kind})
    assert (answer.status, answer.json["code"]) == (415, "NOT_JSON")


async def test_a_charset_behind_the_type_does_no_harm():
    async with agent_server() as served:
        served.model.reply(say("Hi"), fin())
        answer = await served.post(served.input(user("hello")), **{"Content-Type": "Application/JSON; charset=utf-8"})
    assert answer.text == "Hi"


async def test_a_token_that_cannot_be_fetched_is_no_crash():
    async with agent_server(ACCESS="token", ACCESS_TOKEN_SECRET="no-such-secret") as served:
        answer = await served.post(served.input(user("hello")), Authorization="Bearer x")
    assert (answer.status, answer.json["code"]) == (503, "ACCESS_UNAVAILABLE")
    assert b"no-such-secret" not in answer.body


async def test_the_token_comes_from_secrets_manager_once():
    async with agent_server(ACCESS="token", ACCESS_TOKEN_SECRET="agent-token") as served:
        secrets = boto3.client("secretsmanager", region_name="us-east-1")
        secrets.create_secret(Name="agent-token", SecretString="from-aws")
        served.model.otherwise(say("Hi"), fin())
        first = await served.post(served.input(user("hello")), Authorization="Bearer from-aws")
        secrets.delete_secret(SecretId="agent-token", ForceDeleteWithoutRecovery=True)
        second = await served.post(served.input(user("hello")), Authorization="Bearer from-aws")
    assert (first.text, second.text) == ("Hi", "Hi")


@pytest.mark.parametrize(
    "header",
    [
        {},
        {"Authorization": "Bearer wrong"},
        {"Authorization": "Basic secret"},
        {"Authorization": "Bearer"},
        {"Authorization": "Bearer sécret"},
    ],
)
async def test_without_the_token_nobody_gets_in(header):
    async with agent_server(ACCESS="token", ACCESS_TOKEN="secret") as served:
        answer = await served.post(served.input(user("hello")), **header)
    assert (answer.status, answer.json["code"]) == (401, "UNAUTHORIZED")
    assert answer.headers["www-authenticate"] == "Bearer"
    assert b"secret" not in answer.body
    assert served.model.saw == []


@pytest.mark.parametrize("header", ["Bearer secret", "bearer secret", "secret"])
async def test_with_the_token_the_run_begins(header):
    async with agent_server(ACCESS="token", ACCESS_TOKEN="secret") as served:
        served.model.reply(say("Hi"), fin())
        answer = await served.post(served.input(user("hello")), Authorization=header)
    assert answer.text == "Hi"


async def test_a_deployment_without_any_token_lets_nobody_in():
    async with agent_server(ACCESS="token") as served:
        answer = await served.run(user("hello"))
    assert (answer.status, answer.json["code"]) == (401, "NO_TOKEN_CONFIGURED")


def test_a_wrong_setting_is_told_at_once(monkeypatch):
    monkeypatch.delenv("TABLE_NAME", raising=False)
    with pytest.raises(ValueError, match="TABLE_NAME"):
        create_app(Agent(name="a"))
    monkeypatch.setenv("TABLE_NAME", "threads")
    monkeypatch.setenv("ACCESS", "everyone")
    with pytest.raises(ValueError, match="everyone"):
        create_app(Agent(name="a"))


@pytest.fixture
def settings(monkeypatch):
    monkeypatch.setenv("TABLE_NAME", "threads")
    monkeypatch.setenv("ACCESS", "none")


def test_only_post_runs_an_agent(settings):
    client = TestClient(create_app(Agent(name="a")))
    for method in ("GET", "PUT", "DELETE"):
        response = client.request(method, "/", headers={"Accept": "text/html"})
        assert (response.status_code, response.headers["allow"]) == (405, "POST")


def test_a_browser_is_brought_to_the_page_if_there_is_one(settings, monkeypatch):
    monkeypatch.setenv("INSPECTOR", "on")
    client = TestClient(create_app({"/": Agent(name="a"), "/b": Agent(name="b")}))
    response = client.get("/", headers={"Accept": "text/html,*/*"}, follow_redirects=False)
    assert (response.status_code, response.headers["location"]) == (307, "/agui-inspector/")
    assert client.get("/", headers={"Accept": "application/json"}).status_code == 405
    page = client.get("/agui-inspector/")
    assert page.headers["content-type"].startswith("text/html")
    assert [(a["id"], a["url"]) for a in client.get("/agui-inspector/config.json").json()["agents"]] == [
        ("a", "/"),
        ("b", "/b"),
    ]


def test_without_the_setting_there_is_no_page(settings):
    assert TestClient(create_app(Agent(name="a"))).get("/agui-inspector/").status_code == 404


def test_agents_can_be_added_to_an_app_of_ones_own(settings):
    app = FastAPI()
    add_agent(app, "/a", Agent(name="a"))
    add_agent(app, "/b", Agent(name="b"))
    client = TestClient(app, headers={"Content-Type": "application/json"})
    assert client.post("/b", content=b"{").json()["code"] == "INVALID_JSON"
    assert set(client.get("/openapi.json").json()["paths"]) == {"/a", "/b"}


async def test_agents_at_two_paths_do_not_see_each_others_threads():
    async with agent_server({"/a": Agent(name="a"), "/b": Agent(name="b")}) as served:
        served.model.otherwise(say("Hi"), fin())
        await served.post(served.input(user("to a")), "/a")
        await served.post(served.input(user("to b")), "/b")
    assert served.last_request == [("user", "to b")]


async def test_the_openapi_description_is_valid_json_with_the_run():
    async with agent_server() as served, served.session.get(served.url + "/openapi.json") as response:
        document = json.loads(await response.read())
    assert "text/event-stream" in document["paths"]["/"]["post"]["responses"]["200"]["content"]
