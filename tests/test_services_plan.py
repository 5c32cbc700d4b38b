from __future__ import annotations

import sqlite3
from collections.abc import Callable
from contextlib import closing
from datetime import timedelta
from pathlib import Path

import ormsgpack
import pytest
from django.core.exceptions import ImproperlyConfigured
from django.db import connection
from pytest_django import Settings

from history_retention import services
from history_retention.exceptions import (
    HistoryRetentionError,
    LedgerMissing,
    NoNamingTable,
    UsageError,
)
from history_retention.facts import KeepReason, SkipReason, Tally
from history_retention.models import Hold, Measurement, Sweep, Thread
from history_retention.policy import Bounds
from history_retention.services import Trigger
from history_retention.stores.gaunt_sloth import GauntSlothStore
from project.checkpoint_ids import checkpoint_id_at

from .conftest import WriteStore
from .store_files import NOW, ConversationRow, ThreadRows, rows_of, threads_in

DAY = timedelta(days=1)
HOUR = timedelta(hours=1)


def hold(thread_id: str, store: str = "history", **fields: object) -> None:
    Hold.objects.create(store=store, thread_id=thread_id, reason="a court asks", **fields)


def named(*ages: timedelta) -> tuple[list[ThreadRows], list[ConversationRow]]:
    """Threads a, b, c … of these ages, each named by one conversation of the same age."""
    names = "abcdefgh"[: len(ages)]
    return (
        [ThreadRows(thread_id=name, age=age) for name, age in zip(names, ages, strict=True)],
        [ConversationRow(thread_id=name, age=age) for name, age in zip(names, ages, strict=True)],
    )


def state_its_own_time(path: Path, thread_id: str, age: timedelta | None) -> None:
    """Let the newest checkpoint say of itself when it was stored."""
    stated = "later" if age is None else (NOW - age).isoformat()
    payload = ormsgpack.packb({"v": 4, "ts": stated, "channel_values": {}})
    with closing(sqlite3.connect(path)) as store, store:
        changed = store.execute(
            "UPDATE checkpoints SET checkpoint = ? WHERE thread_id = ? AND checkpoint_id ="
            " (SELECT MAX(checkpoint_id) FROM checkpoints WHERE thread_id = ?)",
            [payload, thread_id, thread_id],
        )
        assert changed.rowcount == 1


def test_a_thread_that_says_it_is_younger_than_its_id_is_believed(
    written_store: WriteStore,
) -> None:
    path = written_store(*named(31 * DAY, 31 * DAY, 31 * DAY))
    state_its_own_time(path, "a", 29 * DAY)
    state_its_own_time(path, "b", 90 * DAY)
    state_its_own_time(path, "c", None)

    plan = services.plan_prune("history", Bounds(older_than_days=30), now=NOW)

    assert [(t.thread_id, t.last_activity) for t in plan.prunable] == [
        ("c", NOW - 31 * DAY),
        ("b", NOW - 31 * DAY),
    ]


def test_an_unresumable_thread_that_says_it_is_in_grace_is_not_reclaimed(
    written_store: WriteStore,
) -> None:
    path = written_store([ThreadRows(thread_id=name, age=25 * HOUR) for name in "ab"])
    state_its_own_time(path, "a", 23 * HOUR)

    plan = services.plan_reclaim("history", now=NOW)

    assert [t.thread_id for t in plan.reclaimable] == ["b"]


def test_a_selected_thread_that_says_it_is_in_grace_is_live(written_store: WriteStore) -> None:
    path = written_store([ThreadRows(thread_id=name, age=25 * HOUR) for name in "ab"])
    state_its_own_time(path, "a", 23 * HOUR)
    bounds = Bounds(thread_ids=frozenset("ab"))

    plan = services.plan_prune("history", bounds, now=NOW, reclaim=False)

    assert [t.thread_id for t in plan.prunable] == ["b"]
    assert [(k.thread_id, k.reason) for k in plan.kept] == [("a", KeepReason.LIVE)]


def test_a_threads_own_time_may_come_from_any_namespace(written_store: WriteStore) -> None:
    path = written_store(
        [
            ThreadRows(thread_id="a", age=40 * DAY),
            ThreadRows(thread_id="a", age=31 * DAY, namespace="inner:1"),
        ],
        [ConversationRow(thread_id="a")],
    )
    state_its_own_time(path, "a", 29 * DAY)

    plan = services.plan_prune("history", Bounds(older_than_days=30), now=NOW)

    assert plan.prunable == ()


