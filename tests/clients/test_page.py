"""The page as a person meets it, in a real browser: open the address, type, watch the answer grow.

The page is the `agui-inspector` package; what it is found by are its labels and its `data-` attributes.
"""

from collections.abc import AsyncIterator

import pytest

from local.stack import LocalStack
from tests.clients.browser import Browser, Found, Page

pytestmark = pytest.mark.anyio

TOKEN = "open sesame"


@pytest.fixture(scope="module")
async def url(browser: Browser) -> AsyncIterator[str]:
    async with LocalStack(model="demo") as stack:
        yield stack.url


@pytest.fixture(scope="module")
async def guarded_url(browser: Browser) -> AsyncIterator[str]:
    async with LocalStack(model="demo", token=TOKEN) as stack:
        yield stack.url


async def send(page: Page, text: str) -> None:
    await page.labelled("Message").fill(text)
    await page.labelled("Message").press("Enter")


async def finished(page: Page, runs: int) -> None:
    """Returns when so many runs have finished."""
    await page.find(f':nth-match([data-entry="run"][data-status="finished"], {runs})').shown()


def answer(page: Page) -> Found:
    return page.find('[data-entry="message"][data-role="assistant"] .agui-conv-body').last


# Notes (status of the run, text of the answer) at each change of the page.
WATCH = """() => {
  const last = (selector) => [...document.querySelectorAll(selector)].at(-1);
  window.noted = [];
  new MutationObserver(() => window.noted.push([
    last('[data-entry="run"]')?.dataset.status ?? "",
    last('[data-entry="message"][data-role="assistant"] .agui-conv-body')?.textContent ?? "",
  ])).observe(document.body, { subtree: true, childList: true, characterData: true, attributes: true });
}"""


async def test_the_address_brings_a_browser_to_a_page_with_the_agent_chosen(browser: Browser, url: str):
    page = await browser.open(url)

    assert await page.url() == f"{url}/agui-inspector/"
    await page.role("button", "Agent assistant").shown()
    assert await page.labelled("Endpoint URL").value() == "/"
    assert await page.errors() == []


async def test_the_answer_grows_before_the_eyes_and_the_next_one_remembers(browser: Browser, url: str):
    page = await browser.open(url)
    await page.evaluate(WATCH)

    await send(page, "Count to 20")
    await finished(page, runs=1)

    counted = " ".join(map(str, range(1, 21))) + "."
    text = await answer(page).text()
    assert text.endswith(counted)
    noted = await page.evaluate("() => window.noted")
    partial = {part for status, part in noted if status == "streaming" and part and part != text}
    assert len(partial) >= 3
    assert all(text.startswith(part) for part in partial)

    await send(page, "What did I say first?")
    await finished(page, runs=2)

    assert await answer(page).text() == "The first thing you said was: “Count to 20”."
    assert await page.errors() == []


async def test_a_new_thread_remembers_nothing(browser: Browser, url: str):
    page = await browser.open(url)
    await send(page, "I am Ada.")
    await finished(page, runs=1)

    await page.role("button", "New thread").click()
    await send(page, "What did I say first?")
    await finished(page, runs=1)

    assert "the first thing you have said in this thread" in await answer(page).text()


async def test_the_page_says_that_a_token_is_wanted_and_has_a_field_for_it(browser: Browser, guarded_url: str):
    page = await browser.open(guarded_url)
    await send(page, "I am Ada.")
    await page.find('[role="alert"]').shown()
    assert "HTTP 401" in await page.find('[role="alert"]').text()
    assert "Authorization: Bearer <token>" in await page.find('[role="alert"]').text()

    await page.role("button", "Authentication: no token").click()
    await page.labelled("Token").fill(f"Bearer {TOKEN}")
    await page.labelled("Token").press("Escape")
    await send(page, "I am Ada.")
    await finished(page, runs=1)

    assert "You said: “I am Ada.”" in await answer(page).text()
