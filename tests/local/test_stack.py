"""`python -m local` as a person uses it: one address, other apps, reload, signals, and nothing left behind."""

import asyncio
import os
import re
import shlex
import shutil
import signal
import socket
import sys
import time
from contextlib import asynccontextmanager
from pathlib import Path

import aiohttp
import pytest
from watchfiles import Change

from local.reload import matters
from local.stack import LocalStack
from tests.local.waiting import running, until

pytestmark = pytest.mark.anyio

ROOT = Path(__file__).resolve().parents[2]
APPS = Path(__file__).parent / "apps"
BARE = ("--no-table", "--no-model")


class Terminal:
    """`python -m local` with what it prints."""

    def __init__(self, process: asyncio.subprocess.Process) -> None:
        self.process = process

    async def line(self, pattern: str) -> re.Match[str]:
        """The next line of stdout that matches."""
        async with asyncio.timeout(20):
            while line := (await self.process.stdout.readline()).decode():
                if found := re.search(pattern, line):
                    return found
        raise AssertionError((await self.process.stderr.read()).decode())

    async def log(self, pattern: str) -> re.Match[str]:
        """The next line of stderr that matches."""
        async with asyncio.timeout(20):
            while line := (await self.process.stderr.readline()).decode():
                if found := re.search(pattern, line):
                    return found
        raise AssertionError("stderr ended")


@asynccontextmanager
async def terminal(*arguments: str, **env: str):
    # `--port 0` is not for people, but lets tests run side by side.
    inherited = {name: value for name, value in os.environ.items() if not name.startswith(("OPENAI_", "TOKEN"))}
    process = await asyncio.create_subprocess_exec(
        sys.executable,
        "-m",
        "local",
        *arguments,
        cwd=ROOT,
        env=inherited | env,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
    )
    try:
        yield Terminal(process)
    finally:
        if process.returncode is None:
            process.kill()
        await process.wait()


def asgi(task_root: Path = APPS, handler: str = "asgi.handler") -> list[str]:
    return ["--port", "0", "--task-root", str(task_root), "--handler", handler, *BARE]


async def test_another_asgi_app_streams_with_the_documented_options():
    async with terminal(*asgi(), "--no-reload") as shell, aiohttp.ClientSession() as http:
        url = (await shell.line(r"http://127.0.0.1:\d+/"))[0]
        pieces = []
        async with http.get(url + "count") as response:
            async for piece in response.content.iter_any():
                pieces.append((piece, time.monotonic()))
        assert b"".join(piece for piece, _ in pieces) == b"0\n1\n2\n"
        assert pieces[-1][1] - pieces[0][1] > 0.03


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
async def test_a_signal_ends_everything_within_two_seconds(number):
    async with terminal(*asgi()) as shell:
        await shell.line("http://")
        children = _children(shell.process.pid)
        assert children
        began = time.monotonic()
        shell.process.send_signal(number)
        assert await shell.process.wait() == 0
        assert time.monotonic() - began < 2
        assert "Traceback" not in (await shell.process.stderr.read()).decode()
        assert not any(map(running, children))


async def test_a_signal_while_starting_ends_it_too():
    async with terminal(*asgi()) as shell:
        await until(lambda: _children(shell.process.pid))
        shell.process.send_signal(signal.SIGINT)
        assert await shell.process.wait() == 0
        assert "Traceback" not in (await shell.process.stderr.read()).decode()


async def test_a_killed_stack_leaves_nothing_behind():
    async with terminal(*asgi()) as shell:
        await shell.line("http://")
        children = _children(shell.process.pid)
        shell.process.kill()
        await until(lambda: not any(map(running, children)))


async def test_a_taken_port_is_one_sentence():
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = str(taken.getsockname()[1])
        async with terminal(*BARE, PORT=port) as shell:
            assert await shell.process.wait() == 1
            error = (await shell.process.stderr.read()).decode()
    assert error.strip() == f"Port {port} cannot be used (Address already in use): choose another with --port or PORT."


async def test_a_port_that_is_none_is_one_sentence():
    async with terminal(*BARE, PORT="80000") as shell:
        assert await shell.process.wait() == 1
        error = (await shell.process.stderr.read()).decode()
    assert error.strip() == "Port 80000 cannot be used (ports end at 65535): choose another with --port or PORT."


async def test_the_command_that_is_printed_survives_any_token():
    async with terminal("--port", "0", "--no-table", "--no-model", TOKEN="it's $HOME") as shell:
        command = (await shell.line("curl .*"))[0]
    assert "Authorization: Bearer it's $HOME" in shlex.split(command)


