from __future__ import annotations

import sqlite3
from collections.abc import Callable, Iterable
from contextlib import closing
from datetime import UTC, datetime, timedelta
from itertools import count
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from history_retention.facts import NamedThread
from history_retention.services import silent
from history_retention.stores import open_store, row_scan, scans
from history_retention.stores.sqlite import sort_key
from project.checkpoint_ids import checkpoint_id_at

from ..conftest import WriteStore
from ..store_files import NOW, WRITES_TABLE, Layout, write_store

LAYOUTS: tuple[Layout, ...] = ("gaunt_sloth", "langgraph_sqlite")
MAY = datetime(2026, 5, 14, 12, tzinfo=UTC)
IN_MAY = "1f14f8c6-ee96-6007-8000-000000000007"

CHECKPOINT = (
    "INSERT INTO checkpoints (thread_id, checkpoint_ns, checkpoint_id, checkpoint, metadata)"
    " VALUES (?, ?, ?, ?, ?)"
)


def write_row(layout: Layout) -> str:
    return (
        f"INSERT INTO {WRITES_TABLE[layout]} (thread_id, checkpoint_ns, checkpoint_id, task_id,"
        " idx, channel, value) VALUES (?, ?, ?, 'task', ?, 'messages', ?)"
    )


def insert(path: Path, sql: str, rows: Iterable[tuple[Any, ...]]) -> None:
    with closing(sqlite3.connect(path)) as connection, connection:
        connection.executemany(sql, rows)


def measured() -> list[NamedThread]:
    with open_store("history") as store:
        return list(store.measured_threads(silent))


def indexed() -> list[NamedThread]:
    with open_store("history") as store:
        return list(store.indexed_threads(silent))


def weighed() -> list[NamedThread]:
    with open_store("history") as store:
        return list(store.weighed(list(store.indexed_threads(silent))))


def sizes(threads: list[NamedThread]) -> dict[str, int | None]:
    return {thread.stored.thread_id: thread.stored.byte_count for thread in threads}


def activity(threads: list[NamedThread]) -> dict[str, datetime | None]:
    return {thread.stored.thread_id: thread.stored.last_activity for thread in threads}


def counted(threads: list[NamedThread]) -> dict[str, tuple[int, int]]:
    return {
        thread.stored.thread_id: (thread.stored.checkpoint_count, thread.stored.write_count)
        for thread in threads
    }


def test_an_empty_store_has_no_threads(written_store: WriteStore) -> None:
    written_store()

    assert (measured(), indexed()) == ([], [])


@pytest.mark.parametrize(
    ("payload", "metadata", "size"),
    [
        (None, None, 0),
        (None, b"12345", 5),
        (b"", b"", 0),
        (b"\x00" * 30_000, None, 30_000),
        ("größe ☃", None, 11),
        ("☃" * 5_000, "☃", 15_003),
        ("a\x00b", None, 3),
    ],
)
def test_a_payload_is_measured_in_bytes_and_null_counts_nothing(
    written_store: WriteStore, payload: object, metadata: object, size: int
) -> None:
    path = written_store()
    insert(path, CHECKPOINT, [("t", "", IN_MAY, payload, metadata), ("u", "", IN_MAY, b"1", b"")])
    insert(path, write_row("gaunt_sloth"), [("t", "", IN_MAY, 0, payload), ("w", "", "x", 0, None)])

    assert sizes(measured()) == {"t": size + len_of(payload), "u": 1, "w": 0}
    assert sizes(weighed()) == sizes(measured())


def len_of(payload: object) -> int:
    if payload is None:
        return 0
    return len(payload.encode() if isinstance(payload, str) else payload)  # type: ignore[arg-type]


ODD_IDS = (
    "",
    " ",
    " lead",
    "a",
    "A",
    "ä",
    "日本語🧵",
    "a'b\"; DROP TABLE checkpoints;--",
    "100%_done",
    "%s",
    "42",
    "x" * 300,
    "\x01",
    "￿",
    "\U0010ffff",
)


@pytest.mark.parametrize("layout", LAYOUTS)
def test_every_id_is_a_thread_of_its_own_in_the_order_of_its_bytes(
    written_store: WriteStore, layout: Layout
) -> None:
    path = written_store(layout=layout)
    rows = [(thread_id, "", IN_MAY, b"12", None) for thread_id in ODD_IDS]
    insert(path, CHECKPOINT, rows)

    by_rows, by_keys = measured(), indexed()

    ordered = sorted(ODD_IDS, key=sort_key)
    assert [thread.stored.thread_id for thread in by_rows] == ordered
    assert [thread.stored.thread_id for thread in by_keys] == ordered
    assert sizes(by_rows) == dict.fromkeys(ODD_IDS, 2) == sizes(weighed())
    assert activity(by_rows) == dict.fromkeys(ODD_IDS, MAY) == activity(by_keys)


