"""One event through AWS's own runtime interface emulator and the built layers: `python -m local.invoke EVENT`.

The nearest thing to Lambda without an account and without Docker: the emulator is the binary that the `aws-sam-cli`
wheel ships, the code is what `sam build` left, laid together like /opt and /var/task, on a bare Python of the
function's version. Table and demo model are those of `python -m local`. The emulator hands the answer out in one
piece, so this shows what is said, not when; for that there is `make run`.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import platform
import re
import signal
import socket
import sys
import tempfile
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path
from typing import Any

import aiohttp

from local.built import lay_out
from local.child import ROOT, Child, start_child

BUILD = ROOT / ".aws-sam" / "invoke" / "build"
SAM = ROOT / ".venv-sam"
DATA = ROOT / ".local" / "invoke.jsonl"

TIMEOUT_SECONDS = 300
REGION = "us-east-1"

# What the managed image does at /var/runtime/bootstrap: it looks at the wrapper and hands Python and bootstrap to it.
# Without a wrapper the stock runtime runs, which on the managed image is the same package.
BOOTSTRAP = """\
#!/bin/sh
export AWS_EXECUTION_ENV=AWS_Lambda_{python}
if [ -z "$AWS_LAMBDA_EXEC_WRAPPER" ]; then
  export PYTHONPATH="$LAMBDA_TASK_ROOT:{opt}/python"
  exec "{lang}/bin/python" -m awslambdaric "$_HANDLER"
fi
[ -e "$AWS_LAMBDA_EXEC_WRAPPER" ] || {{ echo "$AWS_LAMBDA_EXEC_WRAPPER: does not exist" >&2; exit 127; }}
[ -x "$AWS_LAMBDA_EXEC_WRAPPER" ] || {{ echo "$AWS_LAMBDA_EXEC_WRAPPER: is not an executable" >&2; exit 126; }}
exec "$AWS_LAMBDA_EXEC_WRAPPER" "{lang}/bin/python" "$LAMBDA_RUNTIME_DIR/bootstrap.py"
"""


class CannotInvoke(Exception):
    """Something that this needs is missing; the message says what to do."""


class Answer:
    """A function's answer as the emulator hands it out: the prelude and the body of a streamed one, taken apart.

    Raises CannotInvoke when there is no prelude: then it is the error that the runtime or the emulator reported.
    """

    def __init__(self, reply: bytes) -> None:
        head, delimiter, self.body = reply.partition(b"\0" * 8)
        if not delimiter:
            raise CannotInvoke(f"The function answered no HTTP response:\n{reply.decode(errors='replace')}")
        prelude = json.loads(head)
        self.status: int = prelude["statusCode"]
        self.headers: dict[str, str] = prelude.get("headers", {})
        self.cookies: list[str] = prelude.get("cookies", [])

    @property
    def events(self) -> list[dict[str, Any]]:
        """The AG-UI events of a text/event-stream body, in order."""
        frames = re.split(r"\r?\n\r?\n", self.body.decode())
        data = ("\n".join(re.findall(r"^data: ?(.*)$", frame, re.MULTILINE)) for frame in frames)
        return [json.loads(text) for text in data if text]

    @property
    def finished(self) -> bool:
        """Whether it is a run that ended well: with RUN_FINISHED as the last event."""
        return self.status == 200 and bool(self.events) and self.events[-1].get("type") == "RUN_FINISHED"

    def __str__(self) -> str:
        lines = [f"HTTP {self.status}", *(f"{name}: {value}" for name, value in self.headers.items())]
        lines += [f"set-cookie: {cookie}" for cookie in self.cookies]
        return "\n".join(lines) + "\n\n" + self.body.decode(errors="replace")


class Emulator:
    """AWS's runtime interface emulator with one execution environment in it, on two free ports of 127.0.0.1.

    `build` is a folder that `sam build` made for this machine's processor, `settings` are the function's environment
    variables on top of Lambda's own; nothing of this process's environment reaches the function. An async context
    manager; logs of function and emulator go to stderr. Raises CannotInvoke.
    """

    def __init__(self, build: Path, settings: dict[str, str], sam: Path = SAM) -> None:
        if sys.platform != "linux":
            raise CannotInvoke("The emulator needs Linux. Elsewhere: `make run`, or `sam local invoke` with Docker.")
        if not build.is_dir():
            raise CannotInvoke(f"There is no {build}: run `make invoke`, which builds it.")
        self._build = build.resolve()
        self._settings = settings
        self._sam = sam.resolve()
        self._stack = AsyncExitStack()
        self.url = ""

    async def __aenter__(self) -> Emulator:
        try:
            # Beside the build, because hard links do not cross file systems.
            folder = tempfile.TemporaryDirectory(prefix="run-", dir=self._build.parent)
            root = Path(self._stack.enter_context(folder))
            lay_out(self._build, root)
            await self._stack.enter_async_context(self._running(root, await self._bootstrap(root)))
        except BaseException:
            await self._stack.aclose()
            raise
        return self

    async def __aexit__(self, *_: object) -> None:
        await self._stack.aclose()

    async def invoke(self, event: bytes) -> bytes:
        """Sends one event (JSON); the whole reply, as the function gave it."""
        async with aiohttp.ClientSession() as session, session.post(self.url, data=event) as reply:
            return await reply.read()

    async def _bootstrap(self, root: Path) -> Path:
        python = _the_one(self._sam / "bin", "python3.[0-9]*")
        # Like /var/lang on Lambda: an interpreter without packages, so that what the layers lack is missed here.
        lang = root / "lang"
        venv = await asyncio.create_subprocess_exec(python, "-m", "venv", "--without-pip", lang)
        if await venv.wait():
            raise CannotInvoke(f"{python} -m venv failed.")
        bootstrap = root / "bootstrap"
        bootstrap.write_text(BOOTSTRAP.format(python=python.name, lang=lang, opt=root / "opt"))
        bootstrap.chmod(0o755)
        return bootstrap

    @asynccontextmanager
    async def _running(self, root: Path, bootstrap: Path) -> AsyncIterator[None]:
        machine = "arm64" if platform.machine() in ("aarch64", "arm64") else "x86_64"
        emulator = _the_one(self._sam, f"lib/python*/site-packages/samcli/local/rapid/aws-lambda-rie-{machine}")
        runtime_api, invocations = _free_port(), _free_port()
        process = await asyncio.create_subprocess_exec(
            *(emulator, "--log-level", "error", "--runtime-api-address", f"127.0.0.1:{runtime_api}"),
            *("--runtime-interface-emulator-address", f"127.0.0.1:{invocations}", bootstrap),
            stdin=asyncio.subprocess.DEVNULL,
            stdout=2,
            cwd=root / "task",
            env=_lambdas_own(root) | self._settings,
            start_new_session=True,
        )
        try:
            await _listening(invocations, process)
            self.url = f"http://127.0.0.1:{invocations}/2015-03-31/functions/function/invocations"
            yield
        finally:
            # The whole group: the runtime is a child of the emulator.
            if process.returncode is None:
                os.killpg(process.pid, signal.SIGTERM)
            await process.wait()


def _lambdas_own(root: Path) -> dict[str, str]:
    """Source: https://docs.aws.amazon.com/lambda/latest/dg/configuration-envvars.html#configuration-envvars-runtime"""
    return {
        "_HANDLER": "app.handler",
        "AWS_ACCESS_KEY_ID": "local",
        "AWS_SECRET_ACCESS_KEY": "local",
        "AWS_REGION": REGION,
        "AWS_DEFAULT_REGION": REGION,
        "AWS_LAMBDA_EXEC_WRAPPER": str(root / "opt" / "response-streaming"),
        "AWS_LAMBDA_FUNCTION_MEMORY_SIZE": "512",
        "AWS_LAMBDA_FUNCTION_NAME": "agent",
        "AWS_LAMBDA_FUNCTION_TIMEOUT": str(TIMEOUT_SECONDS),
        "AWS_LAMBDA_FUNCTION_VERSION": "$LATEST",
        "AWS_LAMBDA_INITIALIZATION_TYPE": "on-demand",
        "AWS_LAMBDA_LOG_FORMAT": "JSON",
        "AWS_LAMBDA_LOG_GROUP_NAME": "/aws/lambda/agent",
        "AWS_LAMBDA_LOG_STREAM_NAME": "local",
        "LAMBDA_RUNTIME_DIR": "/var/runtime",
        "LAMBDA_TASK_ROOT": str(root / "task"),
        "LANG": "en_US.UTF-8",
        "PATH": f"{root / 'lang' / 'bin'}:/usr/local/bin:/usr/bin:/bin",
        "TZ": ":UTC",
    }


