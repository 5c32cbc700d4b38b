"""How long an agent waits for its turn while its store is measured and pruned."""

from __future__ import annotations

import json
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import IO

from history_retention import services
from history_retention.policy import Bounds
from history_retention.services import Trigger

from .comparisons import Comparison, Goal
from .stage import ALIAS, JournalMode, Stage
from .stores import NOW

LONGEST_SECONDS = 0.2
ALONE_SECONDS = 2.0
OLDER_THAN_DAYS = 280
"""A prune of what is older takes three tenths of the threads that conversations name."""

MODES: dict[JournalMode, str] = {"delete": "rollback journal", "wal": "WAL"}


def writers(stage: Stage) -> Iterator[Comparison]:
    """Let an agent write every 10 ms, first alone, then beside a readout and a prune."""
    for mode, words in MODES.items():
        with stage.copied(mode) as copy:
            alone = _beside(copy, lambda: time.sleep(ALONE_SECONDS))
            measuring = _beside(copy, _measure)
            pruning = _beside(copy, _prune)
        for name, met in (("readout", measuring), ("prune", pruning)):
            yield Comparison(
                name=f"longest wait of a writer during a {name}, {words}",
                ours=met["longest_ms"] / 1000,
                against="the most it may be",
                against_value=LONGEST_SECONDS,
                goal=Goal(at_most=1.0),
                note=f"{met['busy']:.0f} times locked out in {met['transactions']:,.0f} "
                f"transactions; alone at most {alone['longest_ms']:.0f} ms",
            )


def _measure() -> None:
    services.measure(ALIAS, now=NOW, save=False)


def _prune() -> None:
    bounds = Bounds(older_than_days=OLDER_THAN_DAYS)
    plan = services.plan_prune(ALIAS, bounds, now=NOW, reclaim=False)
    services.execute(plan, trigger=Trigger.CODE, vacuum=False)


def _beside(path: Path, work: Callable[[], object]) -> dict[str, float]:
    """Do the work while a process of its own writes; return what the writer met."""
    with subprocess.Popen(
        [sys.executable, "-m", "benchmarks.writer", str(path)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    ) as writer:
        output = _pipe(writer.stdout)
        output.readline()
        work()
        _pipe(writer.stdin).close()
        met: dict[str, float] = json.loads(output.readline())
    return met


def _pipe(stream: IO[str] | None) -> IO[str]:
    if stream is None:
        raise OSError("the writer was started without pipes")
    return stream