@pytest.mark.parametrize("raw", [b"\xff", b"a\xffb", b"a\x00b", b"\x00", b"\xed\xa0\x80"])
def test_an_id_that_is_no_text_is_seen_and_of_unknown_age(
    written_store: WriteStore, raw: bytes
) -> None:
    path = written_store()
    insert(path, CHECKPOINT.replace("(?,", "(CAST(? AS TEXT),"), [(raw, "", IN_MAY, b"12", None)])
    insert(path, CHECKPOINT, [("a", "", IN_MAY, b"1", None)])

    by_rows, by_keys = measured(), indexed()

    thread_id = raw.decode("utf-8", "surrogateescape")
    assert sizes(by_rows) == {thread_id: 2, "a": 1} == sizes(weighed())
    assert activity(by_rows) == {thread_id: None, "a": MAY} == activity(by_keys)


def test_a_blob_as_thread_id_is_measured_and_kept_as_of_unknown_age(
    written_store: WriteStore,
) -> None:
    path = written_store()
    insert(path, CHECKPOINT, [(b"b", "", IN_MAY, b"12", None), ("a", "", IN_MAY, b"1", None)])

    assert sizes(measured()) == {"a": 1, "b": 2}
    assert activity(measured()) == {"a": MAY, "b": None} == activity(indexed())
    assert counted(measured()) == counted(indexed())


@pytest.mark.parametrize(
    "checkpoint_id", [None, IN_MAY.encode(), f"{IN_MAY}\x00x", "", "1", IN_MAY.upper() + " "]
)
def test_one_row_whose_id_tells_no_time_makes_the_whole_age_unknown(
    point_at: Callable[[Path], Path], tmp_path: Path, checkpoint_id: object
) -> None:
    path = write_store(tmp_path / "store.db")
    with closing(sqlite3.connect(path)) as connection, connection:
        connection.execute("DROP TABLE checkpoints")
        connection.execute(
            "CREATE TABLE checkpoints (thread_id TEXT, checkpoint_ns TEXT, checkpoint_id TEXT,"
            " parent_checkpoint_id TEXT, type TEXT, checkpoint BLOB, metadata BLOB,"
            " PRIMARY KEY (thread_id, checkpoint_ns, checkpoint_id))"
        )
    stated = b'{"ts":"2026-05-14T12:00:00Z"}'
    insert(
        path,
        CHECKPOINT,
        [
            ("t", "", IN_MAY, b"1", None),
            ("t", "", "x-1", stated, None),
            ("t", "", checkpoint_id, b"1", None),
        ],
    )
    point_at(path)

    assert activity(measured()) == {"t": None} == activity(indexed())
    assert counted(measured()) == {"t": (3, 0)} == counted(indexed())


def test_an_upper_case_id_tells_its_time_though_it_sorts_elsewhere(
    written_store: WriteStore,
) -> None:
    path = written_store()
    later = checkpoint_id_at(MAY + timedelta(days=1)).upper()
    insert(path, CHECKPOINT, [("t", "", IN_MAY, b"", None), ("t", "", later, b"", None)])

    assert activity(measured()) == {"t": MAY + timedelta(days=1)} == activity(indexed())


def test_a_write_of_an_id_that_tells_no_time_is_as_old_as_its_checkpoint_says(
    written_store: WriteStore,
) -> None:
    path = written_store()
    payload = b'{"v":4,"ts":"2026-05-14T12:00:00Z","channel_values":{}}'
    insert(path, CHECKPOINT, [("t", "", "x-1", payload, None), ("n", "a", "x-1", payload, None)])
    insert(path, write_row("gaunt_sloth"), [("t", "", "x-1", 0, b""), ("n", "b", "x-1", 0, b"")])

    assert activity(measured()) == {"t": MAY, "n": None} == activity(indexed())


def test_a_thread_of_writes_alone_is_as_old_as_its_newest_write(written_store: WriteStore) -> None:
    path = written_store()
    ids = [checkpoint_id_at(MAY - timedelta(days=day)) for day in range(3)]
    insert(path, write_row("gaunt_sloth"), [("w", "", each, 0, b"123") for each in ids])

    assert activity(measured()) == {"w": MAY} == activity(indexed())
    assert counted(measured()) == {"w": (0, 3)} == counted(indexed())
    assert sizes(measured()) == {"w": 9}


