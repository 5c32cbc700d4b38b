"""The disk that a vacuum takes at its peak, watched while it runs."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path

from history_retention import services
from history_retention.services import Trigger

from .comparisons import Comparison, Goal
from .stage import ALIAS, Stage, paced
from .stores import NOW
from .waits import MODES

OPEN_FILES = Path("/proc/self/fd")
TEMPORARY_PREFIX = "etilqs_"
"""How SQLite names its temporary files, which it deletes as soon as they are open."""


def peaks(stage: Stage) -> Iterator[Comparison]:
    """Compare the foretold peak with the sizes of the files that a vacuum has open (Linux)."""
    for mode, words in MODES.items():
        with stage.copied(mode) as copy:
            with paced(box_seconds=1.0, gap_seconds=0):
                plan = services.plan_reclaim(ALIAS, now=NOW)
                services.execute(plan, trigger=Trigger.CODE, vacuum=False)
            forecast = services.vacuum_forecast(ALIAS)
            measured = _peak_bytes(copy, _vacuum)
        yield Comparison(
            name=f"disk at the peak of a vacuum, foretold, {words}",
            unit="bytes",
            ours=forecast.space.file_bytes + forecast.needed_bytes,
            against="measured",
            against_value=measured,
            goal=Goal(at_least=0.95, at_most=1.05),
        )


def _vacuum() -> None:
    services.vacuum(ALIAS, now=NOW, trigger=Trigger.CODE, force=True)


def _peak_bytes(path: Path, work: Callable[[], object]) -> int:
    """Look at the open files without a pause while the work is done; return the largest sum."""
    peak = 0
    is_done = threading.Event()

    def watch() -> None:
        nonlocal peak
        while not is_done.is_set():
            peak = max(peak, sum(_open_sizes(path).values()))

    watcher = threading.Thread(target=watch)
    watcher.start()
    try:
        work()
    finally:
        is_done.set()
        watcher.join()
    return peak


def _open_sizes(path: Path) -> dict[int, int]:
    """Return the bytes of the store's files and of SQLite's temporary ones, by inode."""
    sizes: dict[int, int] = {}
    for descriptor, name in _open_files():
        if name.startswith(str(path)) or Path(name).name.startswith(TEMPORARY_PREFIX):
            with suppress(FileNotFoundError):
                found = descriptor.stat()
                sizes[found.st_ino] = found.st_size
    return sizes


def _open_files() -> Iterator[tuple[Path, str]]:
    for descriptor in OPEN_FILES.iterdir():
        with suppress(FileNotFoundError):
            yield descriptor, str(descriptor.readlink())