def _the_one(folder: Path, pattern: str) -> Path:
    found = sorted(folder.glob(pattern))
    if not found:
        raise CannotInvoke(f"There is no {folder / pattern}: run `make build`, which installs the SAM CLI there.")
    return found[0]


def _free_port() -> int:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        port: int = taken.getsockname()[1]
        return port


async def _listening(port: int, process: asyncio.subprocess.Process) -> None:
    async with asyncio.timeout(10):
        while process.returncode is None:
            try:
                _, writer = await asyncio.open_connection("127.0.0.1", port)
            except ConnectionRefusedError:
                await asyncio.sleep(0.01)
            else:
                writer.close()
                return
    raise CannotInvoke(f"The emulator ended with exit code {process.returncode}.")


async def settings(stack: AsyncExitStack, data: Path) -> dict[str, str]:
    """The function's settings for a run on this machine; starts the table, and a model when the shell names none."""

    async def child(*arguments: str) -> Child:
        started = await start_child(["-m", *arguments])
        stack.push_async_callback(started.stop)
        return started

    table = await child("local.table", "--data", str(data))
    result = {"ACCESS": "none", "TABLE_NAME": "threads", "AWS_ENDPOINT_URL_DYNAMODB": table.url}
    own = {name: value for name, value in os.environ.items() if name.startswith("OPENAI_")}
    if "OPENAI_BASE_URL" in own or "OPENAI_API_KEY" in own:
        return result | own
    model = await child("local.demo_model")
    return result | {"OPENAI_BASE_URL": model.url + "/v1", "OPENAI_API_KEY": "local", "OPENAI_MODEL": "demo"}


async def invoke(event: bytes, build: Path = BUILD, data: Path = DATA) -> Answer:
    """The answer to one event (JSON), with the threads kept in the file `data`. Raises CannotInvoke."""
    async with AsyncExitStack() as stack:
        emulator = await stack.enter_async_context(Emulator(build, await settings(stack, data)))
        return Answer(await emulator.invoke(event))


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m local.invoke", description=__doc__.splitlines()[0])
    parser.add_argument("event", type=Path, help="a file such as events/chat.json")
    parser.add_argument("--build", type=Path, default=BUILD, help="what `sam build` made for this machine")
    parser.add_argument("--data", type=Path, default=DATA, help="the file that keeps the threads between invocations")
    options = parser.parse_args()
    if not options.event.is_file():
        print(f"There is no file {options.event}: name an event, such as events/chat.json.", file=sys.stderr)
        return 1
    try:
        answer = asyncio.run(invoke(options.event.read_bytes(), options.build, options.data))
    except (CannotInvoke, OSError) as problem:
        print(problem, file=sys.stderr)
        return 1
    print(answer)
    return 0 if answer.finished else 1


if __name__ == "__main__":
    sys.exit(main())
