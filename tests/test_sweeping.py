"""What happens to a thread between its plan and its turn, and how a sweep ends."""

from __future__ import annotations

import sqlite3
from collections.abc import Callable, Sequence
from contextlib import closing
from datetime import timedelta
from functools import partial
from itertools import count
from pathlib import Path
from typing import Any

import pytest
from django.db import connections, transaction

from history_retention import services
from history_retention.boxes import Boxes, Pace, Throttle
from history_retention.exceptions import SweepRunning, UsageError
from history_retention.facts import Ending, KeepReason, SkipReason
from history_retention.locks import only_one
from history_retention.models import Hold, Sweep, Thread
from history_retention.outcomes import SkippedThread
from history_retention.policy import Bounds
from history_retention.services import Trigger
from history_retention.stores import open_store
from history_retention.sweeping import Swept, sweep

from .changes import (
    NAMES,
    Agent,
    Change,
    every_change,
    new_conversation,
    new_write,
    planned,
    require_that_only_the_other_goes,
)
from .store_files import (
    NOW,
    ConversationRow,
    ThreadRows,
    add_conversations,
    add_threads,
    rows_of,
    threads_in,
)

pytestmark = pytest.mark.django_db(databases=["default", "history"])

OLD = timedelta(days=40)
WriteStore = Callable[..., Path]


@pytest.fixture
def store(written_store: WriteStore) -> Path:
    """Two resumable threads, each idle for forty days, with three rows."""
    return written_store(
        [ThreadRows(thread_id=name, checkpoints=2) for name in NAMES],
        [ConversationRow(thread_id=name, turns=[OLD]) for name in NAMES],
    )


def run_sql(path: Path, sql: str) -> None:
    """Change the store from outside, as its agent or a person would."""
    with closing(sqlite3.connect(path)) as connection, connection:
        connection.executescript(sql)


def agent_of(path: Path) -> Agent:
    """Return somebody else at work on the file."""
    return Agent(
        run=partial(run_sql, path),
        add=partial(add_threads, path),
        rows_of=lambda thread_id: [*_rows_of_thread(path, thread_id)],
        tables=("checkpoints", "checkpoint_writes"),
        rewrite="INSERT OR REPLACE INTO checkpoint_writes"
        " SELECT * FROM checkpoint_writes WHERE thread_id = 'changed' LIMIT 1",
    )


@every_change
def test_a_thread_that_changed_since_the_plan_stays_and_the_other_goes(
    store: Path, change: Change, reason: SkipReason
) -> None:
    require_that_only_the_other_goes(agent_of(store), change, reason)


@pytest.mark.parametrize(
    ("change", "reason"),
    [(new_conversation, SkipReason.NAMED), (new_write, SkipReason.ACTIVE)],
    ids=lambda value: getattr(value, "__name__", str(value)),
)
def test_an_unresumable_thread_that_somebody_needs_again_is_not_reclaimed(
    written_store: WriteStore, change: Change, reason: SkipReason
) -> None:
    path = written_store([ThreadRows(thread_id="changed"), ThreadRows(thread_id="still")])
    plan = services.plan_reclaim("history", now=NOW)
    change(agent_of(path))

    outcome = services.execute(plan, trigger=Trigger.CODE)

    assert len(plan.reclaimable) == 2
    assert outcome.skipped == (SkippedThread(thread_id="changed", reason=reason),)
    assert threads_in(path) == {"changed"}


def test_a_hold_that_ended_protects_nothing(store: Path) -> None:
    Hold.objects.create(store="history", thread_id="still", reason="was", until=NOW)
    Hold.objects.create(store="another", thread_id="changed", reason="not here")

    plan = planned()

    assert {thread.thread_id for thread in plan.prunable} == {"changed", "still"}
    assert plan.kept == ()