def test_prunable_threads_are_listed_newest_first_by_the_time_they_state(
    written_store: WriteStore,
) -> None:
    path = written_store(*named(50 * DAY, 45 * DAY, 40 * DAY))
    state_its_own_time(path, "a", 42 * DAY)

    plan = services.plan_prune("history", Bounds(older_than_days=30), now=NOW)

    assert [t.thread_id for t in plan.prunable] == ["c", "a", "b"]


@pytest.mark.parametrize(
    ("limit", "expected", "left"),
    [
        (0, [], 5),
        (1, ["c"], 4),
        (2, ["b", "c"], 3),
        (3, ["a", "b", "c"], 2),
        (4, ["a", "b", "c", "u"], 1),
        (5, ["a", "b", "c", "u", "v"], 0),
        (6, ["a", "b", "c", "u", "v"], 0),
    ],
)
def test_a_limit_takes_the_longest_idle_and_prunable_ones_first(
    written_store: WriteStore, limit: int, expected: list[str], left: int
) -> None:
    threads, conversations = named(40 * DAY, 50 * DAY, 60 * DAY)
    unnamed = [ThreadRows(thread_id="u", age=90 * DAY), ThreadRows(thread_id="v", age=80 * DAY)]
    written_store([*threads, *unnamed], conversations)

    plan = services.plan_prune("history", Bounds(older_than_days=30), now=NOW, limit=limit)

    assert [t.thread_id for t in plan.threads] == expected
    assert plan.left_by_limit == left


@pytest.mark.parametrize(
    ("gone", "expected", "left"), [("c", ["b"], 1), ("b", ["c"], 2), ("a", ["c"], 2)]
)
def test_threads_that_go_while_a_plan_is_made_are_left_by_no_limit_once_it_came_to_them(
    written_store: WriteStore, gone: str, expected: list[str], left: int
) -> None:
    """From the one longest idle: whoever stands before the last one taken was looked at."""
    path = written_store(*named(40 * DAY, 50 * DAY, 60 * DAY))

    def lose_one(verb: str, done: int, _total: int) -> None:
        if (verb, done) == ("choosing", 2):
            for table in ("checkpoints", "checkpoint_writes"):
                with closing(sqlite3.connect(path)) as agent, agent:
                    agent.execute(f"DELETE FROM {table} WHERE thread_id = ?", (gone,))

    plan = services.plan_prune(
        "history", Bounds(older_than_days=30), now=NOW, limit=1, progress=lose_one
    )

    assert [t.thread_id for t in plan.threads] == expected
    assert plan.left_by_limit == left


def test_a_limit_is_not_used_up_by_threads_that_turn_out_younger_than_their_ids(
    written_store: WriteStore,
) -> None:
    path = written_store(*named(60 * DAY, 50 * DAY, 40 * DAY))
    state_its_own_time(path, "a", 1 * DAY)

    plan = services.plan_prune("history", Bounds(older_than_days=30), now=NOW, limit=1)

    assert [t.thread_id for t in plan.threads] == ["b"]
    assert plan.left_by_limit == 1


def test_a_hold_keeps_a_thread_from_prune_and_from_reclaim(written_store: WriteStore) -> None:
    path = written_store(
        [ThreadRows(thread_id=n) for n in "abcd"], [ConversationRow(thread_id="a")]
    )
    hold("a")
    hold("b", until=NOW + DAY)
    hold("c", until=NOW)
    hold("d", store="another")

    plan = services.plan_prune("history", Bounds(everything=True), now=NOW)
    services.execute(plan, trigger=Trigger.CODE, clock=lambda: NOW)

    assert {(k.thread_id, k.reason) for k in plan.kept} == {
        ("a", KeepReason.HELD),
        ("b", KeepReason.HELD),
    }
    assert threads_in(path) == {"a", "b"}


class CautiousSloth(GauntSlothStore):
    """A layout whose vendor protects two threads."""

    layout = "cautious_sloth"

    def protections(self) -> dict[str, KeepReason]:
        return {"a": KeepReason.PROTECTED, "b": KeepReason.PROTECTED}


