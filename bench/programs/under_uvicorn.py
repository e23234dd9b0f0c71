"""The agent's app under uvicorn, without anything of Lambda."""

from __future__ import annotations

import asyncio
import sys

from local.child import serve_child
from local.stack import AGENT, LAYERS

if __name__ == "__main__":
    sys.path[:0] = map(str, [AGENT, *LAYERS])
    from app import app

    asyncio.run(serve_child(app))
