"""What is measured: each function returns one comparison of ours with a plain alternative."""

from __future__ import annotations

import json
import resource
import shutil
import sqlite3
import statistics
import subprocess
import sys
import time
from collections.abc import Callable
from contextlib import closing
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import IO

from django.db import connections

from history_retention import services
from history_retention.policy import Bounds, Rules, choose
from history_retention.services import Trigger, silent
from history_retention.stores import open_store

NOW = datetime(2030, 1, 1, tzinfo=UTC)
"""Every thread of a written store is idle for years by then."""

STATE_TABLES = ("checkpoints", "checkpoint_writes")
ROUNDS = 5


@dataclass(frozen=True, slots=True, kw_only=True)
class Comparison:
    """Ours against something, in ``unit``; ``ratio`` is ours divided by it."""

    name: str
    unit: str
    ours: float
    against: str
    against_value: float

    def as_json(self, store: str) -> str:
        """Return the line that is printed."""
        return json.dumps(
            {
                "name": self.name,
                "store": store,
                f"ours_{self.unit}": round(self.ours, 4),
                "against": self.against,
                f"against_{self.unit}": round(self.against_value, 4),
                "ratio": round(self.ours / self.against_value, 3) if self.against_value else None,
                "peak_mb": round(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024, 1),
            }
        )


def pages_of_measuring(path: Path) -> Comparison:
    """Count the pages that a readout reads; the least there is are leaf and interior pages."""
    pages = _pages(path)
    least = sum(
        count
        for (name, kind), count in pages.items()
        if name in STATE_TABLES and kind != "overflow"
    )
    read = _read_bytes(lambda: services.measure("history", now=NOW, save=False))
    return Comparison(
        name="pages read by measuring",
        unit="pages",
        ours=read / _page_size(path),
        against="leaf and interior pages of the state tables",
        against_value=least,
    )


def pages_of_choosing(path: Path) -> Comparison:
    """Count the pages that choosing candidates reads; the least are index and naming pages."""
    least = sum(
        count
        for (name, _), count in _pages(path).items()
        if name.startswith("sqlite_autoindex_check") or name in ("conversations", "sessions")
    )

    def chosen() -> None:
        with open_store("history") as store:
            rules = Rules(
                now=NOW,
                grace=timedelta(days=1),
                naming=store.naming,
                bounds=Bounds(older_than_days=30),
            )
            choose(store.indexed_threads(silent), rules)

    return Comparison(
        name="pages read by choosing candidates",
        unit="pages",
        ours=_read_bytes(chosen) / _page_size(path),
        against="pages of the key indexes and of conversations",
        against_value=least,
    )


def time_of_measuring(path: Path) -> Comparison:
    """Time a readout against a bare scan of the leaf pages, alternating, warm."""

    def bare() -> None:
        with closing(sqlite3.connect(path)) as connection:
            for table in STATE_TABLES:
                connection.execute(f"SELECT COUNT(*) FROM {table} NOT INDEXED").fetchone()

    ours, against = _alternated(
        lambda: services.measure("history", now=NOW, save=False), bare, ROUNDS
    )
    return Comparison(
        name="measuring, warm",
        unit="s",
        ours=ours,
        against="COUNT(*) NOT INDEXED on both tables",
        against_value=against,
    )


def time_of_measuring_by_key(path: Path) -> Comparison:
    """Time a readout against sums by thread in index order, which is how the vendor counts."""

    def by_key() -> None:
        sums: dict[str, tuple[int, int]] = {}
        lengths = ("COALESCE(LENGTH(checkpoint), 0) + COALESCE(LENGTH(metadata), 0)",
                   "COALESCE(LENGTH(value), 0)")  # fmt: skip
        with closing(sqlite3.connect(path)) as connection:
            for table, length in zip(STATE_TABLES, lengths, strict=True):
                for thread_id, rows, size in connection.execute(
                    f"SELECT thread_id, COUNT(*), SUM({length}) FROM {table}"
                    f" INDEXED BY sqlite_autoindex_{table}_1 GROUP BY thread_id"
                ):
                    known = sums.get(thread_id, (0, 0))
                    sums[thread_id] = known[0] + rows, known[1] + size

    ours, against = _alternated(
        lambda: services.measure("history", now=NOW, save=False), by_key, ROUNDS
    )
    return Comparison(
        name="measuring, warm, against index order",
        unit="s",
        ours=ours,
        against="sums of both tables by thread, in index order",
        against_value=against,
    )