def test_a_sweep_that_is_asked_to_stop_ends_after_the_batch_and_counts_what_is_gone(
    written_store: WriteStore, retention: Callable[..., None]
) -> None:
    path = written_store([ThreadRows(thread_id=f"t{number:03}") for number in range(100)])
    retention(BOX_SECONDS=0, GAP_SECONDS=0)
    asked = count()

    outcome = services.execute(
        services.plan_reclaim("history", now=NOW),
        trigger=Trigger.CODE,
        stop=lambda: next(asked) == 3,
    )

    assert (outcome.ending, outcome.removed.thread_count, outcome.error) == (
        Ending.INTERRUPTED,
        3,
        "",
    )
    assert threads_in(path) == {f"t{number:03}" for number in range(3, 100)}
    sweep = Sweep.objects.get()
    assert (sweep.ending, sweep.planned_threads, sweep.removed_threads) == ("interrupted", 100, 3)
    assert (sweep.removed_checkpoints, sweep.removed_writes) == (3, 3)


def test_a_throttle_allows_its_bytes_a_second_and_saves_none_up_while_idle() -> None:
    instants = iter([0.0, 0.0, 0.5, 10.0, 10.0])
    throttle = Throttle(1_000, clock=lambda: next(instants))

    waits = [throttle(byte_count) for byte_count in (500, 1_000, 2_000, 0)]

    assert waits == [0.5, 1.0, 2.0, 2.0]


def test_a_throttled_sweep_waits_for_its_bytes_and_stops_when_asked_meanwhile(
    written_store: WriteStore, retention: Callable[..., None]
) -> None:
    path = written_store([ThreadRows(thread_id=f"t{number}") for number in range(3)])
    retention(BOX_SECONDS=0, MAX_BYTES_PER_SECOND=1)

    outcome = services.execute(
        services.plan_reclaim("history", now=NOW),
        trigger=Trigger.CODE,
        stop=lambda: threads_in(path) != {"t0", "t1", "t2"},
    )

    assert (outcome.ending, outcome.removed.thread_count) == (Ending.INTERRUPTED, 1)
    assert threads_in(path) == {"t1", "t2"}


