"""Where an official client or a browser is missing the tests here say so and are skipped; with CI set they fail."""

from collections.abc import AsyncIterator

import pytest

from tests.clients.browser import Browser, open_browser


@pytest.fixture(scope="module")
def anyio_backend() -> str:
    """For the fixtures that live as long as a module: a stack and a browser take a second to start."""
    return "asyncio"


@pytest.fixture(scope="module")
async def browser() -> AsyncIterator[Browser]:
    async with open_browser() as browser:
        yield browser
