from __future__ import annotations

import sqlite3
from collections import deque
from contextlib import closing
from datetime import timedelta
from pathlib import Path

import pytest

from history_retention import services
from history_retention.facts import KeepReason
from history_retention.policy import Bounds
from history_retention.stores import open_store
from project.checkpoint_ids import checkpoint_id_at

from ..conftest import WriteStore
from ..store_files import NOW, ConversationRow, ThreadRows, rows_of
from .tracing import longest_statement, statements

GROUPED = "GROUP BY thread_id"


def rename(path: Path, old: str, new: bytes) -> None:
    """Give a thread an id that is a BLOB."""
    with closing(sqlite3.connect(path)) as connection, connection:
        for table in ("checkpoints", "checkpoint_writes"):
            connection.execute(f"UPDATE {table} SET thread_id = ? WHERE thread_id = ?", [new, old])


def test_few_threads_of_many_rows_are_chosen_in_statements_of_few_rows(
    written_store: WriteStore,
) -> None:
    written_store([ThreadRows(thread_id=f"{n:02}", checkpoints=1_000, size=200) for n in range(30)])

    with statements() as seen:
        plan = services.plan_reclaim("history", now=NOW)

    chosen = [each for each in seen if GROUPED in each and "0 AS size" not in each]
    scanned = [each for each in chosen if "FROM checkpoints" in each and " IN (" not in each]
    weighed = [each for each in chosen if "FROM checkpoints" in each and " IN (" in each]
    assert sum(thread.checkpoint_count for thread in plan.reclaimable) == 30_000
    assert len(scanned) >= 30_000 / (2_000 + 1_000)
    assert len(weighed) >= 30_000 / 2_000


def test_no_statement_of_a_choice_takes_longer_in_a_larger_store(
    written_store: WriteStore,
) -> None:
    path = written_store()

    def longest(threads: range) -> int:
        with closing(sqlite3.connect(path)) as connection, connection:
            connection.executemany(
                "INSERT INTO checkpoints (thread_id, checkpoint_id) VALUES (?, ?)",
                ((f"{n:06}", checkpoint_id_at(NOW, n)) for n in threads),
            )
        with longest_statement() as steps, open_store("history") as store:
            deque(store.indexed_threads(services.silent), maxlen=0)
        return steps[0]

    small, large = longest(range(6_000)), longest(range(6_000, 24_000))

    assert 0 < large <= 1.1 * small


@pytest.mark.parametrize("new", [b"b", b"zz", b"", b"\xff", b"z\x00"])
def test_a_thread_whose_id_is_a_blob_is_kept_and_listed(
    written_store: WriteStore, new: bytes
) -> None:
    path = written_store([ThreadRows(thread_id=each) for each in ("a", "blob", "z")])
    rename(path, "blob", new)
    thread_id = new.decode("utf-8", "surrogateescape")

    readout = services.measure("history", now=NOW, save=False)
    plan = services.plan_reclaim("history", now=NOW)
    services.execute(plan, trigger=services.Trigger.CODE)

    assert (readout.thread_count, readout.reclaimable.thread_count) == (3, 2)
    assert [(k.thread_id, k.reason) for k in plan.kept] == [(thread_id, KeepReason.UNKNOWN_AGE)]
    assert [row[0] for row in rows_of(path)["checkpoints"]] == [new]


def test_a_named_thread_whose_id_is_a_blob_is_kept_from_a_prune(written_store: WriteStore) -> None:
    path = written_store(
        [ThreadRows(thread_id=each) for each in ("a", "blob", "z")],
        [ConversationRow(thread_id=each) for each in ("a", "b", "z")],
    )
    rename(path, "blob", b"b")

    plan = services.plan_prune("history", Bounds(everything=True), now=NOW)

    assert [thread.thread_id for thread in plan.prunable] == ["z", "a"]
    assert [(k.thread_id, k.reason) for k in plan.kept] == [("b", KeepReason.UNKNOWN_AGE)]


def test_a_text_and_a_blob_of_the_same_bytes_are_one_thread_that_stays(
    written_store: WriteStore,
) -> None:
    path = written_store(
        [ThreadRows(thread_id="blob", age=timedelta(days=50)), ThreadRows(thread_id="b")]
    )
    rename(path, "blob", b"b")

    readout = services.measure("history", now=NOW, save=False)
    plan = services.plan_reclaim("history", now=NOW)

    assert (readout.thread_count, readout.checkpoint_count) == (1, 2)
    assert plan.threads == ()
    assert [(k.thread_id, k.reason) for k in plan.kept] == [("b", KeepReason.UNKNOWN_AGE)]
