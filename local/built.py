"""What `sam build` left: does it fit Lambda, and how Lambda lays it out under /opt and /var/task.

`python -m local.built .aws-sam/build` says in a sentence what does not fit, before Lambda says it with an import
error. Needs nothing but the standard library. Builds nothing and runs nothing.
"""

from __future__ import annotations

import os
import re
import shutil
import stat
import sys
from collections.abc import Iterator
from pathlib import Path

FUNCTION = "Agent"
# In the order of template.yaml: of two files with one name, the later layer's is the one that counts.
LAYERS = ("DependenciesLayer", "StreamingLayer", "AguiLayer")
WRAPPER = Path("StreamingLayer", "response-streaming")

# Function and layers together, unzipped: https://docs.aws.amazon.com/lambda/latest/dg/gettingstarted-limits.html
SIZE_LIMIT = 250 * 1024 * 1024

# The field e_machine of the ELF header: System V ABI, https://refspecs.linuxfoundation.org/elf/gabi4+/ch4.eheader.html
_MACHINES = {0x3E: "x86_64", 0xB7: "arm64"}


def misfits(build: Path, architecture: str, runtime: str) -> list[str]:
    """Sentences, one per reason why this build would fail on Lambda; empty when it fits.

    `architecture` is arm64 or x86_64, `runtime` is Lambda's name of it, such as python3.13.
    """
    missing = [part for part in (FUNCTION, *LAYERS) if not (build / part).is_dir()]
    if missing:
        return [f"{build} has no {', '.join(missing)}: run `make build`."]
    return [
        *_native_modules_that_do_not_fit(build, architecture, runtime),
        *_uncompiled_layers(build, runtime),
        *_wrapper_that_does_not_start(build),
        *_too_large(build),
    ]


def lay_out(build: Path, root: Path) -> None:
    """Makes `root`/opt and `root`/task look like /opt and /var/task of the function. Hard links where it can."""
    for layer in LAYERS:
        shutil.copytree(build / layer, root / "opt", copy_function=_link, dirs_exist_ok=True)
    shutil.copytree(build / FUNCTION, root / "task", copy_function=_link)


def _native_modules_that_do_not_fit(build: Path, architecture: str, runtime: str) -> Iterator[str]:
    tag = "cpython-" + runtime.removeprefix("python").replace(".", "")
    for module in _files(build, ".so"):
        machine = _machine(module)
        if machine != architecture:
            yield f"{module} is made for {machine}, but the function runs on {architecture}: build it anew."
        made_for = re.search(r"\.(cpython-\d+)", module.name)
        if made_for and made_for[1] != tag:
            yield f"{module} is made for {made_for[1]}, but the function runs on {runtime}."


def _uncompiled_layers(build: Path, runtime: str) -> Iterator[str]:
    tag = ".cpython-" + runtime.removeprefix("python").replace(".", "") + ".pyc"
    for layer in LAYERS:
        if not _files(build / layer, tag):
            yield f"{build / layer} is not compiled for {runtime}: every cold start would do it."


def _wrapper_that_does_not_start(build: Path) -> Iterator[str]:
    wrapper = build / WRAPPER
    if not wrapper.is_file():
        yield f"{wrapper} is missing: Lambda would end with exit code 127."
        return
    if stat.S_IMODE(wrapper.stat().st_mode) != 0o755:
        yield f"{wrapper} is not executable by everybody (mode 755): Lambda would end with exit code 126."
    if b"\r" in wrapper.read_bytes():
        yield f"{wrapper} has Windows line ends, which no Linux shell takes: check it out with LF."


def _too_large(build: Path) -> Iterator[str]:
    if size(build) > SIZE_LIMIT:
        yield f"{size(build) / 1e6:.0f} MB unzipped; Lambda takes {SIZE_LIMIT / 1e6:.0f} MB."


def size(build: Path) -> int:
    """Bytes of function and layers, unzipped."""
    return sum(file.stat().st_size for part in (FUNCTION, *LAYERS) for file in _files(build / part, ""))


def _files(folder: Path, ending: str) -> list[Path]:
    return sorted(path for path in folder.rglob("*" + ending) if path.is_file())


def _machine(module: Path) -> str:
    header = module.open("rb").read(20)
    if header[:4] != b"\x7fELF":
        return "another system than Linux"
    return _MACHINES.get(int.from_bytes(header[18:20], "little"), "another processor")


def _link(source: str, target: str) -> None:
    try:
        os.link(source, target)
    except FileExistsError:
        os.unlink(target)
        _link(source, target)
    except OSError:  # Another file system.
        shutil.copy2(source, target)


def wanted(build: Path) -> tuple[str, str]:
    """Architecture and runtime that the built template is for. Raises ValueError when it does not say so."""
    template = (build / "template.yaml").read_text()
    architecture = re.search(r"^ +BuildArchitecture: (\w+)$", template, re.MULTILINE)
    runtime = re.search(r"^ +Python: (python[\d.]+)$", template, re.MULTILINE)
    if not architecture or not runtime:
        raise ValueError(f"{build / 'template.yaml'} does not say what it is built for")
    return architecture[1], runtime[1]


def main(build: Path) -> None:
    architecture, runtime = wanted(build)
    if problems := misfits(build, architecture, runtime):
        sys.exit("\n".join(problems))
    native, megabytes = len(_files(build, ".so")), size(build) / 1e6
    print(
        f"{build}: fits {runtime} on {architecture}; {native} native modules, "
        f"{megabytes:.0f} MB unzipped of {SIZE_LIMIT / 1e6:.0f} MB."
    )


if __name__ == "__main__":
    main(Path(sys.argv[1]))
