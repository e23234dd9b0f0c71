"""The emulator under AWS's own Python client: what AWS ships as the managed runtime runs here unchanged."""

import sys
from pathlib import Path

import aiohttp
import pytest

from local.invocation import InitError
from local.stack import LocalStack

pytestmark = pytest.mark.anyio

AWSLAMBDARIC = (sys.executable, "-m", "awslambdaric")
APPS = Path(__file__).parent / "apps"


def stock(handler: str) -> LocalStack:
    return LocalStack(
        table=False, model=None, task_root=APPS, handler=handler, command=(*AWSLAMBDARIC, handler), timeout=30
    )


async def test_awss_client_answers_buffered_and_its_errors_are_502():
    async with stock("plain.handler") as stack, aiohttp.ClientSession() as http:
        for n in range(3):
            async with http.post(stack.url, data=f"n{n}", headers={"content-type": "text/plain"}) as response:
                assert response.status == 200
                words = (await response.text()).split()
            assert words[:4] == ["POST", f"n{n}", "agent", "True"]
            assert words[4] == response.headers["x-amzn-requestid"]
            assert response.headers["set-cookie"] == "a=1"
            async with http.get(stack.url + "/boom") as response:
                assert response.status == 502
        assert stack.function.environments == 1


async def test_awss_client_reports_its_init_errors():
    with pytest.raises(InitError, match=r"Runtime\.ImportModuleError"):
        async with stock("missing.handler"):
            pass
