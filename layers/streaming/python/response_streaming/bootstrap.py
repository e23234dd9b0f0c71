"""The file that the exec wrapper starts: puts the import path in order, then hands over to the runtime.

Executed by its path, because `/opt/python` is on the path of Lambda's own bootstrap only, not of a bare interpreter.
"""

import os
import sys


def import_path(layer: str, task_root: str | None, path: list[str]) -> list[str]:
    """The managed bootstrap's order: the function's code, the layers' packages, then the interpreter's own.

    `layer` is the `python/` folder this file was found in (`/opt/python` on Lambda), `path` the `sys.path` of a bare
    interpreter, whose first entry is the folder of the script: it must go, or our modules would shadow others.
    """
    site_packages = f"{layer}/lib/python{sys.version_info.major}.{sys.version_info.minor}/site-packages"
    first = [entry for entry in (task_root, site_packages, layer) if entry]
    rest = [entry for entry in path[1:] if entry not in first]
    return [*first, *rest, "/var/runtime"]


if __name__ == "__main__":
    sys.path[:] = import_path(
        os.path.dirname(os.path.dirname(os.path.abspath(__file__))),
        os.environ.get("LAMBDA_TASK_ROOT"),
        sys.path,
    )
    from response_streaming.runtime import run

    run()
