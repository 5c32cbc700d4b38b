"""A measuring that recalls what has not changed finds what one that reads every row finds."""

from __future__ import annotations

import sqlite3
from collections.abc import Callable
from contextlib import closing
from datetime import timedelta
from itertools import count
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from history_retention import services
from history_retention.models import Hold, Measurement, Thread
from history_retention.readouts import Readout
from history_retention.remembering import Memory
from history_retention.stores import open_store
from project.checkpoint_ids import checkpoint_id_at

from .conftest import WriteStore
from .store_files import NOW, ConversationRow, Layout, ThreadRows, add_threads, write_store

pytestmark = pytest.mark.django_db(transaction=True)

DAY = timedelta(days=1)


def change(path: Path, *statements: str) -> None:
    with closing(sqlite3.connect(path, isolation_level=None)) as connection:
        for statement in statements:
            connection.execute(statement)


def measure(**options: Any) -> Readout:
    return services.measure("history", **{"now": NOW, "top": 50, **options})


def recalls() -> bool:
    """Tell whether the next measuring would recall threads instead of reading all rows."""
    memory = Memory("history")
    with open_store("history") as store:
        return store.remeasured_threads(services.silent, memory.marks(), memory) is not None


def remembered() -> dict[str, tuple[Any, ...]]:
    return {row[0]: row[1:] for row in Thread.objects.values_list("thread_id", *FIELDS)}


FIELDS = [
    each.name
    for each in Thread._meta.concrete_fields
    if each.name not in ("digest", "store", "thread_id")
]


def test_it_weighs_what_is_new_and_drops_what_is_gone(written_store: WriteStore) -> None:
    path = written_store([ThreadRows(thread_id=each, size=1_000) for each in "abcd"])
    measure()
    add_threads(path, [ThreadRows(thread_id="b", size=70_000, age=DAY), ThreadRows(thread_id="e")])
    change(
        path,
        "DELETE FROM checkpoints WHERE thread_id = 'c'",
        "DELETE FROM checkpoint_writes WHERE thread_id IN ('c', 'a')",
    )

    assert recalls()
    again = measure()

    assert again == measure(exact=True)
    assert sorted(remembered()) == ["a", "b", "d", "e"]
    sizes = {thread.thread_id: thread.byte_count for thread in again.largest_threads}
    assert sizes["b"] > 71_000 > sizes["d"] > sizes["a"]


@pytest.mark.parametrize("size", [1, 300, 90_000])
def test_a_row_that_was_replaced_is_weighed_again(written_store: WriteStore, size: int) -> None:
    path = written_store([ThreadRows(thread_id=each, size=300) for each in "abc"])
    measure()
    change(
        path,
        "INSERT OR REPLACE INTO checkpoints (thread_id, checkpoint_id, checkpoint)"
        f" SELECT thread_id, checkpoint_id, zeroblob({size}) FROM checkpoints"
        " WHERE thread_id = 'a'",
    )

    assert recalls()
    again = measure()

    assert again == measure(exact=True)
    (a,) = [thread for thread in again.largest_threads if thread.thread_id == "a"]
    assert a.byte_count == size + 100  # its write


def test_a_thread_that_lost_a_row_in_its_middle_is_weighed_again(written_store: WriteStore) -> None:
    path = written_store(
        [ThreadRows(thread_id="a", checkpoints=5, writes=0), ThreadRows(thread_id="b")]
    )
    measure()
    change(path, "DELETE FROM checkpoints WHERE rowid = 3")

    assert recalls()
    again = measure()

    assert again == measure(exact=True)
    assert again.checkpoint_count == 4 + 1


def test_it_does_not_look_at_the_rows_of_the_threads_that_it_recalls(
    written_store: WriteStore,
) -> None:
    path = written_store([ThreadRows(thread_id=f"{n:03}", size=9_000) for n in range(300)])
    measure()
    change(
        path, "UPDATE checkpoints SET checkpoint = x'00' WHERE thread_id < '299'"
    )  # behind every rowid's back

    recalled, exact = measure(save=False), measure(save=False, exact=True)

    assert recalled.checkpoint_bytes > 300 * 9_000 > 300 * 1_000 > exact.checkpoint_bytes


