"""The check after a build, on small builds made by hand."""

from pathlib import Path

import pytest

from local.built import misfits


@pytest.fixture
def build(tmp_path: Path) -> Path:
    """A build that fits python3.13 on arm64."""
    for part in ("Agent", "DependenciesLayer", "StreamingLayer", "AguiLayer"):
        cache = tmp_path / part / "python" / "__pycache__"
        cache.mkdir(parents=True)
        (cache / "module.cpython-313.pyc").touch()
    native_module(tmp_path / "DependenciesLayer" / "python" / "fast.cpython-313-aarch64-linux-gnu.so", 0xB7)
    wrapper = tmp_path / "StreamingLayer" / "response-streaming"
    wrapper.write_text("#!/bin/sh\n")
    wrapper.chmod(0o755)
    return tmp_path


def native_module(path: Path, machine: int) -> None:
    path.write_bytes(b"\x7fELF" + bytes(14) + machine.to_bytes(2, "little"))


def test_a_build_that_fits_has_no_misfits(build: Path) -> None:
    assert misfits(build, "arm64", "python3.13") == []


def test_native_modules_of_the_functions_own_packages_count_too(build: Path) -> None:
    native_module(build / "Agent" / "mine.abi3.so", 0x3E)
    (problem,) = misfits(build, "arm64", "python3.13")
    assert problem.endswith("Agent/mine.abi3.so is made for x86_64, but the function runs on arm64: build it anew.")


def test_a_module_of_another_system_is_named(build: Path) -> None:
    (build / "Agent" / "mine.so").write_bytes(b"\xcf\xfa\xed\xfe" + bytes(28))
    (problem,) = misfits(build, "arm64", "python3.13")
    assert "mine.so is made for another system than Linux" in problem


def test_a_wrapper_that_lambda_cannot_start_is_named(build: Path) -> None:
    wrapper = build / "StreamingLayer" / "response-streaming"
    wrapper.write_bytes(b"#!/bin/sh\r\n")
    wrapper.chmod(0o644)
    mode, line_ends = misfits(build, "arm64", "python3.13")
    assert "mode 755" in mode
    assert "Windows line ends" in line_ends
    wrapper.unlink()
    (missing,) = misfits(build, "arm64", "python3.13")
    assert "is missing" in missing


def test_a_build_that_was_not_made_says_how_to_make_it(tmp_path: Path) -> None:
    (problem,) = misfits(tmp_path, "arm64", "python3.13")
    assert "make build" in problem
