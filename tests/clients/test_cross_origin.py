"""A page from another origin calls the function URL straight from the browser, which decides what its script may see:
the stream as it comes, and the reason of a refusal."""

import asyncio
import json
from collections.abc import AsyncIterator
from typing import Any

import pytest
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import HTMLResponse
from starlette.routing import Route

from local.child import LoopbackServer, listen
from local.stack import LocalStack
from tests.clients.agent import check_stream
from tests.clients.browser import Browser, Page
from tests.model_server import ModelServer, fin, say, wait_for

pytestmark = pytest.mark.anyio

TOKEN = "open sesame"
BODY = {"threadId": "t1", "runId": "r1", "messages": [{"id": "m1", "role": "user", "content": "Hello"}]}


@pytest.fixture(scope="module")
async def model_server(browser: Browser) -> AsyncIterator[ModelServer]:
    async with ModelServer() as server:
        yield server


@pytest.fixture
def model(model_server: ModelServer) -> ModelServer:
    """The model, with nothing seen yet."""
    model_server.requests.clear()
    return model_server


@pytest.fixture(scope="module")
async def url(model_server: ModelServer) -> AsyncIterator[str]:
    env = {"OPENAI_BASE_URL": model_server.url, "OPENAI_API_KEY": "test-key", "OPENAI_MODEL": "scripted"}
    async with LocalStack(env=env, token=TOKEN) as stack:
        yield stack.url


@pytest.fixture(scope="module")
async def elsewhere(anyio_backend: str) -> AsyncIterator[str]:
    """The address of an empty page on another port, which is another origin."""

    async def page(request: Request) -> HTMLResponse:
        return HTMLResponse("<!doctype html><title>Elsewhere</title><link rel=icon href=data:,>")

    server = LoopbackServer(Starlette(routes=[Route("/", page)]), listen())
    await server.start()
    yield f"http://127.0.0.1:{server.port}/"
    await server.stop()


# What a script sees of an answer; `window.text` is what has come of it so far.
CALL = """async ({ url, headers, body }) => {
  const response = await fetch(url, { method: "POST", headers, body });
  const reader = response.body.pipeThrough(new TextDecoderStream()).getReader();
  window.text = "";
  for (;;) {
    const { done, value } = await reader.read();
    if (done) break;
    window.text += value;
  }
  return { status: response.status, headers: Object.fromEntries(response.headers), text: window.text };
}"""


def call(page: Page, url: str, body: str = json.dumps(BODY), token: str | None = TOKEN) -> asyncio.Task[Any]:
    headers = {"Content-Type": "application/json", "X-Requested-With": "fetch"}
    if token:
        headers["Authorization"] = f"Bearer {token}"
    return asyncio.create_task(page.evaluate(CALL, {"url": f"{url}/", "headers": headers, "body": body}))


async def test_a_script_reads_the_stream_as_it_comes(browser: Browser, url: str, elsewhere: str, model: ModelServer):
    page = await browser.open(elsewhere)
    go_on = asyncio.Event()
    model.reply(say("One"), wait_for(go_on), say(" two."), fin())

    calling = call(page, url)
    await page.until("""() => window.text?.includes('"One"')""")
    assert "two" not in await page.evaluate("() => window.text")
    go_on.set()
    answer = await calling

    assert answer["status"] == 200
    check_stream(answer["headers"]["content-type"], answer["text"])
    assert answer["headers"]["x-amzn-requestid"]
    assert await page.errors() == []


@pytest.mark.parametrize("token", [None, "wrong"])
async def test_a_script_reads_that_it_needs_a_token(
    browser: Browser, url: str, elsewhere: str, model: ModelServer, token: str | None
):
    answer = await call(await browser.open(elsewhere), url, token=token)

    assert answer["status"] == 401
    assert answer["headers"]["www-authenticate"] == "Bearer"
    assert json.loads(answer["text"])["code"] == "UNAUTHORIZED"
    assert model.saw == []


@pytest.mark.parametrize(
    ("body", "status", "code"),
    [
        (json.dumps(BODY | {"messages": "Hello"}), 422, "INVALID_INPUT"),
        ("{", 400, "INVALID_JSON"),
        # Refused by the front of the function, before the app.
        (json.dumps(BODY | {"state": "x" * 6 * 1024 * 1024}), 413, None),
    ],
    ids=["malformed", "no JSON", "too large"],
)
async def test_a_script_reads_why_its_input_was_refused(
    browser: Browser, url: str, elsewhere: str, model: ModelServer, body: str, status: int, code: str | None
):
    answer = await call(await browser.open(elsewhere), url, body)

    assert answer["status"] == status
    assert json.loads(answer["text"]).get("code") == code
    assert model.saw == []
