"""The app of the module that `BENCH_APP` names, as the handler of a function."""

from __future__ import annotations

import os
from importlib import import_module

from response_streaming import StreamingMangum

handler = StreamingMangum(import_module(os.environ["BENCH_APP"]).app)
