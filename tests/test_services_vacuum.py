from __future__ import annotations

import os
import sqlite3
import subprocess
import sys
from collections.abc import Callable
from contextlib import closing
from datetime import timedelta
from pathlib import Path

import pytest
from django.db import connections
from django.db.models.signals import post_delete, pre_delete

from history_retention import services
from history_retention.facts import Ending
from history_retention.models import Sweep
from history_retention.outcomes import Outcome
from history_retention.policy import Bounds
from history_retention.services import Trigger
from history_retention.vacuuming import QUICK_VACUUM_BYTES
from project.checkpoint_ids import checkpoint_id_at

from .conftest import WriteStore
from .store_files import NOW, ConversationRow, ThreadRows, rows_of, threads_in, write_store

ROOT = Path(__file__).resolve().parents[1]
TWO = [ThreadRows(thread_id="old", size=60_000), ThreadRows(thread_id="named", size=400)]
NAMED = [ConversationRow(thread_id="named")]


def reclaim(vacuum: bool | None = None) -> Outcome:
    plan = services.plan_reclaim("history", now=NOW)
    return services.execute(plan, trigger=Trigger.CODE, vacuum=vacuum)


@pytest.mark.parametrize("journal_mode", ["delete", "wal"])
def test_a_small_store_is_vacuumed_by_itself(written_store: WriteStore, journal_mode: str) -> None:
    path = written_store(TWO, NAMED, journal_mode=journal_mode)
    size = path.stat().st_size

    outcome = reclaim()

    assert (outcome.vacuum.ran, outcome.vacuum.reason) == (True, "history: vacuumed.")
    assert outcome.vacuum.wal_busy is (False if journal_mode == "wal" else None)
    assert path.stat().st_size == outcome.space_after.file_bytes <= size - 57_344
    assert (outcome.space_after.free_bytes, outcome.space_after.wal_bytes) == (0, 0)
    sweep = Sweep.objects.get()
    assert (sweep.vacuumed, sweep.file_bytes_before, sweep.file_bytes_after) == (
        True,
        size,
        outcome.space_after.file_bytes,
    )


def test_a_store_is_not_vacuumed_when_nobody_wants_it(written_store: WriteStore) -> None:
    path = written_store(TWO, NAMED)
    size = path.stat().st_size

    outcome = reclaim(vacuum=False)

    free = outcome.space_after.free_bytes
    assert not outcome.vacuum.ran
    assert outcome.vacuum.reason == f"history: not vacuumed, as asked; {free:,} bytes are free."
    assert free >= 57_344
    assert path.stat().st_size == size


def test_what_is_free_already_is_given_back_when_asked_though_nothing_goes(
    written_store: WriteStore,
) -> None:
    path = written_store(TWO, NAMED)
    reclaim(vacuum=False)
    size = path.stat().st_size

    by_itself, asked = reclaim(), reclaim(vacuum=True)

    assert (by_itself.removed.thread_count, by_itself.vacuum.ran) == (0, False)
    assert (asked.removed.thread_count, asked.vacuum.ran) == (0, True)
    assert path.stat().st_size < size


def test_nothing_free_is_nothing_to_vacuum(written_store: WriteStore) -> None:
    written_store([ThreadRows(thread_id="named")], NAMED)

    outcome = reclaim(vacuum=True)
    alone = services.vacuum("history", now=NOW, trigger=Trigger.CODE)

    assert (outcome.vacuum.ran, alone.vacuum.ran) == (False, False)
    assert (outcome.ending, alone.ending) == (Ending.DONE, Ending.DONE)


def large_store(path: Path) -> Path:
    """Write a store just beyond what is vacuumed without asking."""
    write_store(path, TWO, NAMED)
    with closing(sqlite3.connect(path)) as connection, connection:
        connection.execute(
            "INSERT INTO checkpoints (thread_id, checkpoint_id, checkpoint)"
            " VALUES ('named', ?, zeroblob(?))",
            [checkpoint_id_at(NOW - timedelta(days=41)), QUICK_VACUUM_BYTES],
        )
    return path


def test_a_large_store_is_left_and_told_what_a_vacuum_would_do(
    point_at: Callable[[Path], Path], tmp_path: Path, retention: Callable[..., None]
) -> None:
    retention(VACUUM_FREE_RATIO=0, VACUUM_FREE_BYTES=0)
    path = point_at(large_store(tmp_path / "store.db"))
    size = path.stat().st_size

    outcome = reclaim()

    free = outcome.space_after.free_bytes
    live = size - free
    assert (outcome.ending, outcome.removed.thread_count) == (Ending.DONE, 1)
    assert outcome.vacuum.reason == (
        f"history: not vacuumed: history_vacuum would give {free:,} bytes back, needs up to "
        f"{2 * live:,} bytes of free disk and blocks writers for about 1 s or more."
    )
    assert path.stat().st_size == size


