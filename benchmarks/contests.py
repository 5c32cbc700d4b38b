"""Timing several ways of doing the same in turns, so that what else the machine does hits all."""

from __future__ import annotations

import os
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager, nullcontext
from pathlib import Path
from typing import TypeVar

T = TypeVar("T")

_EVICT = (
    "import os, sys; f = os.open(sys.argv[1], os.O_RDONLY);"
    " os.posix_fadvise(f, 0, 0, os.POSIX_FADV_DONTNEED)"
)


def medians(
    ways: Mapping[str, Callable[[T], object]],
    prepared: Callable[[str], AbstractContextManager[T]],
    rounds: int,
) -> dict[str, float]:
    """Return each way's median seconds; what ``prepared`` does around it is not counted.

    Every round begins with another way, so that none always follows the same one.
    """
    seconds: dict[str, list[float]] = {name: [] for name in ways}
    names = list(ways)
    for number in range(rounds):
        start = number % len(names)
        for name in names[start:] + names[:start]:
            with prepared(name) as given:
                started = time.perf_counter()
                ways[name](given)
                seconds[name].append(time.perf_counter() - started)
    return {name: statistics.median(each) for name, each in seconds.items()}


def warm(_name: str) -> AbstractContextManager[None]:
    """Prepare nothing: every way finds in memory what the one before it has read."""
    return nullcontext()


def evicted(path: Path) -> None:
    """Let the kernel forget the file's pages.

    In another process: closing the file here would drop the locks that SQLite has on it.
    """
    with path.open("rb") as file:
        os.fsync(file.fileno())
    subprocess.run([sys.executable, "-c", _EVICT, str(path)], check=True)
