"""The built stack for the tests of the deployment: the SAM CLI, builds for both processors, the translated template.

All of it needs the function's own Python version, which a laptop may lack: then these tests are skipped and say so.
In CI they fail instead.
"""

import json
import os
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from local.child import ROOT

# Imports the translator that `sam deploy` leaves to AWS. It takes no local folders, as it never sees them there.
TRANSLATE = """
import json, sys
import boto3
from samcli.yamlhelper import yaml_parse
from samtranslator.parser.parser import Parser
from samtranslator.translator.translator import Translator

template = yaml_parse(sys.stdin.read())
for resource in template["Resources"].values():
    for folder in ("CodeUri", "ContentUri"):
        if folder in resource.get("Properties", {}):
            resource["Properties"][folder] = "s3://bucket/key"
session = boto3.Session(region_name="us-east-1")
print(json.dumps(Translator({}, Parser(), boto_session=session).translate(template, {})))
"""


@pytest.fixture(scope="session")
def sam() -> Path:
    """The folder with `sam` and the function's Python."""
    programs = ROOT / ".venv-sam" / "bin"
    if not (programs / "sam").exists():
        sentence = "no .venv-sam: `make sam` makes it where the function's Python version is"
        if os.environ.get("CI"):
            pytest.fail(sentence)
        pytest.skip(sentence)
    return programs


@pytest.fixture(scope="session")
def make(sam: Path) -> Callable[..., str]:
    """Runs `make` as a person would type it; its output."""

    def run(*arguments: str) -> str:
        env = {name: value for name, value in os.environ.items() if not name.startswith(("MAKE", "MFLAGS"))}
        command = ["make", "-f", "make/deploy.mk", *arguments]
        done = subprocess.run(command, cwd=ROOT, env=env, text=True, capture_output=True)
        assert done.returncode == 0, done.stdout + done.stderr
        return done.stdout + done.stderr

    return run


@pytest.fixture(scope="session")
def built(make: Callable[..., str]) -> Callable[[str], Path]:
    """The folder of a build for arm64 or x86_64; each is made once."""
    made: dict[str, Path] = {}

    def build(architecture: str) -> Path:
        if architecture not in made:
            made[architecture] = Path(".aws-sam", f"test-{architecture}", "build")
            make("build", f"ARCH={architecture}", f"BUILD={made[architecture]}")
        return ROOT / made[architecture]

    return build


@pytest.fixture(scope="session")
def template(sam: Path) -> dict[str, Any]:
    """template.yaml as CloudFormation gets it: SAM's resources translated, parameters and conditions as they are."""
    source = (ROOT / "template.yaml").read_text()
    done = subprocess.run(
        [sam / "python", "-c", TRANSLATE], input=source, text=True, stdout=subprocess.PIPE, check=True
    )
    translated: dict[str, Any] = json.loads(done.stdout)
    return translated


@pytest.fixture(scope="session")
def resources(template: dict[str, Any]) -> dict[str, Any]:
    found: dict[str, Any] = template["Resources"]
    return found
