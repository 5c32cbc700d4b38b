"""LangGraph's own files: what goes, and that its own saver reads what stays."""

from __future__ import annotations

import sqlite3
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from django.db.backends.base.base import BaseDatabaseWrapper
from django.db.backends.signals import connection_created

from history_retention import services
from history_retention.exceptions import NoNamingTable
from history_retention.facts import Ending, KeepReason, Naming, Plan, State, Tally
from history_retention.models import Thread
from history_retention.policy import Bounds
from history_retention.services import Trigger

from .store_files import NOW, copy_fixture, rows_of, threads_in
from .vendor_reader import delete_threads, read_back

FixtureStore = Callable[[str], Path]

OLDER_THAN_365 = {"chat-400d"}
OLDER_THAN_100 = OLDER_THAN_365 | {"subgraph-pending", "subgraph-resumed"}
OLDER_THAN_90 = OLDER_THAN_100 | {"interrupt-pending", "subgraph-stateful"}
OLDER_THAN_30 = OLDER_THAN_90 | {"errored", "forked", "interrupt-resumed", "large-state"}
BY_DAYS = [
    (30, OLDER_THAN_30),
    (90, OLDER_THAN_90),
    (100, OLDER_THAN_100),
    (365, OLDER_THAN_365),
]
UNNAMED = {"100%_done", "active-now", "chat-400d", "errored", "exit-error", "update-only"}


def older_than(days: int) -> Plan:
    return services.plan_prune("history", Bounds(older_than_days=days), now=NOW)


def prunable(plan: Plan) -> set[str]:
    return {thread.thread_id for thread in plan.prunable}


def reclaimable(plan: Plan) -> set[str]:
    return {thread.thread_id for thread in plan.reclaimable}


@pytest.mark.parametrize(("days", "expected"), BY_DAYS)
def test_a_prune_by_age_plans_the_threads_whose_newest_checkpoint_is_older(
    fixture_store: FixtureStore, days: int, expected: set[str]
) -> None:
    fixture_store("langgraph/lg-sqlite.db")

    plan = older_than(days)

    assert prunable(plan) == expected
    assert (plan.reclaimable, plan.kept) == ((), ())
    assert all(thread.conversation_ids == () for thread in plan.prunable)


def test_the_ages_take_nine_five_three_and_one_thread() -> None:
    assert [len(expected) for _, expected in BY_DAYS] == [9, 5, 3, 1]


def test_the_readout_counts_rows_and_bytes_as_the_tables_do(fixture_store: FixtureStore) -> None:
    path = fixture_store("langgraph/lg-sqlite.db")
    rows = rows_of(path)
    sizes = Counter({row[0]: 0 for row in rows["checkpoints"]})
    for table, payload in (("checkpoints", slice(5, 7)), ("writes", slice(8, 9))):
        for row in rows[table]:
            sizes[row[0]] += sum(len(value) for value in row[payload] if value is not None)

    readout = services.measure("history", now=NOW)

    assert readout.layout == "langgraph_sqlite"
    assert readout.naming is Naming.ABSENT
    assert (readout.thread_count, readout.checkpoint_count, readout.write_count) == (30, 208, 380)
    assert readout.checkpoint_bytes == sizes.total()
    assert {thread.thread_id: thread.byte_count for thread in Thread.objects.all()} == sizes
    assert {thread.state for thread in Thread.objects.all()} == {State.RESUMABLE}
    assert (readout.unresumable, readout.reclaimable) == (Tally(), Tally())
    assert "nothing here names threads" in readout.notes[0]


@pytest.mark.parametrize(("days", "expected"), BY_DAYS)
def test_what_a_prune_keeps_is_read_back_by_the_vendor_as_before(
    fixture_store: FixtureStore, days: int, expected: set[str]
) -> None:
    path = fixture_store("langgraph/lg-sqlite.db")
    before = read_back(path, threads_in(path))

    services.execute(older_than(days), trigger=Trigger.CODE)

    after = read_back(path, before)
    assert all(after[thread_id] == (None, []) for thread_id in expected)
    kept = before.keys() - expected
    assert len(kept) == 30 - len(expected)
    assert {i: after[i] for i in kept} == {i: before[i] for i in kept}
    assert all(after[i][0] is not None and after[i][1] for i in kept)


