"""AWS's runtime interface emulator around our layer: what `sam build` would make of it, without the minute that takes.

The emulator in its ordinary mode is `local.invoke.Emulator`; here is what goes into it, and its other mode, that of
Managed Instances.
"""

from __future__ import annotations

import asyncio
import contextlib
import importlib.util
import os
import platform
import shutil
import signal
import subprocess
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path

import aiohttp
import pytest

from local.child import ROOT
from local.invoke import BOOTSTRAP, SAM, Emulator, _free_port, _lambdas_own, _listening, _the_one
from tests.clients.node import missing
from tests.ground_truth.events import event

# What the runtime imports. It works without its compiled parts, so these fit any version of Python.
PACKAGES = ("awslambdaric", "mangum", "simplejson", "snapshot_restore_py", "typing_extensions")


def build(folder: Path) -> Path:
    """A build with the streaming layer, what it needs, and `apps/app.py` as the function."""
    if not _emulator_is_there():
        missing("AWS's emulator is not here: `make sam` installs it, where the function's Python version is.")
    result = folder / "build"
    packages = result / "DependenciesLayer" / "python"
    packages.mkdir(parents=True)
    (result / "AguiLayer").mkdir()
    for name in PACKAGES:
        spec = importlib.util.find_spec(name)
        assert spec is not None
        assert spec.origin is not None
        source = Path(spec.origin)
        source = source.parent if source.name == "__init__.py" else source
        (packages / source.name).symlink_to(source)
    (result / "StreamingLayer").symlink_to(ROOT / "layers" / "streaming")
    (result / "Agent").symlink_to(Path(__file__).parent / "apps")
    return result


def _emulator_is_there() -> bool:
    machine = "arm64" if platform.machine() in ("aarch64", "arm64") else "x86_64"
    return any(SAM.glob(f"lib/python*/site-packages/samcli/local/rapid/aws-lambda-rie-{machine}"))


@dataclass(frozen=True)
class Answer:
    status: int
    headers: Mapping[str, str]
    body: bytes


async def invoke(emulator: Emulator, target: str, headers: dict[str, str] | None = None) -> Answer:
    """Sends the event of a request for `target`; `headers` are those of the Invoke call."""
    return await invoke_with(emulator, event(target), headers)


async def invoke_with(emulator: Emulator, event: bytes, headers: dict[str, str] | None = None) -> Answer:
    # Without it the client would make a form of it, and the emulator hands the type on.
    headers = {"Content-Type": "application/json", **(headers or {})}
    async with (
        asyncio.timeout(20),
        aiohttp.ClientSession() as session,
    ):
        while True:
            async with session.post(emulator.url, data=event, headers=headers) as reply:
                answer = Answer(reply.status, reply.headers, await reply.read())
            # The runtime has answered, but does not ask for more yet: the invocation was not given to it.
            if answer.headers.get("error-type") != "Runtime.Unavailable":
                return answer
            await asyncio.sleep(0.01)


# In a mount namespace of its own the emulator finds Lambda's folders. It runs the function as another user, who
# cannot look into the home of the one who tests: so everything is mounted where that user can reach it.
LAY_OUT = """\
set -e
mount --bind "$PREFIX" "$ROOT/lang"
mount --bind "$ROOT/opt" /opt
mount -t tmpfs tmpfs /var
mkdir /var/task /var/runtime /var/lang
mount --bind "$ROOT/task" /var/task
mount --bind "$ROOT/lang" /var/lang
cp "$ROOT/bootstrap" /var/runtime/bootstrap
cd /var/task
unset ROOT PREFIX
exec "$@"
"""


def namespaces_or_skip() -> None:
    """Skips the test where a process may not have its own view of the file system; in CI as well."""
    attempt = ["unshare", "-m", "mount", "-t", "tmpfs", "tmpfs", "/mnt"]
    if shutil.which("unshare") is None or os.geteuid() != 0 or subprocess.run(attempt, check=False).returncode:
        pytest.skip(
            "AWS's emulator wants root and a mount namespace for Managed Instances; here it must not have them."
        )


class ManagedInstances(Emulator):
    """The emulator with `AWS_LAMBDA_MAX_CONCURRENCY`: several invocations at once, and an eye on every byte.

    Its log and the function's are in the file `log`.
    """

    @property
    def log(self) -> Path:
        return self._build.parent / "log"

    async def _bootstrap(self, root: Path) -> Path:
        python = _the_one(self._sam / "bin", "python3.[0-9]*")
        bootstrap = root / "bootstrap"
        bootstrap.write_text(BOOTSTRAP.format(python=python.name, lang="/var/lang", opt="/opt"))
        bootstrap.chmod(0o755)
        (root / "lang").mkdir()
        return bootstrap

    @asynccontextmanager
    async def _running(self, root: Path, bootstrap: Path) -> AsyncIterator[None]:
        machine = "arm64" if platform.machine() in ("aarch64", "arm64") else "x86_64"
        emulator = _the_one(self._sam, f"lib/python*/site-packages/samcli/local/rapid/aws-lambda-rie-{machine}")
        # The interpreter itself, without the packages of the SAM CLI: /var/lang of the managed image.
        prefix = (_the_one(self._sam / "bin", "python3.[0-9]*")).resolve().parent.parent
        runtime_api, invocations = _free_port(), _free_port()
        shutil.copy(emulator, root / "emulator")
        places = {
            "AWS_LAMBDA_EXEC_WRAPPER": "/opt/response-streaming",
            "AWS_LAMBDA_MAX_CONCURRENCY": "2",
            "LAMBDA_TASK_ROOT": "/var/task",
            "PATH": "/var/lang/bin:/usr/local/bin:/usr/bin:/bin:/usr/sbin:/sbin",
            "ROOT": str(root),
            "PREFIX": str(prefix),
        }
        with self.log.open("wb") as log:
            process = await asyncio.create_subprocess_exec(
                *("unshare", "-m", "sh", "-c", LAY_OUT, "sh"),
                *(root / "emulator", "--log-level", "warn", "--runtime-api-address", f"127.0.0.1:{runtime_api}"),
                *("--runtime-interface-emulator-address", f"127.0.0.1:{invocations}"),
                stdin=asyncio.subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                env=_lambdas_own(root) | places | self._settings,
                start_new_session=True,
            )
        try:
            await _listening(invocations, process)
            self.url = f"http://127.0.0.1:{invocations}/2015-03-31/functions/function/invocations"
            yield
        finally:
            await _end(process)


async def _end(process: asyncio.subprocess.Process) -> None:
    """In this mode the emulator waits for the invocations that it has; a test that failed may have left one."""
    with contextlib.suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGTERM)
    try:
        await asyncio.wait_for(process.wait(), 3)
    except TimeoutError:
        os.killpg(process.pid, signal.SIGKILL)
        await process.wait()
