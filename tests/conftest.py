"""What every test shares: coroutines marked `anyio` run on asyncio, the loop the product runs on."""

import pytest


@pytest.fixture
def anyio_backend() -> str:
    return "asyncio"
