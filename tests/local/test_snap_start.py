"""SnapStart: the requests around a snapshot, and environments that are restored from one."""

import asyncio
import json
from collections.abc import AsyncIterator

import pytest

from local.invocation import InitError
from local.runtime_api import RuntimeAPI
from tests.local.exchange import connected, invoked, serving
from tests.local.raw_runtime import Http
from tests.local.test_function import call, function

pytestmark = pytest.mark.anyio

RESTORE_NEXT = "GET /2018-06-01/runtime/restore/next HTTP/1.1"


@pytest.fixture
async def api() -> AsyncIterator[RuntimeAPI]:
    async with serving(snap_start=True) as api:
        yield api


@pytest.fixture
async def http(api: RuntimeAPI) -> AsyncIterator[Http]:
    async with connected(api) as http:
        yield http


def report(http: Http, path: str, error_type: str) -> None:
    body = json.dumps({"errorType": error_type, "errorMessage": "no"}).encode()
    kind = f"Lambda-Runtime-Function-Error-Type: {error_type}"
    http.send(f"POST /2018-06-01/runtime/{path} HTTP/1.1", f"Content-Length: {len(body)}", kind, body=body)


async def test_restore_next_waits_for_the_restore(api, http):
    http.send(RESTORE_NEXT)
    restored = asyncio.create_task(http.answer())
    await api.snapshot
    assert not restored.done()
    assert not api.initialized.done()
    api.restore()
    status, _, body = await restored
    assert (status, body) == (200, b"")
    await invoked(api, http)
    assert api.initialized.done()


@pytest.mark.parametrize(
    ("path", "error_type"),
    [("init/error", "Runtime.BeforeSnapshotError"), ("restore/error", "Runtime.AfterRestoreError")],
)
async def test_an_error_of_a_hook_fails_the_environment(api, http, path, error_type):
    if path == "restore/error":
        http.send(RESTORE_NEXT)
        api.restore()
        await http.answer()
    report(http, path, error_type)
    assert (await http.answer())[0] == 202
    with pytest.raises(InitError, match=f"{error_type}: no"):
        await api.initialized


async def test_errors_at_the_wrong_time_are_refused(api, http):
    report(http, "restore/error", "Runtime.AfterRestoreError")
    assert (await http.answer())[0] == 403
    http.send(RESTORE_NEXT)
    api.restore()
    await http.answer()
    report(http, "init/error", "Runtime.BeforeSnapshotError")
    assert (await http.answer())[0] == 403
    http.send(RESTORE_NEXT)
    assert (await http.answer())[0] == 403


async def test_a_function_without_it_has_no_such_paths():
    async with serving() as api, connected(api) as http:
        http.send(RESTORE_NEXT)
        assert (await http.answer())[0] == 404
        report(http, "restore/error", "Runtime.AfterRestoreError")
        assert (await http.answer())[0] == 404


@pytest.mark.parametrize("handler", ["app.handler", "snap.handler"])
async def test_an_environment_is_restored_and_invoked_whether_it_has_hooks_or_not(handler):
    async with function(handler, snap_start=True) as agent:
        found = await call(agent, {"variables": ["AWS_LAMBDA_INITIALIZATION_TYPE"]})
        assert found["AWS_LAMBDA_INITIALIZATION_TYPE"] == "snap-start"


@pytest.mark.parametrize(
    ("handler", "error_type"),
    [("snap.before", "Runtime.BeforeSnapshotError"), ("snap.after", "Runtime.AfterRestoreError")],
)
async def test_an_environment_whose_hooks_fail_says_which(handler, error_type):
    with pytest.raises(InitError) as raised:
        async with function(handler, snap_start=True):
            pass
    assert raised.value.error_type == error_type