def test_a_long_rest_does_not_use_up_the_patience_with_which_a_lock_is_asked_for(
    store: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(connections["history"].settings_dict, "OPTIONS", {"timeout": 2})
    pace = Pace(box_seconds=0, gap_seconds=0, throttled=lambda _byte_count: 2.1)
    with open_store("history") as opened, closing(sqlite3.connect(store)) as agent:
        boxes = Boxes(opened, pace, services.never)
        boxes.rest(1)
        agent.execute("BEGIN IMMEDIATE")

        was_run = boxes.run(lambda _deadline: None)

    assert not was_run


def test_a_sweep_cut_short_by_an_exception_is_recorded_as_interrupted(
    store: Path, retention: Callable[..., None]
) -> None:
    retention(BOX_SECONDS=0, GAP_SECONDS=0)
    asked = count()

    def stop() -> bool:
        if next(asked) == 1:
            raise KeyboardInterrupt
        return False

    with pytest.raises(KeyboardInterrupt):
        services.execute(planned(), trigger=Trigger.CODE, stop=stop)

    sweep = Sweep.objects.get()
    assert (sweep.ending, sweep.removed_threads, sweep.error) == (
        "interrupted",
        1,
        "Stopped by force.",
    )
    assert threads_in(store) == {"still"}


def test_a_sweep_cut_short_by_a_fault_of_ours_is_recorded_as_failed_with_its_words(
    store: Path,
) -> None:
    def stop() -> bool:
        raise OverflowError("too large")

    with pytest.raises(OverflowError):
        services.execute(planned(), trigger=Trigger.CODE, stop=stop)

    sweep = Sweep.objects.get()
    assert (sweep.ending, sweep.error, sweep.finished_at is None) == ("failed", "too large", False)


def test_a_sweep_inside_a_transaction_is_refused_since_its_record_could_be_undone(
    store: Path,
) -> None:
    plan = planned()

    with transaction.atomic(), pytest.raises(UsageError, match=r"outside of atomic\(\)"):
        services.execute(plan, trigger=Trigger.CODE)
    with transaction.atomic(), pytest.raises(UsageError):
        services.vacuum("history", now=NOW, trigger=Trigger.CODE)

    assert threads_in(store) == {"changed", "still"}
    assert Sweep.objects.count() == 0


def test_a_reader_that_holds_up_a_commit_holds_up_nobody_else_and_the_sweep_goes_on(
    store: Path, point_at: Callable[[Path], Path]
) -> None:
    plan = planned()
    reader = sqlite3.connect(store, isolation_level=None)
    reader.execute("BEGIN")
    reader.execute("SELECT COUNT(*) FROM checkpoints").fetchone()
    asked = count()

    def stop() -> bool:
        if next(asked) == 2:
            # Twice the commit met the reader; between the tries another reader gets in.
            with closing(sqlite3.connect(store, timeout=0)) as other:
                assert other.execute("SELECT COUNT(*) FROM checkpoints").fetchone() == (4,)
            reader.execute("ROLLBACK")
        return False

    outcome = services.execute(plan, trigger=Trigger.CODE, stop=stop)
    reader.close()

    assert (outcome.ending, outcome.removed.thread_count) == (Ending.DONE, 2)
    assert threads_in(store) == set()


def test_the_record_keeps_all_that_was_asked_for(written_store: WriteStore) -> None:
    written_store([ThreadRows(thread_id="a", checkpoints=0), ThreadRows(thread_id="b")])

    plan = services.plan_reclaim(
        "history",
        now=NOW,
        grace=timedelta(hours=1),
        force=True,
        exclude=["b", "nobody"],
        orphan_writes=True,
    )
    services.execute(plan, trigger=Trigger.CODE)

    assert plan.unmatched_exclusions == ("nobody",)
    assert Sweep.objects.get().bounds == {
        "grace_hours": 1.0,
        "orphan_writes": True,
        "excluded": ["b", "nobody"],
    }


def test_a_limit_takes_those_longest_idle_and_is_recorded(store: Path) -> None:
    add_threads(store, [ThreadRows(thread_id="oldest", age=timedelta(days=90))])
    add_conversations(store, [ConversationRow(thread_id="oldest", age=timedelta(days=90))])

    plan = services.plan_prune("history", Bounds(everything=True), now=NOW, limit=1, reclaim=False)
    outcome = services.execute(plan, trigger=Trigger.CODE)

    assert outcome.removed_ids == ("oldest",)
    assert Sweep.objects.get().bounds == {"all": True, "limit": 1}


def test_a_refused_second_table_leaves_the_thread_whole_and_the_sweep_failed(store: Path) -> None:
    run_sql(
        store,
        "CREATE TRIGGER refuse BEFORE DELETE ON checkpoints"
        " BEGIN SELECT RAISE(ABORT, 'not this one'); END",
    )
    before = rows_of(store)

    outcome = services.execute(planned(), trigger=Trigger.CODE)

    assert rows_of(store) == before
    assert (outcome.ending, outcome.removed.thread_count) == (Ending.FAILED, 0)
    assert "not this one" in outcome.error
    assert Sweep.objects.get().error == outcome.error


def test_a_refusal_in_the_middle_is_partial_and_the_rest_stays_whole(
    store: Path, retention: Callable[..., None]
) -> None:
    retention(BOX_SECONDS=0)
    run_sql(
        store,
        "CREATE TRIGGER refuse BEFORE DELETE ON checkpoints WHEN OLD.thread_id = 'still'"
        " BEGIN SELECT RAISE(ABORT, 'not this one'); END",
    )

    outcome = services.execute(planned(), trigger=Trigger.CODE)

    assert (outcome.ending, outcome.removed.thread_count) == (Ending.PARTIAL, 1)
    assert (len(_rows_of_thread(store, "changed")), len(_rows_of_thread(store, "still"))) == (0, 3)


def test_the_record_says_who_what_and_how_much(store: Path, admin_user: object) -> None:
    services.measure("history", now=NOW)
    plan = planned()

    services.execute(plan, trigger=Trigger.ADMIN, actor=admin_user)  # type: ignore[arg-type]

    sweep = Sweep.objects.get()
    assert (sweep.kind, sweep.trigger, sweep.actor, sweep.ending) == (
        "prune",
        "admin",
        admin_user,
        "done",
    )
    assert sweep.bounds == {"older_than_days": 30, "grace_hours": 24.0}
    assert (sweep.planned_threads, sweep.removed_threads, sweep.skipped_threads) == (2, 2, 0)
    assert sweep.removed_bytes == plan.planned.byte_count == sweep.planned_bytes
    assert sweep.vacuumed
    assert Thread.objects.count() == 0


def test_a_record_left_running_by_a_killed_process_is_closed_by_the_next(
    store: Path, ended_process: str
) -> None:
    killed, elsewhere = (
        Sweep.objects.create(
            kind="prune",
            store=alias,
            trigger="command",
            as_of=NOW,
            started_at=NOW,
            process=ended_process,
        )
        for alias in ("history", "another")
    )

    services.execute(planned(), trigger=Trigger.CODE)

    killed.refresh_from_db()
    elsewhere.refresh_from_db()
    assert (killed.ending, elsewhere.ending) == ("interrupted", "running")
    assert "ended before the sweep did" in killed.error


def test_a_second_sweep_of_the_same_store_says_so_and_leaves(store: Path) -> None:
    plan = planned()

    with (
        only_one("sweep", "history", str(store)),
        pytest.raises(SweepRunning, match="another sweep of this store is running"),
    ):
        services.execute(plan, trigger=Trigger.CODE)

    assert threads_in(store) == {"changed", "still"}
    assert Sweep.objects.count() == 0


def test_a_sweep_takes_the_write_lock_once_a_box_and_a_thread_in_one_transaction(
    written_store: WriteStore, retention: Callable[..., None], statements: list[str]
) -> None:
    written_store([ThreadRows(thread_id=f"t{number}") for number in range(4)])
    retention(BOX_SECONDS=0, GAP_SECONDS=0)
    plan = services.plan_reclaim("history", now=NOW)
    statements.clear()

    services.execute(plan, trigger=Trigger.CODE, vacuum=False)

    verbs = [each.split()[0] for each in statements if each.split()[0] in _WRITING]
    assert verbs == ["BEGIN", "DELETE", "DELETE", "COMMIT"] * 4


def test_a_box_asks_the_ledger_of_the_threads_in_its_reach_right_before_it_takes_the_lock(
    written_store: WriteStore, retention: Callable[..., None], statements: list[str]
) -> None:
    written_store([ThreadRows(thread_id=f"t{number:04}") for number in range(2_000)])
    retention(BOX_SECONDS=10, GAP_SECONDS=0)
    plan = services.plan_reclaim("history", now=NOW)
    statements.clear()
    asked: list[int] = []
    swept = Swept()

    def protections(thread_ids: Sequence[str]) -> dict[str, KeepReason]:
        asked.append(len(thread_ids))
        statements.append("ASKED")
        return {}

    with open_store("history") as opened:
        sweep(
            opened,
            plan.threads,
            swept,
            naming_mark=plan.naming_mark,
            pace=Pace(box_seconds=10, gap_seconds=0),
            protections=protections,
            stop=services.never,
            committed=lambda: None,
        )

    assert (swept.ending, swept.removed.thread_count) == (Ending.DONE, 2_000)
    assert asked == [200, 400, 800, 600]
    steps = [each.split()[0] for each in statements]
    assert [each for each in steps if each in {"ASKED", "BEGIN", "COMMIT"}] == (
        ["ASKED", "BEGIN", "COMMIT"] * 4
    )


def test_deletes_overwrite_no_freed_page_unless_asked(
    store: Path, retention: Callable[..., None], statements: list[str]
) -> None:
    planned()
    retention(SECURE_DELETE="on")
    planned()

    told = [each for each in statements if "secure_delete" in each]
    assert told == ["PRAGMA secure_delete = FAST", "PRAGMA secure_delete = ON"]


_WRITING = {"BEGIN", "DELETE", "INSERT", "UPDATE", "COMMIT", "ROLLBACK"}


@pytest.fixture
def statements(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Every statement that reaches a store's own connection, in order."""
    from history_retention.stores.sqlite import SQLiteFile

    told: list[str] = []
    plain_init = SQLiteFile.__init__

    def overheard(execute: Callable[..., Any], sql: str, *args: Any) -> Any:
        told.append(sql)
        return execute(sql, *args)

    def init(self: SQLiteFile, *args: Any) -> None:
        plain_init(self, *args)
        self._connection.execute_wrappers.append(overheard)

    monkeypatch.setattr(SQLiteFile, "__init__", init)
    return told


def _rows_of_thread(path: Path, thread_id: str) -> list[tuple[object, ...]]:
    rows = rows_of(path)
    return [
        row for table in ("checkpoints", "checkpoint_writes") for row in rows[table]
        if row[0] == thread_id
    ]  # fmt: skip
