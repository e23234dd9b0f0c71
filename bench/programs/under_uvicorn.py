"""An app under uvicorn, on asyncio's own loop, without anything of Lambda: `under_uvicorn MODULE [h11|httptools]`.

Without the name of a parser uvicorn takes the one it would take anyway.
"""

from __future__ import annotations

import asyncio
import sys
from importlib import import_module
from typing import Any

from local.child import LoopbackServer, announce, listen, told_to_end
from local.stack import AGENT, LAYERS


async def serve(app: Any, parser: str = "auto") -> None:
    server = LoopbackServer(app, listen())
    server.config.http = parser
    await server.start()
    announce(server.port)
    await told_to_end()
    await server.stop()


if __name__ == "__main__":
    sys.path[:0] = map(str, [AGENT, *LAYERS])
    module, *parser = sys.argv[1:]
    asyncio.run(serve(import_module(module).app, *parser))