def test_what_a_vendor_protects_is_neither_pruned_nor_reclaimed_nor_counted(
    written_store: WriteStore, retention: Callable[..., None]
) -> None:
    path = written_store(
        [ThreadRows(thread_id=n) for n in "abcd"],
        [ConversationRow(thread_id=n) for n in "ac"],
    )
    layout = f"{__name__}.{CautiousSloth.__qualname__}"
    retention(STORES={"history": {"LAYOUT": layout}})

    readout = services.measure("history", now=NOW)
    plan = services.plan_prune("history", Bounds(everything=True), now=NOW)
    services.execute(plan, trigger=Trigger.CODE, clock=lambda: NOW)

    assert {k.thread_id: k.reason for k in plan.kept} == {
        "a": KeepReason.PROTECTED,
        "b": KeepReason.PROTECTED,
    }
    assert threads_in(path) == {"a", "b"}
    assert readout.reclaimable.thread_count == 1


@pytest.mark.parametrize("save", [True, False])
def test_the_readout_counts_no_held_thread_as_reclaimable(
    written_store: WriteStore, save: bool
) -> None:
    written_store([ThreadRows(thread_id=name, size=500) for name in "ab"])
    hold("a")

    readout = services.measure("history", now=NOW, save=save)

    assert readout.unresumable.thread_count == 2
    assert readout.reclaimable == Tally(
        thread_count=1, byte_count=readout.largest_threads[0].byte_count
    )


def test_a_shorter_grace_than_the_setting_needs_force(
    written_store: WriteStore, retention: Callable[..., None]
) -> None:
    written_store([ThreadRows(thread_id="a", age=5 * HOUR)])
    retention(GRACE=12 * HOUR)

    with pytest.raises(UsageError, match=r"5:00:00 is shorter than the 12:00:00.*--force"):
        services.plan_reclaim("history", now=NOW, grace=5 * HOUR)
    plan = services.plan_reclaim("history", now=NOW, grace=5 * HOUR, force=True)

    assert [t.thread_id for t in plan.reclaimable] == ["a"]
    assert plan.grace == 5 * HOUR


def test_a_longer_grace_takes_less(written_store: WriteStore) -> None:
    written_store([ThreadRows(thread_id="a", age=30 * HOUR), ThreadRows(thread_id="b")])

    plan = services.plan_reclaim("history", now=NOW, grace=48 * HOUR)

    assert [t.thread_id for t in plan.reclaimable] == ["b"]


def test_an_excluded_thread_is_not_reclaimed(written_store: WriteStore) -> None:
    written_store([ThreadRows(thread_id=name) for name in "abc"])

    plan = services.plan_reclaim("history", now=NOW, exclude=["a", "c", "zz"])

    assert [t.thread_id for t in plan.reclaimable] == ["b"]


def test_a_reclaim_without_names_says_what_to_configure(written_store: WriteStore) -> None:
    written_store([ThreadRows(thread_id="a")], None, layout="langgraph_sqlite")

    with pytest.raises(NoNamingTable, match=r"Set CONVERSATIONS of 'history'.*--orphan-writes"):
        services.plan_reclaim("history", now=NOW)


@pytest.mark.parametrize("days", [3, 39, 40, 41])
def test_a_plan_as_of_an_earlier_instant_is_that_instants_plan(
    written_store: WriteStore, days: int
) -> None:
    written_store(*named(70 * DAY, 75 * DAY))

    plan = services.plan_prune("history", Bounds(older_than_days=30), now=NOW - days * DAY)

    assert len(plan.prunable) == (days < 40) + (days < 45)
    assert plan.as_of == NOW - days * DAY


def test_recently_active_is_a_mark_and_no_reason_to_keep(written_store: WriteStore) -> None:
    written_store(*named(23 * HOUR, 24 * HOUR))

    plan = services.plan_prune("history", Bounds(everything=True), now=NOW)

    assert [(t.thread_id, t.recently_active) for t in plan.prunable] == [("a", True), ("b", False)]


def test_a_plan_shows_what_each_thread_holds(written_store: WriteStore) -> None:
    written_store(
        [
            ThreadRows(thread_id="a", checkpoints=3, writes=2, size=700, write_size=50),
            ThreadRows(thread_id="a", checkpoints=1, writes=0, size=400, namespace="inner:1"),
        ],
        [ConversationRow(thread_id="a", turns=[50 * DAY, 60 * DAY], command="code")],
    )

    (thread,) = services.plan_prune("history", Bounds(everything=True), now=NOW).prunable

    metadata = sum(len(f'{{"source": "loop", "step": {n}, "parents": {{}}}}') for n in (0, 1, 2, 0))
    assert (thread.checkpoint_count, thread.write_count, thread.turn_count) == (4, 2, 2)
    assert thread.byte_count == 3 * 700 + 400 + 2 * 50 + metadata
    assert (thread.command, thread.project, thread.conversation_ids) == ("code", "/srv/app", (1,))