def test_what_is_told_of_a_thread_is_as_of_now_though_its_rows_are_recalled(
    written_store: WriteStore,
) -> None:
    path = written_store(
        [
            ThreadRows(thread_id="a", age=DAY / 2),
            ThreadRows(thread_id="b"),
            ThreadRows(thread_id="c"),
        ],
        [ConversationRow(thread_id="b")],
    )
    measure()
    Hold.objects.create(store="history", thread_id="c", reason="audit")
    change(path, "UPDATE conversations SET thread_id = NULL")

    assert recalls()
    again = measure(now=NOW + DAY)

    states = {thread.thread_id: thread.state for thread in again.largest_threads}
    assert states == {"a": "unresumable", "b": "unresumable", "c": "held"}
    assert {name: row[FIELDS.index("state")] for name, row in remembered().items()} == states


@pytest.mark.parametrize(
    "statements",
    [
        ("VACUUM",),
        ("CREATE TABLE another (id)",),
        ("DELETE FROM checkpoints WHERE rowid = (SELECT MAX(rowid) FROM checkpoints)",),
        (
            "CREATE TEMP TABLE kept AS SELECT * FROM checkpoints",
            "DELETE FROM checkpoints",
            "UPDATE kept SET checkpoint = x'00' WHERE thread_id < 'c'",
            "INSERT INTO checkpoints SELECT * FROM kept ORDER BY thread_id DESC",
        ),
        ("UPDATE checkpoints SET thread_id = CAST(thread_id AS BLOB) WHERE thread_id = 'a'",),
        ("UPDATE checkpoints SET rowid = 9223372036854775807 WHERE thread_id = 'c'",),
    ],
    ids=["vacuum", "schema", "mark gone", "rowids given again", "ids of bytes", "rowids used up"],
)
def test_it_reads_every_row_when_in_doubt(
    written_store: WriteStore, statements: tuple[str, ...]
) -> None:
    path = written_store([ThreadRows(thread_id=each) for each in "abc"])
    measure()
    change(path, *statements)
    if "9223372036854775807" in statements[0]:
        measure()

    assert not recalls()
    assert measure() == measure(exact=True)


def test_it_reads_every_row_when_many_threads_are_new(written_store: WriteStore) -> None:
    path = written_store([ThreadRows(thread_id="a")])
    measure()
    add_threads(path, [ThreadRows(thread_id=f"{n:03}") for n in range(101)])

    assert not recalls()
    assert measure().thread_count == 102


def test_it_reads_every_row_of_another_file(
    written_store: WriteStore, point_at: Callable[[Path], Path], tmp_path: Path
) -> None:
    path = written_store([ThreadRows(thread_id=each) for each in "abc"])
    measure()
    other = tmp_path / "other.db"
    other.write_bytes(path.read_bytes())
    point_at(other)

    assert not recalls()


def test_a_thread_the_ledger_lost_is_weighed_again(written_store: WriteStore) -> None:
    written_store([ThreadRows(thread_id=each) for each in "abc"])
    before = measure()
    Thread.objects.filter(thread_id="b").delete()

    assert recalls()
    assert measure() == before
    assert sorted(remembered()) == ["a", "b", "c"]


def test_a_measuring_that_broke_off_does_not_mislead_the_next(written_store: WriteStore) -> None:
    path = written_store([ThreadRows(thread_id=each) for each in "abc"])
    measure()
    change(path, "DELETE FROM checkpoint_writes WHERE thread_id = 'a'")
    add_threads(path, [ThreadRows(thread_id="b", age=DAY)])
    measure()
    Measurement.objects.first().delete()  # type: ignore[union-attr]

    assert recalls()
    assert measure() == measure(exact=True)