def time_of_measuring_again(path: Path) -> Comparison:
    """Time a readout after another that was kept against one that reads every row again."""
    point_at(path)
    services.measure("history", now=NOW)
    ours, against = _alternated(
        lambda: services.measure("history", now=NOW),
        lambda: services.measure("history", now=NOW, exact=True),
        ROUNDS,
    )
    return Comparison(
        name="measuring again, nothing new, kept",
        unit="s",
        ours=ours,
        against="measuring every row again, kept",
        against_value=against,
    )


def bytes_written_by_removing(path: Path) -> Comparison:
    """Count what a reclaim writes against one plain transaction with secure_delete off."""
    plain_copy = path.with_name("plain.db")
    shutil.copy(path, plain_copy)
    plan = services.plan_reclaim("history", now=NOW)

    def plain() -> None:
        with closing(sqlite3.connect(plain_copy, isolation_level=None)) as connection:
            connection.execute("PRAGMA secure_delete = OFF")
            connection.execute("BEGIN IMMEDIATE")
            for table in STATE_TABLES:
                connection.executemany(
                    f"DELETE FROM {table} WHERE thread_id = ?",
                    [(thread.thread_id,) for thread in plan.reclaimable],
                )
            connection.execute("COMMIT")

    against = _written_bytes(plain)
    ours = _written_bytes(lambda: services.execute(plan, trigger=Trigger.CODE, vacuum=False))
    plain_copy.unlink()
    return Comparison(
        name="bytes written by a reclaim",
        unit="bytes",
        ours=ours,
        against="one transaction, secure_delete off",
        against_value=against,
    )


def longest_wait_of_a_writer(path: Path) -> Comparison:
    """Let an agent write every 10 ms, first alone, then beside a readout and a prune of all."""
    alone = _beside(path, lambda: time.sleep(2))

    def work() -> None:
        services.measure("history", now=NOW, save=False)
        plan = services.plan_prune("history", Bounds(older_than_days=30), now=NOW)
        services.execute(plan, trigger=Trigger.CODE, vacuum=False)

    beside = _beside(path, work)
    mode = "WAL" if path.name.startswith("wal") else "rollback journal"
    return Comparison(
        name=f"longest wait of a writer ({mode}, {beside['busy']:.0f} times busy)",
        unit="ms",
        ours=beside["longest_ms"],
        against="the writer alone",
        against_value=alone["longest_ms"],
    )


def point_at(path: Path) -> None:
    """Let the alias ``history`` mean this file."""
    connections["history"].close()
    connections["history"].settings_dict["NAME"] = str(path)


def _beside(path: Path, work: Callable[[], object]) -> dict[str, float]:
    """Run the work while a writer of its own process writes; return what the writer met."""
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


def _alternated(
    ours: Callable[[], object], against: Callable[[], object], rounds: int
) -> tuple[float, float]:
    """Return the median seconds of both, taken in turns."""
    times: tuple[list[float], list[float]] = ([], [])
    for _ in range(rounds):
        for work, seconds in zip((ours, against), times, strict=True):
            started = time.perf_counter()
            work()
            seconds.append(time.perf_counter() - started)
    return statistics.median(times[0]), statistics.median(times[1])


def _pages(path: Path) -> dict[tuple[str, str], int]:
    with closing(sqlite3.connect(path)) as connection:
        return {
            (name, kind): count
            for name, kind, count in connection.execute(
                "SELECT name, pagetype, COUNT(*) FROM dbstat GROUP BY 1, 2"
            )
        }


def _page_size(path: Path) -> int:
    with closing(sqlite3.connect(path)) as connection:
        return int(connection.execute("PRAGMA page_size").fetchone()[0])


def _read_bytes(work: Callable[[], object]) -> int:
    return _counted("rchar", work)


def _written_bytes(work: Callable[[], object]) -> int:
    return _counted("wchar", work)


def _counted(counter: str, work: Callable[[], object]) -> int:
    """Return how far a counter of /proc/self/io (Linux) moves while the work is done."""

    def value() -> int:
        lines = Path("/proc/self/io").read_text().splitlines()
        return next(int(line.split()[1]) for line in lines if line.startswith(counter))

    before = value()
    work()
    return value() - before
