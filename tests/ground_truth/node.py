"""AWS's own Node.js runtime client, from npm. It is compiled when it is installed, which these tests do themselves."""

from __future__ import annotations

import functools
import os
import subprocess
from pathlib import Path

from tests.clients.node import executable, missing

FOLDER = Path(__file__).parent
CLIENT = FOLDER / "node_modules" / "aws-lambda-ric"


@functools.cache
def node_client() -> tuple[str, ...]:
    """The command that starts it, for a handler in this folder. Skips the test where it cannot be; fails it in CI."""
    node = executable("node", hint="Node.js 20 or newer runs AWS's streaming client.")
    version = subprocess.run([node, "--version"], capture_output=True, text=True, check=True).stdout.strip()
    if int(version.removeprefix("v").split(".")[0]) < 20:
        missing(f"Node.js {version} is too old for AWS's streaming client, which wants 20 or newer.")
    if not (CLIENT / "rapid-client.node").exists():
        for program in ("npm", "g++", "make", "cmake"):
            executable(program, hint="AWS's streaming client for Node.js is compiled when it is installed.")
        _install(Path(node))
    return node, str(CLIENT / "index.mjs"), "cases.handler"


def _install(node: Path) -> None:
    env = dict(os.environ)
    # Next to Node.js lie its headers, as a rule; otherwise node-gyp downloads them from nodejs.org.
    prefix = node.resolve().parent.parent
    if (prefix / "include" / "node" / "node_api.h").exists():
        env["npm_config_nodedir"] = str(prefix)
    install = ["npm", "ci", "--no-audit", "--no-fund", "--foreground-scripts"]
    done = subprocess.run(install, cwd=FOLDER, env=env, capture_output=True, text=True, timeout=600)
    if done.returncode or not (CLIENT / "rapid-client.node").exists():
        missing(f"AWS's streaming client could not be installed: {done.stderr[-2000:]}")
