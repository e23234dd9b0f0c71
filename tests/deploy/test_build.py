"""What `sam build` makes of function and layers, for both processors, without Docker."""

import os
import re
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

from local.built import LAYERS, lay_out, misfits, size, wanted
from local.child import ROOT

Build = Callable[[str], Path]
DEPENDENCIES = ROOT / "layers" / "dependencies"
both_processors = pytest.mark.parametrize("architecture", ["arm64", "x86_64"])


@both_processors
def test_a_build_fits_its_processor_and_python(built: Build, architecture: str) -> None:
    build = built(architecture)
    assert wanted(build) == (architecture, "python3.13")
    assert misfits(build, architecture, "python3.13") == []
    assert len(list(build.rglob("*.so"))) > 10


@both_processors
def test_a_build_for_the_other_one_is_told_apart(built: Build, architecture: str) -> None:
    other = {"arm64": "x86_64", "x86_64": "arm64"}[architecture]
    problems = misfits(built(architecture), other, "python3.14")
    assert any(f"is made for {architecture}, but the function runs on {other}" in problem for problem in problems)
    assert any("is made for cpython-313, but the function runs on python3.14" in problem for problem in problems)
    assert any("is not compiled for python3.14" in problem for problem in problems)


def test_every_module_of_the_layers_is_compiled_and_stays_so_whatever_its_time(built: Build) -> None:
    build = built("x86_64")
    compiled = 0
    for source in (file for layer in LAYERS for file in (build / layer).rglob("*.py")):
        cache = source.parent / "__pycache__" / f"{source.stem}.cpython-313.pyc"
        assert cache.exists(), source
        # PEP 552: bit 0 of the flags says "by hash", bit 1 "check the source"; a zip changes times, so 0b01.
        assert int.from_bytes(cache.read_bytes()[4:8], "little") == 0b01, cache
        compiled += 1
    assert compiled > 1000


def test_tracebacks_show_where_a_module_lies_on_lambda(built: Build, sam: Path, tmp_path: Path) -> None:
    cache = built("x86_64") / "AguiLayer" / "python" / "agui_lambda" / "__pycache__" / "__init__.cpython-313.pyc"
    show = "import marshal, sys; print(marshal.loads(open(sys.argv[1], 'rb').read()[16:]).co_filename)"
    done = subprocess.run([sam / "python", "-c", show, cache], text=True, stdout=subprocess.PIPE, check=True)
    assert done.stdout.strip() == "/opt/python/agui_lambda/__init__.py"


def test_lambda_may_read_everything_and_start_the_wrapper(built: Build) -> None:
    build = built("arm64")
    for layer in LAYERS:
        for path in (build / layer).rglob("*"):
            mode = path.stat().st_mode
            assert mode & 0o444 == 0o444, path
            assert path.is_file() or mode & 0o111 == 0o111, path
    assert (build / "StreamingLayer" / "response-streaming").stat().st_mode & 0o777 == 0o755


def test_no_layer_hides_a_file_of_another(built: Build) -> None:
    seen: set[Path] = set()
    for layer in LAYERS:
        files = {
            file.relative_to(built("arm64") / layer) for file in (built("arm64") / layer).rglob("*") if file.is_file()
        }
        assert not files & seen
        seen |= files


def test_the_layers_stay_small(built: Build) -> None:
    assert size(built("arm64")) < 75e6


@pytest.mark.parametrize("service", ["dynamodb", "secretsmanager", "s3", "bedrock-runtime"])
def test_boto3_still_knows_the_services_that_are_listed(built: Build, sam: Path, tmp_path: Path, service: str) -> None:
    lay_out(built("x86_64"), tmp_path)
    ask = f"import boto3; print(boto3.client('{service}', region_name='eu-central-1').meta.endpoint_url)"
    env = {**os.environ, "PYTHONPATH": str(tmp_path / "opt" / "python"), "PYTHONDONTWRITEBYTECODE": "1"}
    done = subprocess.run([sam / "python", "-c", ask], env=env, text=True, stdout=subprocess.PIPE, check=True)
    assert done.stdout.startswith("https://")


def test_the_lock_pins_by_hash_and_names_no_address() -> None:
    versions = []
    for architecture in ("arm64", "x86_64"):
        lines = (DEPENDENCIES / f"python3.13-{architecture}" / "requirements.lock").read_text().splitlines()
        pins = [line for line in lines if not line.startswith("#")]
        assert all(re.fullmatch(r"[a-z0-9_.-]+==\S+ --hash=sha256:[0-9a-f]{64}", pin) for pin in pins)
        versions.append([pin.split()[0] for pin in pins])
    assert versions[0] == versions[1]
    wanted = re.findall(r"^([a-z0-9-]+)", (DEPENDENCIES / "requirements.txt").read_text(), re.MULTILINE)
    assert set(wanted) <= {pin.split("==")[0].replace("_", "-") for pin in versions[0]}