def test_a_large_store_is_vacuumed_when_asked(
    point_at: Callable[[Path], Path], tmp_path: Path
) -> None:
    path = point_at(large_store(tmp_path / "store.db"))
    size = path.stat().st_size

    outcome = reclaim(vacuum=True)

    assert outcome.vacuum.ran
    assert path.stat().st_size < size


def test_a_vacuum_keeps_every_row(written_store: WriteStore) -> None:
    path = written_store(TWO, NAMED)
    reclaim(vacuum=False)
    before, size = rows_of(path), path.stat().st_size
    forecast = services.vacuum_forecast("history")

    outcome = services.vacuum("history", now=NOW, trigger=Trigger.ADMIN)

    assert rows_of(path) == before
    assert (
        outcome.space_before.free_bytes == forecast.space.free_bytes == size - forecast.live_bytes
    )
    assert outcome.space_after.file_bytes == path.stat().st_size < size
    assert outcome.vacuum.needed_bytes == forecast.needed_bytes == 2 * forecast.live_bytes
    sweep = Sweep.objects.filter(kind=Sweep.Kind.VACUUM).get()
    assert (sweep.ending, sweep.vacuumed, sweep.removed_threads) == (Ending.DONE, True, 0)
    assert sweep.trigger == Trigger.ADMIN


def test_a_reader_keeps_the_log_of_a_vacuum_and_that_is_told(
    written_store: WriteStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = written_store(TWO, NAMED, journal_mode="wal")
    monkeypatch.setitem(connections["history"].settings_dict, "OPTIONS", {"timeout": 0.1})
    with closing(sqlite3.connect(path, isolation_level=None)) as reader:
        reader.execute("BEGIN")
        reader.execute("SELECT COUNT(*) FROM checkpoints").fetchone()

        outcome = reclaim()

        assert (outcome.vacuum.ran, outcome.vacuum.wal_busy) == (True, True)
        assert "another process reads the old pages" in outcome.vacuum.reason
        assert outcome.space_after.wal_bytes > 0
        reader.execute("COMMIT")
    assert threads_in(path) == {"named"}


def test_a_receiver_of_every_deletion_sees_no_row_of_a_store(written_store: WriteStore) -> None:
    path = written_store(TWO, NAMED)
    seen: list[object] = []

    def audit(sender: type, **_kwargs: object) -> None:
        seen.append(sender.__name__)

    for signal in (pre_delete, post_delete):
        signal.connect(audit)
    try:
        outcome = reclaim()
    finally:
        for signal in (pre_delete, post_delete):
            signal.disconnect(audit)

    assert (outcome.removed.thread_count, threads_in(path)) == (1, {"named"})
    assert set(seen) <= {"Thread"}


SHARED = """
from datetime import datetime, timezone
import django
django.setup()
from django.core.management import call_command
from history_retention import services
from history_retention.models import Sweep, Thread
from history_retention.policy import Bounds
now = datetime(2026, 11, 30, 12, tzinfo=timezone.utc)
call_command("migrate", verbosity=0)
assert services.measure("history", now=now).thread_count == 40
plan = services.plan_prune("history", Bounds(older_than_days=30), now=now)
outcome = services.execute(plan, trigger=services.Trigger.CODE)
assert services.vacuum("history", now=now, trigger=services.Trigger.CODE).ending == "done"
print(outcome.ending, outcome.removed.thread_count, Thread.objects.count(), Sweep.objects.count())
"""


def test_a_ledger_in_the_same_file_as_the_store_never_waits_for_itself(tmp_path: Path) -> None:
    path = write_store(
        tmp_path / "both.db",
        [ThreadRows(thread_id=f"t{number}") for number in range(40)],
        [ConversationRow(thread_id=f"t{number}") for number in range(30)],
    )
    url = f"sqlite:///{path}"

    done = subprocess.run(
        [sys.executable, "-c", SHARED],
        cwd=ROOT,
        env=os.environ
        | {
            "DJANGO_SETTINGS_MODULE": "project.settings",
            "HISTORY_DATABASE_URL": url,
            "DATABASE_URL": url,
        },
        capture_output=True,
        text=True,
        check=False,
    )

    assert done.stdout == "done 40 0 2\n", done.stderr
    assert threads_in(path) == set()


def test_a_prune_reclaims_and_vacuums_in_one_sweep(written_store: WriteStore) -> None:
    written_store(TWO, NAMED)

    plan = services.plan_prune("history", Bounds(older_than_days=30), now=NOW)
    outcome = services.execute(plan, trigger=Trigger.SCHEDULE)

    sweep = Sweep.objects.get()
    assert (sweep.kind, sweep.trigger, sweep.vacuumed) == ("prune", "schedule", True)
    assert (sweep.planned_threads, sweep.removed_threads) == (2, 2)
    assert sweep.removed_bytes == outcome.removed.byte_count == plan.planned.byte_count
