"""What a cold start loads before it can take a request: nothing that the first event of a run does not need."""

import json
import os
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[2]
PATHS = [ROOT / "functions/agent", ROOT / "layers/agui/python", ROOT / "layers/streaming/python"]

LOADED = """
import json, sys
import app
heavy = ("openai", "boto3", "botocore", "aiohttp", "httpx2", "agui_inspector", "uvicorn")
print(json.dumps([name for name in heavy if name in sys.modules]))
"""


def test_neither_the_model_nor_the_table_is_imported_with_the_app():
    """They take half a second on Lambda, and RUN_STARTED need not wait for them."""
    environment = {
        "PATH": os.environ["PATH"],
        "PYTHONPATH": os.pathsep.join(map(str, PATHS)),
        "TABLE_NAME": "threads",
        "INSPECTOR": "off",
    }
    done = subprocess.run([sys.executable, "-c", LOADED], env=environment, capture_output=True, check=True, text=True)
    assert json.loads(done.stdout) == []


def test_the_runtime_needs_no_package_of_the_agent():
    source = (
        "import sys; import response_streaming.runtime; print([m for m in sys.modules if 'agui' in m or 'ag_ui' in m])"
    )
    environment = {"PATH": os.environ["PATH"], "PYTHONPATH": str(PATHS[2])}
    done = subprocess.run([sys.executable, "-c", source], env=environment, capture_output=True, check=True, text=True)
    assert done.stdout.strip() == "[]"
