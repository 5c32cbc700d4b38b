"""What the vendor's own algorithm said of the vendor's own file, and what comes of it here."""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Callable
from contextlib import closing
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from history_retention import services
from history_retention.facts import Ending, KeepReason, NamedThread, Plan, State, Tally
from history_retention.models import Thread
from history_retention.policy import Bounds
from history_retention.services import Trigger
from history_retention.stores import open_store

from .store_files import FIXTURES, NOW, rows_of, threads_in

EXPECTED: dict[str, Any] = json.loads(
    (FIXTURES / "gaunt_sloth" / "history.expected.json").read_text()
)
THREADS: dict[str, str] = EXPECTED["threads"]
STATS = EXPECTED["stats"]
SHARED = THREADS["shared-by-two"]
UNREADABLE = THREADS["orphan-unreadable"]
STATE_TABLES = ("checkpoints", "checkpoint_writes")

BOUNDS = {
    "older_than_30": Bounds(older_than_days=30),
    "keep_last_3": Bounds(keep_last=3),
    "older_than_30_keep_last_8": Bounds(older_than_days=30, keep_last=8),
    "older_than_0": Bounds(everything=True),
    "keep_last_0": Bounds(everything=True),
}
SHARED_IS_KEPT = {"older_than_30", "keep_last_3", "older_than_30_keep_last_8"}


@pytest.fixture
def history(fixture_store: Callable[[str], Path]) -> Path:
    return fixture_store("gaunt_sloth/history.db")


def expected_rows(name: str) -> dict[str, list[dict[str, Any]]]:
    """The vendor's answer by thread, without the rows that a deliberate difference drops."""
    rows: dict[str, list[dict[str, Any]]] = {}
    for row in EXPECTED["prunable"][name]["rows"]:
        if row["threadId"] != SHARED or name not in SHARED_IS_KEPT:
            rows.setdefault(row["threadId"], []).append(row)
    return rows


def newest_stated_times(history: Path) -> dict[str, datetime]:
    """The latest ``ts`` in each thread's checkpoints, read with a real decoder."""
    newest: dict[str, datetime] = {}
    for thread_id, *_, payload, _ in rows_of(history)["checkpoints"]:
        if thread_id != UNREADABLE:
            at = datetime.fromisoformat(json.loads(payload)["ts"])
            newest[thread_id] = max(at, newest.get(thread_id, at))
    return newest


def plan(name: str) -> Plan:
    return services.plan_prune("history", BOUNDS[name], now=NOW)


def test_the_fixture_is_from_the_instant_that_the_tests_call_now() -> None:
    assert datetime.fromisoformat(EXPECTED["now"]) == NOW


def test_the_readout_has_the_vendors_totals(history: Path) -> None:
    readout = services.measure("history", now=NOW)

    assert readout.layout == "gaunt_sloth"
    assert readout.checkpoint_bytes == STATS["checkpointBytes"] == 1_067_136
    assert readout.checkpoint_count == STATS["checkpointCount"] == 189
    assert readout.write_count == STATS["writeCount"] == 277
    assert readout.thread_count == STATS["threadCount"] == 16
    assert readout.unresumable == Tally(
        thread_count=STATS["unresumableThreadCount"], byte_count=STATS["unresumableBytes"]
    )
    assert readout.space.file_bytes == history.stat().st_size


def test_the_readout_counts_what_reclaim_would_take(history: Path) -> None:
    readout = services.measure("history", now=NOW)

    assert readout.reclaimable == Tally(
        thread_count=len(EXPECTED["reclaimable"]),
        byte_count=sum(EXPECTED["per_thread"][i]["bytes"] for i in EXPECTED["reclaimable"]),
    )


def test_the_readout_counts_the_conversations_and_the_bytes_of_their_transcripts(
    history: Path,
) -> None:
    rows = rows_of(history)
    texts = [text for turn in rows["sessions"] for text in turn[5:7] if text]

    readout = services.measure("history", now=NOW)

    assert readout.conversation_count == len(rows["conversations"])
    assert readout.turn_count == len(rows["sessions"]) == 23
    assert readout.transcript_bytes == sum(len(text.encode()) for text in texts) > 0


def test_the_largest_threads_are_the_vendors_each_once_and_with_its_writes(history: Path) -> None:
    readout = services.measure("history", now=NOW, top=4)

    vendor = dict.fromkeys(row["threadId"] for row in STATS["largestThreads"])
    assert [thread.thread_id for thread in readout.largest_threads] == list(vendor)
    assert [thread.byte_count for thread in readout.largest_threads] == [
        EXPECTED["per_thread"][thread_id]["bytes"] for thread_id in vendor
    ]
    shared = next(t for t in readout.largest_threads if t.thread_id == SHARED)
    assert shared.conversation_ids == (5, 6)


def test_every_thread_has_the_vendors_counts_and_bytes(history: Path) -> None:
    services.measure("history", now=NOW)

    saved = {
        thread.thread_id: {
            "threadCount": 1,
            "checkpointCount": thread.checkpoint_count,
            "writeCount": thread.write_count,
            "bytes": thread.byte_count,
        }
        for thread in Thread.objects.all()
    }
    assert saved == EXPECTED["per_thread"]


def test_the_states_are_those_of_the_vendor(history: Path) -> None:
    services.measure("history", now=NOW)

    by_state: dict[str, set[str]] = {}
    for thread in Thread.objects.all():
        by_state.setdefault(thread.state, set()).add(thread.thread_id)
    unnamed = set(EXPECTED["unaddressable_all"])
    assert by_state[State.UNRESUMABLE] == set(EXPECTED["reclaimable"])
    assert by_state[State.UNKNOWN_AGE] == {UNREADABLE}
    assert by_state[State.GRACE] == unnamed - set(EXPECTED["reclaimable"]) - {UNREADABLE}
    assert by_state[State.RESUMABLE] == set(EXPECTED["per_thread"]) - unnamed


