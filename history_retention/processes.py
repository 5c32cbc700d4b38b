"""Which process this is, in words that another one can check."""

from __future__ import annotations

import os
import platform
from contextlib import suppress
from pathlib import Path


def this_process() -> str:
    """Return what no other process is called."""
    return name_of(os.getpid())


def name_of(pid: int) -> str:
    """Return the name of a process of this host: its number, its start, and where both count."""
    return f"{pid} {_started(pid)} {_place()}"


def is_gone(process: str) -> bool:
    """Tell whether the process has surely ended; False for one that cannot be seen from here."""
    pid, _, rest = process.partition(" ")
    started, _, place = rest.partition(" ")
    if place != _place() or not pid.isdecimal():
        return False
    return not _is_there(int(pid)) or _started(int(pid)) != started


def _is_there(pid: int) -> bool:
    if os.name != "posix":  # where signal 0 is no question but an interruption
        return True
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except PermissionError:  # of another user
        return True
    return True


def _place() -> str:
    """Return the host, and the process namespace where there are such (a container has its own)."""
    namespace = "-"
    with suppress(OSError):
        namespace = Path("/proc/self/ns/pid").readlink().name
    return f"{namespace} {platform.node()}"


def _started(pid: int) -> str:
    """Return when the process started, in clock ticks since boot; "-" where that is not told.

    Fields 3 and 22 of proc_pid_stat(5). The second is a name in brackets that may hold anything.
    """
    with suppress(OSError, IndexError):
        fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
        return "ended" if fields[0] in "ZX" else fields[19]  # a zombie waits for its parent only
    return "-"