@pytest.mark.parametrize(("days", "expected"), BY_DAYS)
def test_the_rows_left_are_those_that_the_vendors_removal_leaves(
    fixture_store: FixtureStore, tmp_path: Path, days: int, expected: set[str]
) -> None:
    (tmp_path / "vendor").mkdir()
    theirs = copy_fixture("langgraph/lg-sqlite.db", tmp_path / "vendor")
    delete_threads(theirs, expected)
    ours = fixture_store("langgraph/lg-sqlite.db")

    outcome = services.execute(older_than(days), trigger=Trigger.CODE)

    assert outcome.removed.thread_count == len(expected)
    assert rows_of(ours) == rows_of(theirs)


def test_every_thread_goes_whatever_its_id_when_everything_is_asked_for(
    fixture_store: FixtureStore,
) -> None:
    path = fixture_store("langgraph/lg-sqlite.db")
    before = rows_of(path)
    size = path.stat().st_size

    plan = services.plan_prune("history", Bounds(everything=True), now=NOW)
    outcome = services.execute(plan, trigger=Trigger.CODE)

    after = rows_of(path)
    assert outcome.removed.thread_count == 30
    assert outcome.removed.checkpoint_count == 208
    assert outcome.removed.write_count == 380
    assert (after.pop("checkpoints"), after.pop("writes")) == ([], [])
    assert after == {table: before[table] for table in after}
    assert path.stat().st_size < size // 10


def test_reclaim_takes_five_of_the_six_unnamed_threads(fixture_store: FixtureStore) -> None:
    path = fixture_store("langgraph/lg-sqlite-with-conversations.db")
    before = rows_of(path)

    plan = services.plan_reclaim("history", now=NOW)
    services.execute(plan, trigger=Trigger.CODE)

    after = rows_of(path)
    gone = UNNAMED - {"active-now"}
    assert reclaimable(plan) == gone
    assert plan.kept == ()
    for table in ("checkpoints", "writes"):
        assert after[table] == [row for row in before[table] if row[0] not in gone]
    assert {t: after[t] for t in ("conversations", "sessions", "store")} == {
        t: before[t] for t in ("conversations", "sessions", "store")
    }


def test_the_unnamed_threads_are_unresumable_but_for_the_one_in_grace(
    fixture_store: FixtureStore,
) -> None:
    fixture_store("langgraph/lg-sqlite-with-conversations.db")

    readout = services.measure("history", now=NOW)

    states = dict(Thread.objects.values_list("thread_id", "state"))
    assert {i for i, s in states.items() if s == State.UNRESUMABLE} == UNNAMED - {"active-now"}
    assert {i for i, s in states.items() if s == State.GRACE} == {"active-now"}
    assert (readout.unresumable.thread_count, readout.reclaimable.thread_count) == (6, 5)
    assert (readout.conversation_count, readout.turn_count) == (26, 26)


def test_a_prune_of_named_threads_takes_them_and_the_unresumable_along(
    fixture_store: FixtureStore,
) -> None:
    path = fixture_store("langgraph/lg-sqlite-with-conversations.db")
    conversations = rows_of(path)["conversations"]

    plan = older_than(30)
    services.execute(plan, trigger=Trigger.CODE)

    assert reclaimable(plan) == UNNAMED - {"active-now"}
    assert prunable(plan) <= OLDER_THAN_30 - UNNAMED
    assert threads_in(path) & (prunable(plan) | reclaimable(plan)) == set()
    assert rows_of(path)["conversations"] == conversations


def test_a_file_of_an_old_saver_is_pruned_and_read_back(fixture_store: FixtureStore) -> None:
    path = fixture_store("langgraph/lg-sqlite-v1.0.4.db")
    before = read_back(path, threads_in(path))
    newest_first = sorted(
        before, key=lambda i: before[i][1][0].config["configurable"]["checkpoint_id"], reverse=True
    )
    assert len(newest_first) == 4

    plan = services.plan_prune("history", Bounds(keep_last=2), now=NOW + timedelta(days=1))
    services.execute(plan, trigger=Trigger.CODE)

    assert [thread.thread_id for thread in plan.prunable] == newest_first[2:]
    assert threads_in(path) == set(newest_first[:2])
    kept = newest_first[:2]
    assert read_back(path, kept) == {thread_id: before[thread_id] for thread_id in kept}


