"""How much memory a process takes on while it measures, chooses or removes.

Each in a process of its own, ``python -m benchmarks.memory NAME``, that is told the store and the
ledger by its environment and prints one JSON object.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable, Iterator

import django

from tests.stores.costs import forget_peak, peak_memory

from .comparisons import Comparison, Goal
from .stage import ALIAS, Stage
from .stores import NOW

GOALS = {"measuring": 50, "candidates": 20, "deleting": 10}
"""The most that may be added, in MiB."""


def growth(stage: Stage) -> Iterator[Comparison]:
    """Let a child do each of it, and compare what it took on with what it may."""
    with stage.copied() as copy:
        environment = os.environ | {"HISTORY_DATABASE_URL": f"sqlite:///{copy}"}
        for name, most in GOALS.items():
            done = subprocess.run(
                [sys.executable, "-m", "benchmarks.memory", name],
                env=environment,
                stdout=subprocess.PIPE,
                text=True,
                check=True,
            )
            told: dict[str, int] = json.loads(done.stdout)
            yield Comparison(
                name=f"memory added by {name}",
                unit="bytes",
                ours=told["added"],
                against="the most it may be",
                against_value=most * 2**20,
                goal=Goal(at_most=1.0),
                peak_bytes=told["peak"],
                note=f"{told['threads']:,} threads",
            )


def measuring() -> Callable[[], int]:
    from history_retention import services

    return lambda: services.measure(ALIAS, now=NOW, save=False).thread_count


def candidates() -> Callable[[], int]:
    from .sqlite_reads import chosen

    return lambda: len(chosen().reclaimable)


def deleting() -> Callable[[], int]:
    """Plan first; what is counted is what the removal takes beside the plan."""
    from history_retention import services
    from history_retention.services import Trigger

    from .stage import paced

    plan = services.plan_reclaim(ALIAS, now=NOW)

    def work() -> int:
        with paced(box_seconds=0.025, gap_seconds=0):
            outcome = services.execute(plan, trigger=Trigger.CODE, vacuum=False)
        return outcome.removed.thread_count

    return work


def _told(name: str) -> dict[str, int]:
    django.setup()
    from history_retention import services

    work = {each.__name__: each for each in (measuring, candidates, deleting)}[name]()
    services.vacuum_forecast(ALIAS)  # what any work imports and opens is not of this one
    forget_peak()
    before = peak_memory()
    threads = work()
    peak = peak_memory()
    return {"added": peak - before, "peak": peak, "threads": threads}


if __name__ == "__main__":
    sys.stdout.write(json.dumps(_told(sys.argv[1])))
