"""A headless Chromium, as a test uses it; `browser.mjs` is its other half.

`Page` and `Found` hand on to Playwright's page and locator, whose names and waiting they keep: an action waits until
it is possible. https://playwright.dev/docs/api/class-locator
"""

from __future__ import annotations

import itertools
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

from tests.clients.node import NodeProgram, executable, node_program


class Browser:
    """Gives each test a page without cookies or storage of another."""

    def __init__(self, program: NodeProgram) -> None:
        self._program = program
        self._names = map("page-{}".format, itertools.count(1))

    async def open(self, url: str) -> Page:
        page = Page(self._program, next(self._names))
        await page.call("goto", url)
        return page


class Found:
    """What Playwright finds by `find`, each step in what the one before found."""

    def __init__(self, program: NodeProgram, page: str, find: tuple[tuple[Any, ...], ...] = ()) -> None:
        self._program = program
        self._page = page
        self._find = find

    async def call(self, method: str, *values: Any) -> Any:
        """What a method returns, if that is text."""
        return await self._program.request({"page": self._page, "find": self._find, "call": [method, *values]})

    def find(self, selector: str) -> Found:
        """By a CSS selector."""
        return self._then("locator", selector)

    def labelled(self, label: str) -> Found:
        return self._then("getByLabel", label, {"exact": True})

    def role(self, role: str, name: str) -> Found:
        """By what a screen reader calls it."""
        return self._then("getByRole", role, {"name": name, "exact": True})

    @property
    def last(self) -> Found:
        return self._then("last")

    def _then(self, *step: Any) -> Found:
        return Found(self._program, self._page, (*self._find, step))

    async def click(self) -> None:
        await self.call("click")

    async def fill(self, text: str) -> None:
        await self.call("fill", text)

    async def press(self, key: str) -> None:
        await self.call("press", key)

    async def shown(self) -> None:
        """Returns when it is visible."""
        await self.call("waitFor")

    async def text(self) -> str:
        return str(await self.call("textContent"))

    async def value(self) -> str:
        return str(await self.call("inputValue"))


class Page(Found):
    async def evaluate(self, script: str, value: Any = None) -> Any:
        """What a JavaScript function returns that is called with `value` in the page, and awaited."""
        return await self.call("evaluate", script, value)

    async def until(self, script: str, value: Any = None) -> None:
        """Returns when such a function has returned something true."""
        await self.call("waitForFunction", script, value)

    async def url(self) -> str:
        return str(await self.call("url"))

    async def errors(self) -> list[str]:
        """What the console complained about so far."""
        errors: list[str] = await self._program.request({"errors": self._page})
        return errors


@asynccontextmanager
async def open_browser() -> AsyncIterator[Browser]:
    chromium = executable(
        "chromium", "chromium-browser", "google-chrome", "google-chrome-stable", hint="the page is tested in it."
    )
    async with node_program("browser.mjs", chromium) as program:
        yield Browser(program)