def test_a_file_of_an_old_saver_has_its_own_times(fixture_store: FixtureStore) -> None:
    path = fixture_store("langgraph/lg-sqlite-v1.0.4.db")
    day = datetime(2026, 11, 30, 20, 57, 57, tzinfo=UTC) + timedelta(days=1)

    at_the_second = services.plan_prune("history", Bounds(older_than_days=1), now=day)
    later = services.plan_prune(
        "history", Bounds(older_than_days=1), now=day + timedelta(seconds=1)
    )

    assert (prunable(at_the_second), prunable(later)) == (set(), threads_in(path))


def test_case_orphan_writes_need_no_naming_table(fixture_store: FixtureStore) -> None:
    path = fixture_store("langgraph/cases/c01_orphan_writes.db")
    before = rows_of(path)
    ghost = [row for row in before["writes"] if row[0] == "ghost"]

    with pytest.raises(NoNamingTable, match="--orphan-writes"):
        services.plan_reclaim("history", now=NOW)
    services.measure("history", now=NOW)
    plan = services.plan_reclaim("history", now=NOW, orphan_writes=True)
    outcome = services.execute(plan, trigger=Trigger.CODE)

    measured = Thread.objects.filter(thread_id="alive").get()
    assert (measured.checkpoint_count, measured.write_count) == (1, 1)
    assert [(t.thread_id, t.write_count, t.checkpoint_count) for t in plan.reclaimable] == [
        ("ghost", 3, 0)
    ]
    assert plan.reclaimable[0].byte_count == sum(len(row[8]) for row in ghost)
    assert outcome.removed.write_count == 3
    after = rows_of(path)
    assert after["checkpoints"] == before["checkpoints"]
    assert after["writes"] == [row for row in before["writes"] if row[0] == "alive"]


def test_case_the_readout_counts_the_bytes_of_a_thread_of_writes_alone(
    fixture_store: FixtureStore,
) -> None:
    path = fixture_store("langgraph/cases/c01_orphan_writes.db")
    size = sum(len(row[8]) for row in rows_of(path)["writes"] if row[0] == "ghost")

    services.measure("history", now=NOW)

    ghost = Thread.objects.get(thread_id="ghost")
    assert (ghost.checkpoint_count, ghost.write_count, ghost.byte_count) == (0, 3, size)


def test_case_a_write_whose_checkpoint_is_not_there_yet_is_left(
    fixture_store: FixtureStore,
) -> None:
    path = fixture_store("langgraph/cases/c02_write_before_checkpoint.db")
    before = rows_of(path)

    plan = services.plan_reclaim("history", now=NOW, orphan_writes=True)
    services.execute(plan, trigger=Trigger.CODE)

    assert plan.threads == ()
    assert rows_of(path) == before


def test_case_the_newest_checkpoint_over_all_namespaces_is_a_threads_age(
    fixture_store: FixtureStore,
) -> None:
    path = fixture_store("langgraph/cases/c03_last_activity.db")
    others = threads_in(path) - {"dead"}

    services.execute(older_than(30), trigger=Trigger.CODE)

    assert threads_in(path) == others
    assert others


def test_case_a_stored_time_decides_where_ids_tell_none(fixture_store: FixtureStore) -> None:
    path = fixture_store("langgraph/cases/c06_ts_formats.db")

    plan = older_than(30)
    services.execute(plan, trigger=Trigger.CODE)

    assert prunable(plan) == {"z", "plus", "no-fraction", "naive"}
    assert {(kept.thread_id, kept.reason) for kept in plan.kept} == {
        ("junk", KeepReason.UNKNOWN_AGE),
        ("epoch-int", KeepReason.UNKNOWN_AGE),
    }
    assert threads_in(path) == {"minus11", "plus14", "junk", "epoch-int"}


