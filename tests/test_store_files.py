import sqlite3
from contextlib import closing
from datetime import timedelta
from pathlib import Path
from uuid import UUID

import pytest
from langgraph.checkpoint.sqlite import SqliteSaver

from project.checkpoint_ids import GREGORIAN_START, checkpoint_id_at

from .store_files import (
    NOW,
    ConversationRow,
    Layout,
    ThreadRows,
    add_threads,
    copy_fixture,
    rows_of,
    threads_in,
    write_store,
)


@pytest.mark.parametrize("layout", ["gaunt_sloth", "langgraph_sqlite"])
def test_a_written_checkpoint_has_exactly_the_size_asked_for(
    tmp_path: Path, layout: Layout
) -> None:
    sizes = [300, 400, 511, 70_000]
    threads = [ThreadRows(thread_id=f"t{size}", size=size) for size in sizes]

    path = write_store(tmp_path / "store.db", threads, layout=layout)

    assert sorted(len(row[5]) for row in rows_of(path)["checkpoints"]) == sizes


def test_a_written_thread_is_read_back_by_the_vendors_saver(tmp_path: Path) -> None:
    path = write_store(
        tmp_path / "store.db",
        [ThreadRows(thread_id="a", checkpoints=3, writes=2, age=timedelta(days=2))],
        layout="langgraph_sqlite",
    )

    with SqliteSaver.from_conn_string(str(path)) as saver:
        read = list(saver.list({"configurable": {"thread_id": "a"}}))

    assert [entry.checkpoint["ts"] for entry in read] == [
        "2026-11-28T12:00:00.000Z",
        "2026-11-28T11:59:00.000Z",
        "2026-11-28T11:58:00.000Z",
    ]
    assert [len(entry.pending_writes or ()) for entry in read] == [2, 0, 0]


def test_a_checkpoint_id_tells_its_instant_by_the_layout_of_rfc_9562() -> None:
    made = UUID(checkpoint_id_at(NOW, sequence=7))

    ticks = made.time_low << 28 | made.time_mid << 12 | made.time_hi_version & 0xFFF
    assert (made.version, GREGORIAN_START + timedelta(microseconds=ticks // 10)) == (6, NOW)


def test_rows_of_tells_a_changed_byte(tmp_path: Path) -> None:
    path = write_store(
        tmp_path / "store.db",
        [ThreadRows(thread_id="a")],
        [ConversationRow(thread_id="a", turns=[timedelta(days=1)])],
    )
    before = rows_of(path)

    with closing(sqlite3.connect(path)) as connection, connection:
        connection.execute("UPDATE sessions SET response = 'An answer'")

    after = rows_of(path)
    assert {table for table in before if before[table] != after[table]} == {"sessions"}


def test_a_thread_added_later_stands_beside_those_written_first(tmp_path: Path) -> None:
    path = write_store(tmp_path / "store.db", [ThreadRows(thread_id="a")], None)

    add_threads(path, [ThreadRows(thread_id="b", checkpoints=0)])

    assert (threads_in(path), threads_in(path, "checkpoint_writes")) == ({"a"}, {"a", "b"})
    assert "conversations" not in rows_of(path)


def test_a_copied_fixture_brings_what_only_its_log_holds_and_no_index_of_it(tmp_path: Path) -> None:
    copy = copy_fixture("harness/v14-crash-wal.before.sqlite", tmp_path)

    assert sorted(path.name for path in tmp_path.iterdir()) == [copy.name, f"{copy.name}-wal"]
    assert len(rows_of(copy)["events"]) > 0


def test_looking_at_a_store_leaves_nothing_beside_it(tmp_path: Path) -> None:
    path = write_store(tmp_path / "store.db", [ThreadRows(thread_id="a")], journal_mode="wal")
    before = path.read_bytes()

    rows_of(path)

    assert [file.name for file in tmp_path.iterdir()] == ["store.db"]
    assert path.read_bytes() == before