async def test_editing_a_file_brings_the_new_code(tmp_path):
    code = tmp_path / "asgi.py"
    shutil.copy(APPS / "asgi.py", code)
    async with terminal(*asgi(tmp_path)) as shell, aiohttp.ClientSession() as http:
        url = (await shell.line(r"http://127.0.0.1:\d+/"))[0]
        original = code.read_text()
        for change, expected in (("{n}!", "0!"), ("{nonsense", None), ("{n}?", "0?")):
            code.write_text(original.replace("{n}", change))
            await shell.log(r"asgi.py changed: restarting the environments")
            await shell.log(r"INIT" if expected else r"INIT failed: .*SyntaxError")
            async with http.get(url + "count") as response:
                assert response.status == (200 if expected else 502)
                if expected:
                    assert (await response.text()).split()[0] == expected


def test_only_what_a_function_is_made_of_restarts_it():
    for name in ("app.py", "prompt.md", "settings.json", "page.html"):
        assert matters(Change.modified, f"/code/{name}"), name
    for name in ("sedXq3dTz", ".app.py.swp", "4913", "app.py~", ".#app.py", "#app.py#", "app.py.tmp", "app.pyc"):
        assert not matters(Change.modified, f"/code/{name}"), name
    assert not matters(Change.added, "/code/__pycache__/app.py")


@pytest.mark.parametrize(
    "options",
    [["--snap-start", "--freeze"], ["--max-concurrency", "4"], ["--source", "rest"], ["--init-timeout", "60"]],
)
async def test_lambdas_other_modes_run_the_same_app(options):
    async with terminal(*asgi(), *options) as shell, aiohttp.ClientSession() as http:
        url = (await shell.line(r"http://127.0.0.1:\d+/"))[0]
        for _ in range(2):
            async with http.get(url + "count") as response:
                assert await response.text() == "0\n1\n2\n"


async def test_an_init_error_without_reload_ends_it_with_the_reason():
    async with terminal(*asgi(handler="asgi.nothing"), "--no-reload") as shell:
        assert await shell.process.wait() == 1
        assert "Runtime.HandlerNotFound" in (await shell.process.stderr.read()).decode()


@pytest.mark.parametrize(
    ("arguments", "env", "sentence"),
    [
        ([], {"PORT": "http"}, "invalid int value: 'http'"),
        ([], {"CORS_ORIGIN": "http://localhost:5173, localhost"}, "write http://localhost:5173, or *"),
        (["--max-environments", "0"], {}, "--max-environments has to be 1 or more"),
        ([], {"MODEL": "gpt"}, "MODEL=gpt is not one of demo, smollm2"),
        (["--task-root", "nowhere"], {}, "--task-root nowhere is not a folder"),
        (["--max-concurrency", "0"], {}, "--max-concurrency has to be 1 or more"),
        (["--max-concurrency", "8", "--freeze"], {}, "which know neither --snap-start nor --freeze"),
    ],
)
async def test_a_wrong_option_is_one_sentence(arguments, env, sentence):
    async with terminal(*arguments, **env) as shell:
        assert await shell.process.wait() == 2
        assert (await shell.process.stderr.read()).decode().strip().endswith(sentence)


async def test_help_explains_itself():
    async with terminal("--help") as shell:
        output = (await shell.process.stdout.read()).decode()
    assert "--task-root" in output
    assert "Any other ASGI app" in output
    assert "--max-environments" in output


async def test_the_function_is_told_where_table_and_model_are(tmp_path):
    raw = (sys.executable, str(Path(__file__).parent / "raw_runtime.py"))
    names = (
        "TABLE_NAME AWS_ENDPOINT_URL_DYNAMODB AWS_PROFILE ACCESS ACCESS_TOKEN INSPECTOR OPENAI_BASE_URL EXTRA".split()
    )
    env = {"EXTRA": "1", "OPENAI_BASE_URL": "http://model.example/v1"}
    async with (
        LocalStack(command=raw, data=tmp_path, token="t0k", env=env) as stack,
        aiohttp.ClientSession(headers={"content-type": "application/json"}) as http,
        http.post(stack.url, json=[{"variables": names}]) as response,
    ):
        found = await response.json()
        found.pop("pid")
        assert found == {
            "TABLE_NAME": "threads",
            "AWS_ENDPOINT_URL_DYNAMODB": stack.table_url,
            "AWS_PROFILE": None,
            "ACCESS": "token",
            "ACCESS_TOKEN": "t0k",
            "INSPECTOR": "on",
            **env,
        }
        # The model that `env` names is used, no other is started.
        assert stack.model_url is None
        assert list(tmp_path.glob("threads-*.jsonl"))


def _children(pid: int) -> list[int]:
    children = Path(f"/proc/{pid}/task/{pid}/children")
    if not children.exists():
        pytest.skip("needs /proc")
    return [int(child) for child in children.read_text().split()]
