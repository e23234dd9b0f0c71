"""What a process has used, read from outside of it (Linux)."""

from __future__ import annotations

import ctypes
import os
import re
import time
from pathlib import Path

_libc = ctypes.CDLL(None, use_errno=True)


def cpu_ns(pid: int) -> int:
    """CPU time of a process with all its threads, in nanoseconds.

    /proc counts in hundredths of a second; the clock of clock_getcpuclockid(3) does not.
    """
    clock = ctypes.c_int()
    error = _libc.clock_getcpuclockid(pid, ctypes.byref(clock))
    if error:
        raise OSError(error, os.strerror(error))
    return time.clock_gettime_ns(clock.value)


def peak_memory(pid: int) -> int:
    """The most memory that a process ever had resident, in bytes (VmHWM)."""
    found = re.search(r"VmHWM:\s+(\d+) kB", Path(f"/proc/{pid}/status").read_text())
    assert found, "every process has memory"
    return int(found[1]) * 1024


def machine_seconds() -> float:
    """CPU seconds that all processes of this machine have used since it started, and what its host took away."""
    user, nice, system, _idle, _waiting, *interrupts_and_stolen = _cpu_ticks()[:8]
    return (user + nice + system + sum(interrupts_and_stolen)) / os.sysconf("SC_CLK_TCK")


def _cpu_ticks() -> list[int]:
    """The first line of /proc/stat (proc_stat(5))."""
    return [int(field) for field in Path("/proc/stat").read_text().splitlines()[0].split()[1:]]


def our_seconds() -> float:
    """CPU seconds of this process and of its children that have ended, with theirs."""
    spent = os.times()
    return spent.user + spent.system + spent.children_user + spent.children_system


def child_running(parent: int, program: str) -> int:
    """The one child of `parent` whose command line names `program`. Raises LookupError when there is none."""
    for folder in Path("/proc").iterdir():
        if not folder.name.isdigit():
            continue
        try:
            ours = int((folder / "stat").read_text().rpartition(")")[2].split()[1]) == parent
            if ours and program in (folder / "cmdline").read_bytes().decode(errors="replace"):
                return int(folder.name)
        except (FileNotFoundError, ProcessLookupError):
            continue  # It ended while we looked.
    raise LookupError(f"process {parent} has no child that runs {program}")