def test_the_newest_row_of_five_thousand_namespaces_is_the_threads_age(
    written_store: WriteStore,
) -> None:
    path = written_store()
    insert(
        path,
        CHECKPOINT,
        [
            (
                "t",
                f"ns:{n}",
                checkpoint_id_at(MAY - timedelta(minutes=(n - 2_500) ** 2)),
                b"1",
                None,
            )
            for n in range(5_000)
        ],
    )

    assert activity(measured()) == {"t": MAY} == activity(indexed())
    assert counted(measured()) == {"t": (5_000, 0)} == counted(indexed())


@pytest.mark.parametrize("journal_mode", ["delete", "wal"])
@pytest.mark.parametrize("beyond", [-1, 0, 1])
def test_no_thread_is_lost_where_one_page_of_the_index_ends(
    written_store: WriteStore, journal_mode: str, beyond: int
) -> None:
    path = written_store(journal_mode=journal_mode)
    threads = [f"{n:06}" for n in range(scans.KEYS_A_PAGE + beyond)]
    insert(path, CHECKPOINT, [(thread_id, "", IN_MAY, b"", None) for thread_id in threads])
    insert(path, write_row("gaunt_sloth"), [("000000", "", IN_MAY, n, b"") for n in range(9)])

    assert counted(indexed()) == dict.fromkeys(threads, (1, 0)) | {"000000": (1, 9)}


@pytest.mark.parametrize("journal_mode", ["delete", "wal"])
@pytest.mark.parametrize("beyond", [-1, 0, 1])
def test_no_row_is_lost_where_one_chunk_of_rows_ends(
    written_store: WriteStore, journal_mode: str, beyond: int
) -> None:
    path = written_store(journal_mode=journal_mode)
    rows = row_scan.ROWS_A_CHUNK + beyond
    insert(
        path, write_row("gaunt_sloth"), [(f"{n % 7}", "", IN_MAY, n, b"12") for n in range(rows)]
    )

    assert sum(writes for _, writes in counted(measured()).values()) == rows
    assert counted(measured()) == counted(indexed())
    assert sum(size or 0 for size in sizes(measured()).values()) == 2 * rows


def test_what_the_chunks_tell_of_one_thread_is_put_together(written_store: WriteStore) -> None:
    path = written_store()
    minutes = [3_000, *range(1, 10_000), 20_000, 5]
    ids = [checkpoint_id_at(MAY + timedelta(minutes=minute), n) for n, minute in enumerate(minutes)]
    insert(path, CHECKPOINT, [("t", "", each, b"1", None) for each in ids])
    (whole,) = measured()

    insert(path, CHECKPOINT, [("t", "", "undefined", b"1", None)])

    (with_odd,) = measured()
    assert whole.stored.first_activity == MAY + timedelta(minutes=1) == indexed_first_activity()
    assert whole.stored.last_activity == MAY + timedelta(minutes=20_000)
    assert (with_odd.stored.last_activity, with_odd.stored.checkpoint_count) == (None, 10_003)


def indexed_first_activity() -> datetime | None:
    (thread,) = indexed()
    return thread.stored.first_activity


@pytest.mark.parametrize(
    "rowids",
    [
        (-(2**63), -(2**63) + 1, -5, 0, 1),
        (-1, 0, 2**62, 2**63 - 1),
        tuple(range(1, 6 * 10**6, 10**5)),
    ],
    ids=["negative", "huge", "sparse"],
)
def test_rows_are_found_wherever_their_rowids_lie(
    written_store: WriteStore, rowids: tuple[int, ...]
) -> None:
    path = written_store()
    named = CHECKPOINT.replace("(thread_id,", "(rowid, thread_id,").replace("(?,", "(?, ?,", 1)
    insert(path, named, [(rowid, f"t{rowid}", "", IN_MAY, b"12", None) for rowid in rowids])

    assert sizes(measured()) == {f"t{rowid}": 2 for rowid in rowids} == sizes(weighed())
    assert counted(measured()) == counted(indexed())


@pytest.mark.parametrize(
    "checkpoint_id",
    [
        IN_MAY.replace("f8c6", "g8c6"),
        IN_MAY.replace("1f14", "1f-4"),
        IN_MAY.replace("1f14", "1F14"),
        IN_MAY.replace("0007", "000é"),
    ],
)
def test_an_id_that_only_looks_like_a_version_6_uuid_is_odd_to_both_readings(
    written_store: WriteStore, checkpoint_id: str
) -> None:
    path = written_store()
    ids = [*(checkpoint_id_at(MAY - timedelta(days=day)) for day in range(9)), checkpoint_id]
    insert(path, CHECKPOINT, [("t", "", each, b"1", None) for each in ids])

    known = MAY if checkpoint_id.lower() == IN_MAY else None
    assert activity(measured()) == {"t": known} == activity(indexed())
    assert counted(measured()) == {"t": (10, 0)}


