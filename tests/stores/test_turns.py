"""Turns are read as far as a plan needs them, and a plan is the same however far that was."""

from __future__ import annotations

import sqlite3
from collections.abc import Sequence
from contextlib import closing
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from history_retention import services
from history_retention.facts import KeepReason, Plan
from history_retention.policy import Bounds
from history_retention.stores.sqlite import SQLiteFile

from ..conftest import WriteStore
from ..store_files import NOW, ConversationRow, ThreadRows
from .tracing import statements

pytestmark = pytest.mark.django_db(databases=["default", "history"])

OLDEST = timedelta(days=400)
CUT = timedelta(days=30)
Turn = tuple[int, timedelta | None]
"""A conversation's id and how long ago its turn was; None is a time that tells nothing."""


def set_turns(path: Path, turns: Sequence[Turn], *, text: str = "") -> None:
    """Replace the turns by these, stored in this order."""
    with closing(sqlite3.connect(path)) as connection, connection:
        connection.execute("DELETE FROM sessions")
        connection.executemany(
            "INSERT INTO sessions (ts, prompt, conversation_id) VALUES (?, ?, ?)",
            [
                ("yesterday" if age is None else (NOW - age).isoformat(), text, key)
                for key, age in turns
            ],
        )


def planned(*, older_than_days: int, keep_last: int | None = None) -> Plan:
    bounds = Bounds(older_than_days=older_than_days, keep_last=keep_last)
    return services.plan_prune("history", bounds, now=NOW)


@pytest.fixture
def store(written_store: WriteStore) -> Path:
    """Six threads of very old rows, named by conversations 1 to 6 that are as old."""
    names = [f"t{number}" for number in range(1, 7)]
    return written_store(
        [ThreadRows(thread_id=name, age=OLDEST) for name in names],
        [ConversationRow(thread_id=name, age=OLDEST) for name in names],
    )


def set_starts(path: Path, ages: Sequence[timedelta | None]) -> None:
    """Say how long ago the conversations were started; None tells nothing."""
    with closing(sqlite3.connect(path)) as connection, connection:
        connection.executemany(
            "UPDATE conversations SET started_ts = ? WHERE id = ?",
            [
                ("once" if age is None else (NOW - age).isoformat(), key)
                for key, age in enumerate(ages, start=1)
            ],
        )


@settings(
    max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
@given(
    starts=st.lists(st.none() | st.floats(0, 400, allow_nan=False), min_size=6, max_size=6),
    days=st.lists(st.tuples(st.integers(1, 6), st.floats(0, 399, allow_nan=False)), max_size=40),
    junk=st.sets(st.integers(0, 39), max_size=1),
)
def test_a_plan_knows_the_newest_turn_and_the_number_of_turns_whatever_it_has_read(
    store: Path, starts: list[float | None], days: list[tuple[int, float]], junk: set[int]
) -> None:
    """A conversation may say that it was started after its turns, or not tell when."""
    in_order = sorted(days, key=lambda turn: -turn[1])
    turns: list[Turn] = [
        (key, None if number in junk else timedelta(days=age))
        for number, (key, age) in enumerate(in_order)
    ]
    set_turns(store, turns)
    began = [None if age is None else timedelta(days=age) for age in starts]
    set_starts(store, began)

    plan = planned(older_than_days=30)

    ages: dict[int, list[timedelta | None]] = {key: [] for key in range(1, 7)}
    for key, age in turns:
        ages[key].append(age)
    unknown = {
        f"t{key}"
        for key, found in ages.items()
        if None in found or (not found and began[key - 1] is None)
    }
    idle = {
        f"t{key}": min([age for age in found or [began[key - 1]] if age is not None], default=CUT)
        for key, found in ages.items()
    }
    assert {t.thread_id: NOW - t.last_activity for t in plan.prunable} == {
        name: min(age, OLDEST) for name, age in idle.items() if name not in unknown and age > CUT
    }
    assert {t.thread_id for t in plan.kept} <= unknown
    assert all(t.reason is KeepReason.UNKNOWN_AGE for t in plan.kept)


def rows_read(seen: list[str]) -> list[str]:
    """Return the statements that read conversations of turns."""
    return [sql for sql in seen if "conversation_id, ts" in sql]


def test_a_reclaim_reads_no_turn(store: Path) -> None:
    set_turns(store, [(1, timedelta(days=day)) for day in range(300, 0, -1)])

    with statements() as seen:
        services.plan_reclaim("history", now=NOW)

    assert rows_read(seen) == []


def test_a_prune_reads_the_turns_after_its_bound_and_those_of_what_it_would_take(
    store: Path,
) -> None:
    """One turn a day: the last of them is row 300, and row 301 - N is N days old.

    The bound is 30 days and what it takes was started 60 days ago, with a day of slack for each.
    """
    set_starts(store, [timedelta(days=60)] * 6)
    set_turns(
        store,
        [(2 + day % 5 if 30 < day <= 60 else 1, timedelta(days=day)) for day in range(300, 0, -1)],
    )

    with statements() as seen:
        plan = planned(older_than_days=30)

    assert {thread.thread_id for thread in plan.prunable} == {f"t{key}" for key in range(2, 7)}
    bounds = [float(sql.split("rowid > ")[1].split()[0]) for sql in rows_read(seen)]
    assert bounds == [269.0, 300.0, 239.0, 300.0]


def test_a_turn_far_out_of_order_is_found_by_the_samples_and_all_are_read(store: Path) -> None:
    turns: list[Turn] = [(1, timedelta(days=day)) for day in range(300, 0, -1)]
    turns[0] = (2, timedelta(days=2))
    set_turns(store, turns)

    plan = planned(older_than_days=30)

    assert {thread.thread_id for thread in plan.prunable} == {f"t{key}" for key in range(3, 7)}


def test_a_turn_that_is_stored_a_day_late_is_still_seen(store: Path) -> None:
    turns: list[Turn] = [(1, timedelta(days=day)) for day in range(300, 30, -1)]
    late = [(2, CUT - timedelta(minutes=1)), (1, CUT + timedelta(hours=23))]
    set_turns(store, [*turns, *late, (1, timedelta(days=29))])

    assert "t2" not in {thread.thread_id for thread in planned(older_than_days=30).prunable}


def test_turns_that_go_while_the_bound_is_looked_for_are_read_as_they_are_then(
    store: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    set_turns(store, [(1, timedelta(days=day)) for day in range(300, 0, -1)])
    real = SQLiteFile.rows

    def rows(file: SQLiteFile, sql: str, params: Sequence[Any] = ()) -> list[tuple[Any, ...]]:
        """Answer, and have the newest half of the turns go once their span was told."""
        found = real(file, sql, params)
        if "MIN(rowid)" in sql:
            with closing(sqlite3.connect(store)) as connection, connection:
                connection.execute("DELETE FROM sessions WHERE rowid > 100")
        return found

    monkeypatch.setattr(SQLiteFile, "rows", rows)

    plan = planned(older_than_days=30)

    assert {thread.thread_id for thread in plan.prunable} == {f"t{key}" for key in range(1, 7)}
    assert sum(thread.turn_count for thread in plan.prunable) == 100


def test_threads_that_are_ranked_need_every_turn(store: Path) -> None:
    set_turns(store, [(key, timedelta(days=100 - key)) for key in (6, 5, 4, 3, 2, 1)])

    plan = planned(older_than_days=30, keep_last=2)

    assert [thread.thread_id for thread in plan.prunable] == ["t4", "t3", "t2", "t1"]
