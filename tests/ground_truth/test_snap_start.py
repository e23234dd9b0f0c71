"""SnapStart beside AWS's own Python runtime: the same requests in the same order, hooks, reports and exit codes."""

import json
import sys
from pathlib import Path

import pytest

from local.environment import STREAMING_RUNTIME
from tests.ground_truth.raw_api import Given, Run, run

pytestmark = pytest.mark.anyio

APPS = Path(__file__).parent / "apps"
AWSLAMBDARIC = (sys.executable, "-m", "awslambdaric", "hooks.plain")


def printed(result: Run) -> list[str]:
    return [line for line in result.output.splitlines() if line.startswith(("hook", "invoked"))]


@pytest.mark.parametrize(
    ("failing", "exit_code"),
    [("nothing", -9), ("before-1", 64), ("before-2", 64), ("after-1", 65), ("after-2", 65)],
)
async def test_the_same_life(failing: str, exit_code: int) -> None:
    env = {"AWS_LAMBDA_INITIALIZATION_TYPE": "snap-start", "FAILING": failing}
    given = [Given("id-1", "/"), Given("id-2", "/")]
    awss = await run(AWSLAMBDARIC, "hooks.plain", APPS, given, env)
    ours = await run(STREAMING_RUNTIME, "hooks.handler", APPS, given, env)
    assert ours.asked == awss.asked
    assert printed(ours) == printed(awss)
    # Without a failure both wait for a third invocation until they are killed.
    assert ours.exit_code == awss.exit_code == exit_code
    if failing != "nothing":
        (expected,), (reported,) = awss.requests, ours.requests
        name = "lambda-runtime-function-error-type"
        assert reported.header(name) == expected.header(name)
        aws_error, our_error = json.loads(expected.body), json.loads(reported.body)
        assert our_error.pop("stackTrace")[-1] == aws_error.pop("stackTrace")[-1]
        assert our_error == aws_error
