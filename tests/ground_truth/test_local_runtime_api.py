"""The Runtime API of `local/` beside the one in AWS's emulator: a runtime that breaks the rules hears the same."""

from __future__ import annotations

import json
import re
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import aiohttp
import pytest

from local.invoke import Emulator
from local.stack import LocalStack
from tests.ground_truth.apps.probe import cases
from tests.ground_truth.emulator import ManagedInstances, build, invoke, namespaces_or_skip
from tests.local.waiting import until

pytestmark = [pytest.mark.anyio, pytest.mark.skipif(sys.platform != "linux", reason="the emulator needs Linux")]

APPS = Path(__file__).parent / "apps"
Reports = dict[str, list[dict[str, Any]]]

# What makes the emulator itself panic in its ordinary mode.
PANIC = ("cut-stream", "cut-body", "not-a-chunk", "trailers-too-large")
ALONE = [case for case in cases("") if case not in (*PANIC, "unknown-mode")]
# There a second `/next` is a second invocation, and an error of INIT is always taken: other processes may be in it.
TOGETHER = [case for case in cases("") if case not in ("unknown-mode", "next-again", "init-error-late")]


@asynccontextmanager
async def probe(**options: Any) -> AsyncIterator[aiohttp.ClientSession]:
    """The probe under our Runtime API."""
    command = (str(APPS / "probe"), sys.executable)
    async with (
        LocalStack(
            table=False, model=None, task_root=APPS, command=command, timeout=30, max_environments=1, **options
        ) as stack,
        aiohttp.ClientSession(stack.url) as http,
    ):
        yield http


async def visit(http: aiohttp.ClientSession, case: str) -> None:
    try:
        async with http.get(f"/{case}") as response:
            await response.read()
    except aiohttp.ClientPayloadError:
        pass  # Cut, as it should be; here counts what the runtime was told.


async def reports_of_ours(names: list[str], **options: Any) -> Reports:
    async with probe(**options) as http:
        for case in names:
            await visit(http, case)
        reports: Reports = await (await http.get("/report")).json()
    return reports


async def reports_of_awss(emulator: Emulator, names: list[str]) -> Reports:
    async with emulator:
        for case in names:
            await invoke(emulator, f"/{case}")
        reports: Reports = json.loads((await invoke(emulator, "/report")).body)
    return reports


@pytest.fixture(scope="module")
async def classic(tmp_path_factory: pytest.TempPathFactory) -> tuple[Reports, Reports]:
    settings = {"AWS_LAMBDA_EXEC_WRAPPER": str(APPS / "probe")}
    awss = await reports_of_awss(Emulator(build(tmp_path_factory.mktemp("classic")), settings), ALONE)
    return awss, await reports_of_ours(ALONE)


@pytest.fixture(scope="module")
async def managed(tmp_path_factory: pytest.TempPathFactory) -> tuple[Reports, Reports]:
    namespaces_or_skip()
    settings = {"AWS_LAMBDA_EXEC_WRAPPER": "/var/task/probe"}
    awss = await reports_of_awss(ManagedInstances(build(tmp_path_factory.mktemp("managed")), settings), TOGETHER)
    return awss, await reports_of_ours(TOGETHER, max_concurrency=2)


def assert_the_same(both: tuple[Reports, Reports], case: str) -> None:
    awss, ours = both
    assert len(ours[case]) == len(awss[case])
    for expected, answered in zip(awss[case], ours[case], strict=True):
        # Where AWS gives an error no type, as Go's router does, ours may.
        assert {name: answered.get(name) for name in expected} == expected


@pytest.mark.parametrize("case", ALONE)
async def test_one_invocation_at_a_time(classic: tuple[Reports, Reports], case: str) -> None:
    assert_the_same(classic, case)


@pytest.mark.parametrize("case", TOGETHER)
async def test_managed_instances(managed: tuple[Reports, Reports], case: str) -> None:
    assert_the_same(managed, case)


async def test_after_an_unknown_response_mode_an_environment_is_of_no_more_use(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    log = ""

    def told() -> list[dict[str, Any]]:
        """What the probe was answered, as it is the last thing it says."""
        nonlocal log
        log += capfd.readouterr().err
        found = re.findall(r"^unknown-mode: (.*)$", log, re.MULTILINE)
        return json.loads(found[-1]) if found else []

    async with Emulator(build(tmp_path), {"AWS_LAMBDA_EXEC_WRAPPER": str(APPS / "probe")}) as emulator:
        await invoke(emulator, "/unknown-mode")
        await until(told)
    expected, log = told(), ""
    async with probe() as http:
        await visit(http, "unknown-mode")
        await until(told)
    assert told() == expected
    assert [answer["status"] for answer in expected] == [400, 403, 403]