def test_reclaim_plans_the_vendors_threads_and_keeps_the_unreadable_one(history: Path) -> None:
    planned = services.plan_reclaim("history", now=NOW)

    assert [t.thread_id for t in planned.reclaimable] == sorted(EXPECTED["reclaimable"])
    assert [(k.thread_id, k.reason) for k in planned.kept] == [(UNREADABLE, KeepReason.UNKNOWN_AGE)]
    assert planned.prunable == ()


@pytest.mark.parametrize("name", BOUNDS)
def test_a_plan_agrees_with_the_vendors(history: Path, name: str) -> None:
    expected = expected_rows(name)
    stated = newest_stated_times(history)

    planned = plan(name)

    assert [thread.thread_id for thread in planned.prunable] == list(expected)
    for thread in planned.prunable:
        rows = expected[thread.thread_id]
        assert set(thread.conversation_ids) == {row["conversationId"] for row in rows}
        assert thread.command == rows[0]["command"]
        newest = max(datetime.fromisoformat(rows[0]["lastActivityTs"]), stated[thread.thread_id])
        assert newest <= thread.last_activity <= newest + timedelta(milliseconds=10)
        assert thread.turn_count == sum(row["turnCount"] for row in rows)
        assert thread.checkpoint_count == rows[0]["checkpointCount"]
        assert thread.byte_count == rows[0]["bytes"]
        assert thread.recently_active == rows[0]["recentlyActive"]
    assert [t.thread_id for t in planned.reclaimable] == sorted(EXPECTED["reclaimable"])


@pytest.mark.parametrize("name", BOUNDS)
def test_a_plan_keeps_the_shared_thread_for_its_younger_conversation(
    history: Path, name: str
) -> None:
    planned = plan(name)

    kept = {thread.thread_id: thread.reason for thread in planned.kept}
    expected = {UNREADABLE: KeepReason.UNKNOWN_AGE}
    if name in SHARED_IS_KEPT:
        expected[SHARED] = KeepReason.NAMED_BY_KEPT_CONVERSATION
    assert kept == expected


@pytest.mark.parametrize("name", BOUNDS)
def test_a_prune_takes_exactly_its_threads_and_no_other_byte(history: Path, name: str) -> None:
    before = rows_of(history)
    size = history.stat().st_size
    gone = {*expected_rows(name), *EXPECTED["reclaimable"]}

    outcome = services.execute(plan(name), trigger=Trigger.CODE)

    after = rows_of(history)
    assert outcome.ending is Ending.DONE
    assert outcome.skipped == ()
    assert outcome.removed.thread_count == len(gone)
    assert outcome.removed.byte_count == sum(EXPECTED["per_thread"][i]["bytes"] for i in gone)
    for table in STATE_TABLES:
        assert after[table] == [row for row in before[table] if row[0] not in gone]
        assert len(after[table]) < len(before[table])
        before.pop(table)
    assert {table: after[table] for table in before} == before
    assert outcome.vacuum.ran
    assert outcome.space_after.file_bytes == history.stat().st_size < size


def test_a_prune_leaves_the_transcripts_and_their_search_index_as_they_are(history: Path) -> None:
    shadow = ("data", "idx", "content", "docsize", "config")
    tables = ("conversations", "sessions", *(f"sessions_fts_{name}" for name in shadow))
    before = {table: rows_of(history)[table] for table in tables}

    services.execute(plan("older_than_0"), trigger=Trigger.CODE)

    assert {table: rows_of(history)[table] for table in tables} == before
    with closing(sqlite3.connect(history)) as connection:
        connection.execute("INSERT INTO sessions_fts(sessions_fts) VALUES ('integrity-check')")
        word = connection.execute("SELECT prompt FROM sessions").fetchone()[0].split()[0]
        found = connection.execute(
            "SELECT COUNT(*) FROM sessions_fts WHERE sessions_fts MATCH ?", [f'"{word}"']
        ).fetchone()[0]
        assert found > 0
        assert connection.execute("PRAGMA integrity_check").fetchone()[0] == "ok"


@pytest.mark.parametrize("name", BOUNDS)
def test_a_second_prune_finds_nothing(history: Path, name: str) -> None:
    services.execute(plan(name), trigger=Trigger.CODE)
    rows = rows_of(history)

    again = plan(name)
    outcome = services.execute(again, trigger=Trigger.CODE)

    assert again.threads == ()
    assert outcome.removed.thread_count == 0
    assert rows_of(history) == rows


def test_a_reclaim_takes_the_unresumable_threads_and_nothing_a_conversation_names(
    history: Path,
) -> None:
    services.execute(services.plan_reclaim("history", now=NOW), trigger=Trigger.CODE)

    assert threads_in(history) == set(EXPECTED["per_thread"]) - set(EXPECTED["reclaimable"])
    assert services.plan_reclaim("history", now=NOW).threads == ()


def test_reading_by_rows_and_by_keys_see_the_same_threads(history: Path) -> None:
    def seen(threads: list[NamedThread]) -> list[tuple[object, ...]]:
        return [
            (
                t.stored.thread_id,
                t.stored.checkpoint_count,
                t.stored.write_count,
                t.last_activity,
                t.conversations,
            )
            for t in threads
        ]

    with open_store("history") as store:
        by_rows = list(store.measured_threads(services.silent))
        by_keys = list(store.indexed_threads(services.silent))

    assert seen(by_rows) == seen(by_keys)
    assert len(by_rows) == 16