def test_more_threads_than_memory_takes_are_put_together_and_in_order(
    written_store: WriteStore,
) -> None:
    path = written_store()
    threads = [f"{n * 7919 % 100_003:06}" for n in range(row_scan.THREADS_IN_MEMORY + 5_000)]
    insert(path, CHECKPOINT, [(each, "", IN_MAY, b"12", None) for each in threads])
    later = checkpoint_id_at(MAY + timedelta(days=1))
    insert(path, write_row("gaunt_sloth"), [(each, "", later, 0, b"345") for each in threads])

    found = measured()

    assert [thread.stored.thread_id for thread in found] == sorted(threads)
    assert set(sizes(found).values()) == {5}
    assert set(counted(found).values()) == {(1, 1)}
    assert {thread.stored.first_activity for thread in found} == {MAY}
    assert set(activity(found).values()) == {MAY + timedelta(days=1)}


def test_progress_counts_rows_up_to_about_what_there_is(written_store: WriteStore) -> None:
    path = written_store()
    insert(
        path, write_row("gaunt_sloth"), [(f"{n % 7}", "", IN_MAY, n, b"12") for n in range(12_000)]
    )
    told: list[tuple[str, int, int]] = []

    with open_store("history") as store:
        list(store.measured_threads(lambda *step: told.append(step)))

    assert told == [
        ("measuring", 5_000, 12_000),
        ("measuring", 10_000, 12_000),
        ("measuring", 12_000, 12_000),
    ]


def test_a_replaced_row_changes_what_tells_a_thread_from_before(written_store: WriteStore) -> None:
    path = written_store()
    rows = [("t", "", IN_MAY, b"1", None), ("u", "", IN_MAY, b"1", None)]
    insert(path, CHECKPOINT, rows)
    before = {t.stored.thread_id: t.stored.fingerprint for t in indexed()}

    insert(path, CHECKPOINT.replace("INSERT", "INSERT OR REPLACE"), rows[1:])

    after = {t.stored.thread_id: t.stored.fingerprint for t in indexed()}
    assert after["t"] == before["t"]
    assert after["u"] != before["u"]


IDS = st.sampled_from(["", "a", "A", "ä", "b\x00", "x" * 300, "😀", "b", "c", "%"])
OLD_IDS = st.integers(0, 400).map(lambda days: checkpoint_id_at(MAY + timedelta(days=days / 2)))
ROW_IDS = st.one_of(
    OLD_IDS, OLD_IDS, OLD_IDS.map(str.upper), st.sampled_from(["", "1", "undefined", "x-1"])
)
STATED = st.integers(0, 400).map(
    lambda days: b'{"v":4,"ts":"%s"}' % (MAY + timedelta(days=days / 2)).isoformat().encode()
)
PAYLOADS = st.one_of(st.none(), st.binary(max_size=9), st.text(max_size=9), STATED)
ROWS = st.lists(
    st.tuples(IDS, st.sampled_from(["", "inner:1"]), ROW_IDS, PAYLOADS, PAYLOADS), max_size=25
)
numbered = count()


@pytest.mark.parametrize("layout", LAYOUTS)
@settings(
    max_examples=40, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
@given(checkpoints=ROWS, writes=ROWS)
def test_all_three_readings_see_the_same_threads(
    point_at: Callable[[Path], Path],
    tmp_path: Path,
    layout: Layout,
    checkpoints: list[tuple[Any, ...]],
    writes: list[tuple[Any, ...]],
) -> None:
    path = point_at(
        write_store(tmp_path / f"{next(numbered)}.db", conversations=None, layout=layout, now=NOW)
    )
    rows = {row[:3]: row for row in checkpoints}.values()
    insert(path, CHECKPOINT, rows)
    insert(path, write_row(layout), [(*row[:3], n, row[3]) for n, row in enumerate(writes)])

    by_rows, by_keys, by_threads = measured(), indexed(), weighed()

    assert counted(by_rows) == counted(by_keys) == counted(by_threads)
    assert activity(by_rows) == activity(by_keys)
    assert sizes(by_rows) == sizes(by_threads)
    prints = [[t.stored.fingerprint for t in threads] for threads in (by_keys, by_threads)]
    assert prints[0] == prints[1]
    expected: dict[str, int] = {}
    for thread_id, _, _, payload, metadata in rows:
        size = len_of(payload) + len_of(metadata)
        expected[thread_id] = expected.get(thread_id, 0) + size
    for thread_id, _, _, payload, _ in writes:
        expected[thread_id] = expected.get(thread_id, 0) + len_of(payload)
    assert sizes(by_rows) == expected
    own = activity(by_threads)
    for thread_id, at in activity(by_rows).items():
        later = own[thread_id]
        assert later == at or (at is not None and later is not None and later > at)