def test_a_readout_as_of_before_the_last_is_told_and_not_kept(written_store: WriteStore) -> None:
    path = written_store([ThreadRows(thread_id="a", age=2 * DAY)])
    measure()
    before = remembered()
    add_threads(path, [ThreadRows(thread_id="b")])

    then = measure(now=NOW - 2 * DAY)

    states = {thread.thread_id: thread.state for thread in then.largest_threads}
    assert states == {"a": "grace", "b": "unresumable"}
    assert then.notes == (
        "history: this readout is not kept, since a later one is: run history_readout without "
        "--as-of to keep what is there now.",
    )
    assert (remembered(), Measurement.objects.count()) == (before, 1)
    assert measure().notes == ()
    assert (len(remembered()), Measurement.objects.count()) == (2, 2)


THREADS = st.sampled_from(["", "a", "ä", "c\udcff"])
STEPS = st.lists(
    st.one_of(
        st.tuples(st.just("add"), THREADS, st.integers(0, 2), st.integers(0, 40)),
        st.tuples(st.just("write"), THREADS, st.integers(0, 2), st.integers(0, 40)),
        st.tuples(st.just("lose"), THREADS, st.integers(0, 2)),
        st.tuples(st.just("remove"), THREADS),
        st.tuples(st.just("name"), THREADS),
        st.tuples(st.just("measure")),
        st.tuples(st.sampled_from(["measure", "measure", "vacuum"])),
    ),
    min_size=5,
    max_size=40,
)
numbered = count()


@pytest.mark.parametrize("layout", ["gaunt_sloth", "langgraph_sqlite"])
@settings(
    max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
@given(steps=STEPS)
def test_any_history_is_measured_as_by_reading_every_row(
    point_at: Callable[[Path], Path],
    tmp_path: Path,
    layout: Layout,
    steps: list[tuple[Any, ...]],
) -> None:
    path = point_at(write_store(tmp_path / f"{next(numbered)}.db", layout=layout))
    writes = "writes" if layout == "langgraph_sqlite" else "checkpoint_writes"
    for verb, *about in [*steps, ("measure",)]:
        if verb == "measure":
            expected = measure(save=False, exact=True)
            assert measure() == expected
            kept = {each.thread_id: each.byte_count for each in expected.largest_threads}
            assert sorted(row[FIELDS.index("byte_count")] for row in remembered().values()) == (
                sorted(kept.values())
            )
        else:
            step(path, writes, verb, *about)


def step(
    path: Path, writes: str, verb: str, thread_id: str = "", number: int = 0, size: int = 0
) -> None:
    raw = thread_id.encode("utf-8", "surrogateescape")
    key = checkpoint_id_at(NOW - DAY * (number + 1)) if number else "odd"
    statements: dict[str, list[tuple[str, tuple[Any, ...]]]] = {
        "add": [
            (
                "INSERT OR REPLACE INTO checkpoints (thread_id, checkpoint_id, checkpoint)"
                " VALUES (CAST(? AS TEXT), ?, zeroblob(?))",
                (raw, key, size),
            )
        ],
        "write": [
            (
                f"INSERT OR REPLACE INTO {writes} (thread_id, checkpoint_id, task_id, idx, channel,"
                " value) VALUES (CAST(? AS TEXT), ?, 'task', ?, 'messages', zeroblob(?))",
                (raw, key, size % 3, size),
            )
        ],
        "lose": [
            (
                f"DELETE FROM {table} WHERE thread_id = CAST(? AS TEXT) AND checkpoint_id = ?",
                (raw, key),
            )
            for table in ("checkpoints", writes)
        ],
        "remove": [
            (f"DELETE FROM {table} WHERE thread_id = CAST(? AS TEXT)", (raw,))
            for table in ("checkpoints", writes)
        ],
        "name": [
            (
                "INSERT INTO conversations (started_ts, thread_id)"
                " VALUES ('2026-10-01T00:00:00Z', CAST(? AS TEXT))",
                (raw,),
            )
        ],
        "vacuum": [("VACUUM", ())],
    }
    with closing(sqlite3.connect(path, isolation_level=None)) as connection:
        for statement, values in statements[verb]:
            connection.execute(statement, values)
