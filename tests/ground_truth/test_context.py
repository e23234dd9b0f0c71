"""The context object beside that of AWS's own Python runtime, for the same headers of `/next`."""

import json
import sys
from pathlib import Path

import pytest

from local.environment import STREAMING_RUNTIME
from tests.ground_truth.raw_api import Given, run

pytestmark = pytest.mark.anyio

APPS = Path(__file__).parent / "apps"
ALL = [
    ("Lambda-Runtime-Trace-Id", "Root=1-5759e988-bd862e3fe1be46a994272793;Parent=53995c3f42cd8ad8;Sampled=1"),
    (
        "Lambda-Runtime-Client-Context",
        '{"custom":{"k":"v"},"client":{"app_title":"t"},"w3c":{"traceparent":"00-1-2-01"}}',
    ),
    ("Lambda-Runtime-Cognito-Identity", '{"cognitoIdentityId":"me","cognitoIdentityPoolId":"pool"}'),
    ("Lambda-Runtime-Aws-Tenant-Id", "blue"),
]
GIVEN = [
    Given("id-all", "/context", ALL),
    Given("id-none", "/context"),
    *(Given(f"id-only-{n}", "/context", [header]) for n, header in enumerate(ALL)),
]


async def test_an_app_sees_what_a_plain_function_sees() -> None:
    env = {"AWS_LAMBDA_LOG_STREAM_NAME": "stream"}
    awss = await run((sys.executable, "-m", "awslambdaric", "app.tells"), "app.tells", APPS, GIVEN, env)
    ours = await run(STREAMING_RUNTIME, "app.handler", APPS, GIVEN, env)
    for one in GIVEN:
        expected = json.loads(awss.answer(one.request_id).body)
        seen = json.loads(ours.answer(one.request_id).body.partition(b"\0" * 8)[2])
        assert 20_000 < seen.pop("remaining") <= 30_000
        assert 20_000 < expected.pop("remaining") <= 30_000
        assert seen.pop("pid") != expected.pop("pid")
        assert seen == expected
    assert expected["tenant_id"] == "blue"
