"""The agent on the local Lambda: function URL, Runtime API and the environment, a process of its own below this one.

Nothing is started ahead: the first request meets no environment, as on AWS after a deployment.
"""

from __future__ import annotations

import asyncio

from local.child import serve_child
from local.environment import Configuration
from local.function import Function
from local.function_url import FunctionURL
from local.stack import AGENT, LAYERS


async def serve() -> None:
    configuration = Configuration(handler="app.handler", task_root=AGENT, layers=LAYERS)
    # One environment: a second one, started because the first is late, would take its figures along.
    function = Function(configuration, max_environments=1)
    try:
        await serve_child(FunctionURL(function))
    finally:
        await function.stop()


if __name__ == "__main__":
    asyncio.run(serve())
