"""The file that the exec wrapper starts: puts the import path in order, then hands over to the runtime.

Executed by its path, because `/opt/python` is on the path of Lambda's own bootstrap only, not of a bare interpreter.
What it does to paths is what `/var/runtime/bootstrap.py` of the managed runtime does.
"""

import gc
import os
import site
import sys


def import_path(layer: str, task_root: str, runtime: str, path: list[str], python_path_is_set: bool) -> list[str]:
    """`sys.path` in Lambda's order: the function's code, the layers' packages, the interpreter's own, the runtime's.

    layer: the `python/` folder this file was found in (`/opt/python` on Lambda). path: that of a bare interpreter,
    whose first entry, the folder of the script, must go, or our modules would shadow others. When a function sets
    PYTHONPATH, that decides about layers; ours is then last, as it must be found all the same.
    """
    version = f"python{sys.version_info.major}.{sys.version_info.minor}"
    layers = [f"{layer}/lib/{version}/site-packages", layer]
    first = [task_root] if python_path_is_set else [task_root, *layers]
    last = [*layers, runtime] if python_path_is_set else [runtime]
    return list(dict.fromkeys([*first, *path[1:], *last]))


if __name__ == "__main__":
    # What is imported stays; `runtime.run` turns the search for garbage on again when that is done.
    gc.disable()
    layer = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
    task_root = os.environ.get("LAMBDA_TASK_ROOT", os.getcwd())
    runtime_folder = os.environ.get("LAMBDA_RUNTIME_DIR", "/var/runtime")
    python_path_is_set = "PYTHONPATH" in os.environ
    sys.path[:] = import_path(layer, task_root, runtime_folder, sys.path, python_path_is_set)
    # .pth files of the function and its layers.
    for folder in [task_root] if python_path_is_set else sys.path[:3]:
        site.addsitedir(folder)
    os.environ.setdefault("PYTHONPATH", runtime_folder)

    from response_streaming.runtime import run

    run()