@pytest.mark.parametrize("kind", ["plan", "readout"])
def test_planning_and_measuring_change_no_row_anywhere_but_the_ledger(
    written_store: WriteStore, kind: str
) -> None:
    path = written_store(*named(40 * DAY))
    before = rows_of(path)

    if kind == "plan":
        services.plan_prune("history", Bounds(everything=True), now=NOW)
        services.plan_reclaim("history", now=NOW)
    else:
        services.measure("history", now=NOW, save=False)

    assert rows_of(path) == before
    assert [model.objects.count() for model in (Sweep, Thread, Measurement)] == [0, 0, 0]


def without_ledger() -> None:
    """Drop our tables, as before the first ``migrate``; the test's transaction brings them back."""
    with connection.cursor() as cursor:
        for model in (Hold, Sweep, Thread, Measurement):
            cursor.execute(f"DROP TABLE {model._meta.db_table}")


WORK: dict[str, Callable[[], object]] = {
    "measure": lambda: services.measure("history", now=NOW),
    "plan_prune": lambda: services.plan_prune("history", Bounds(everything=True), now=NOW),
    "plan_reclaim": lambda: services.plan_reclaim("history", now=NOW),
    "vacuum": lambda: services.vacuum("history", now=NOW, trigger=Trigger.CODE),
}


@pytest.mark.parametrize("name", WORK)
def test_before_the_first_migrate_one_sentence_says_so(
    written_store: WriteStore, name: str
) -> None:
    path = written_store(*named(40 * DAY))
    before = path.read_bytes()
    without_ledger()

    with pytest.raises(LedgerMissing, match=r"manage.py migrate") as refused:
        WORK[name]()

    assert refused.value.exit_status == 1
    assert path.read_bytes() == before


def test_before_the_first_migrate_a_readout_that_is_not_kept_works(
    written_store: WriteStore,
) -> None:
    written_store(*named(40 * DAY))
    without_ledger()

    assert services.measure("history", now=NOW, save=False).thread_count == 1


def test_a_ledger_that_went_away_after_the_plan_removes_nothing(written_store: WriteStore) -> None:
    path = written_store(*named(40 * DAY))
    plan = services.plan_prune("history", Bounds(everything=True), now=NOW)
    before = path.read_bytes()
    without_ledger()

    with pytest.raises(LedgerMissing):
        services.execute(plan, trigger=Trigger.CODE)

    assert path.read_bytes() == before


@pytest.mark.parametrize("name", WORK)
def test_an_alias_that_is_no_store_is_refused_in_one_sentence(
    written_store: WriteStore, retention: Callable[..., None], name: str
) -> None:
    written_store()
    retention(STORES={"elsewhere": {}})

    with pytest.raises(HistoryRetentionError) as refused:
        WORK[name]()

    assert str(refused.value) == (
        "'history' is no store of HISTORY_RETENTION['STORES']; configured: elsewhere."
    )


def test_a_project_without_time_zones_is_told_what_to_set(
    written_store: WriteStore, settings: Settings
) -> None:
    written_store(*named(40 * DAY))
    settings.USE_TZ = False

    with pytest.raises(ImproperlyConfigured, match="USE_TZ = True"):
        services.measure("history", now=NOW)


def test_a_plan_of_another_file_takes_nothing_of_this_one(
    written_store: WriteStore, point_at: Callable[[Path], Path], tmp_path: Path
) -> None:
    written_store([ThreadRows(thread_id="a"), ThreadRows(thread_id="b")])
    plan = services.plan_reclaim("history", now=NOW)
    (tmp_path / "other").mkdir()
    other = tmp_path / "other" / "store.db"
    with (
        closing(sqlite3.connect(tmp_path / "store.db")) as here,
        closing(sqlite3.connect(other)) as there,
    ):
        here.backup(there)
        with there:
            there.execute("DELETE FROM checkpoints WHERE thread_id = 'b'")
            there.execute("DELETE FROM checkpoint_writes WHERE thread_id = 'b'")
            there.execute(
                "UPDATE checkpoints SET checkpoint_id = ?", [checkpoint_id_at(NOW - 2 * HOUR)]
            )
    point_at(other)

    outcome = services.execute(plan, trigger=Trigger.CODE)

    assert {(s.thread_id, s.reason) for s in outcome.skipped} == {
        ("a", SkipReason.ACTIVE),
        ("b", SkipReason.GONE),
    }
    assert threads_in(other) == {"a"}