def test_case_reclaim_takes_unnamed_and_cleared_threads_alone(fixture_store: FixtureStore) -> None:
    path = fixture_store("langgraph/cases/c07_conversations.db")

    plan = services.plan_reclaim("history", now=NOW)
    services.execute(plan, trigger=Trigger.CODE)

    assert reclaimable(plan) == {"unnamed-old", "cleared"}
    assert threads_in(path) == {"unnamed-new", "named"}


def test_case_a_conversation_whose_thread_is_gone_is_no_error(fixture_store: FixtureStore) -> None:
    path = fixture_store("langgraph/cases/c07_conversations.db")

    plan = services.plan_prune("history", Bounds(everything=True), now=NOW)
    services.execute(plan, trigger=Trigger.CODE)

    assert prunable(plan) == {"named"}
    assert threads_in(path) == {"unnamed-new"}
    assert len(rows_of(path)["conversations"]) == 3


def test_case_reclaim_refuses_where_nothing_names_threads(fixture_store: FixtureStore) -> None:
    path = fixture_store("langgraph/cases/c08_no_conversations_table.db")
    before = path.read_bytes()

    with pytest.raises(NoNamingTable) as refused:
        services.plan_reclaim("history", now=NOW)

    assert str(refused.value).startswith("history: nothing here tells which threads")
    assert refused.value.exit_status == 1
    assert path.read_bytes() == before


@pytest.mark.parametrize("bounds", [Bounds(older_than_days=30), Bounds(keep_last=1)])
def test_case_a_shared_thread_stays_for_its_kept_conversation(
    fixture_store: FixtureStore, bounds: Bounds
) -> None:
    path = fixture_store("langgraph/cases/c14_shared_thread.db")

    plan = services.plan_prune("history", bounds, now=NOW)
    services.execute(plan, trigger=Trigger.CODE)

    assert prunable(plan) == {"u"}
    assert [(kept.thread_id, kept.reason) for kept in plan.kept] == [
        ("t", KeepReason.NAMED_BY_KEPT_CONVERSATION)
    ]
    assert threads_in(path) == {"t"}


@contextmanager
def few_parameters(limit: int = 999) -> Iterator[list[int]]:
    """Give every connection that is opened meanwhile the limit of an old build of SQLite."""
    lowered = []

    def lower(connection: BaseDatabaseWrapper, **_kwargs: Any) -> None:
        raw: sqlite3.Connection = connection.connection
        raw.setlimit(sqlite3.SQLITE_LIMIT_VARIABLE_NUMBER, limit)
        lowered.append(raw.getlimit(sqlite3.SQLITE_LIMIT_VARIABLE_NUMBER))

    connection_created.connect(lower)
    try:
        yield lowered
    finally:
        connection_created.disconnect(lower)


def test_case_forty_thousand_threads_go_within_999_parameters(
    fixture_store: FixtureStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = fixture_store("langgraph/cases/c13_many_threads.db.gz")
    monkeypatch.setattr("time.sleep", lambda _seconds: None)  # there is no agent to wait for
    commits = []

    with few_parameters() as lowered:
        plan = services.plan_prune("history", Bounds(everything=True), now=NOW)
        outcome = services.execute(
            plan,
            trigger=Trigger.CODE,
            progress=lambda verb, done, total: commits.append((verb, done, total)),
        )

    assert lowered == [999, 999]
    assert len(plan.prunable) == 40_000
    assert (outcome.ending, outcome.removed.thread_count) == (Ending.DONE, 40_000)
    with closing(sqlite3.connect(path)) as connection:
        assert connection.execute("SELECT COUNT(*) FROM checkpoints").fetchone() == (0,)
    assert len(commits) > 2
    assert commits[-1] == ("removing", 40_000, 40_000)
    assert [done for _, done, _ in commits] == sorted(done for _, done, _ in commits)


def test_the_lowered_limit_refuses_a_thousand_parameters(fixture_store: FixtureStore) -> None:
    path = fixture_store("langgraph/lg-sqlite.db")

    with closing(sqlite3.connect(path)) as connection:
        connection.setlimit(sqlite3.SQLITE_LIMIT_VARIABLE_NUMBER, 999)
        with pytest.raises(sqlite3.OperationalError, match="too many SQL variables"):
            connection.execute(f"SELECT 1 IN ({', '.join('?' * 1_000)})", range(1_000))
