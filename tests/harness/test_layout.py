"""DeepSeek Harness's stores under the core: whole sessions, live ones kept, all versions."""

from __future__ import annotations

import shutil
import sqlite3
from collections.abc import Callable
from contextlib import closing
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from history_retention import services
from history_retention.exceptions import LayoutUnknown
from history_retention.facts import KeepReason, Plan, SkipReason
from history_retention.models import Hold, Sweep
from history_retention.outcomes import Outcome
from history_retention.policy import Bounds
from history_retention.services import Trigger
from history_retention.stores import open_store

from ..commands import run
from ..store_files import FIXTURES, rows_of

NOW = datetime(2026, 12, 1, tzinfo=UTC)
VERSIONS = ("v4", "v14", "v15", "v17")


@pytest.fixture
def store(tmp_path: Path, point_at: Callable[[Path], Path]) -> Callable[[str], Path]:
    """Copy one of the vendor's own stores, as "v14-several", with its logs."""

    def copied(name: str) -> Path:
        path = tmp_path / "sessions.sqlite"
        for suffix in ("", "-wal", "-shm"):
            source = FIXTURES / "harness" / f"{name}.before.sqlite{suffix}"
            if source.exists():
                shutil.copyfile(source, f"{path}{suffix}")
        return point_at(path)

    return copied


def change(path: Path, sql: str, *values: object) -> None:
    with closing(sqlite3.connect(path)) as connection, connection:
        connection.execute(sql, values)


def planned(bounds: Bounds | None = None) -> Plan:
    return services.plan_prune("history", bounds or Bounds(everything=True), now=NOW)


def executed(plan: Plan) -> Outcome:
    return services.execute(plan, trigger=Trigger.CODE, clock=lambda: NOW, vacuum=False)


def newest(events: list[tuple[Any, ...]], session_id: str, kind: str) -> int:
    """Return the number of a session's newest event of a kind, or -1."""
    return max((row[1] for row in events if row[0] == session_id and row[2] == kind), default=-1)


def sessions_in(path: Path) -> set[str]:
    return {row[0] for row in rows_of(path)["sessions"]}


def is_whole(path: Path) -> bool:
    with closing(sqlite3.connect(path)) as connection:
        return (
            connection.execute("PRAGMA integrity_check").fetchall() == [("ok",)]
            and not connection.execute("PRAGMA foreign_key_check").fetchall()
        )


@pytest.mark.parametrize("version", VERSIONS)
def test_a_readout_counts_every_session_of_every_version(
    store: Callable[[str], Path], version: str
) -> None:
    path = store(f"{version}-several")
    before = rows_of(path)

    document = run("history_readout", "--no-save", "--top=9", "--format=json").document

    events = before["events"]
    assert document["layout"] == "harness"
    assert document["thread_count"] == document["conversation_count"] == 5
    assert document["checkpoint_count"] == len(events)
    assert document["checkpoint_bytes"] == sum(
        len(value if isinstance(value, bytes) else str(value).encode())
        for row in events
        for value in row[4:7]
        if value is not None
    )
    assert {each["project"] for each in document["largest_threads"]} == {"/home/proj", ""}
    assert rows_of(path) == before


@pytest.mark.parametrize("version", VERSIONS)
def test_a_prune_takes_whole_sessions_and_leaves_those_with_an_open_turn(
    store: Callable[[str], Path], version: str
) -> None:
    path = store(f"{version}-several")
    before = rows_of(path)
    events = before["events"]
    open_turns = {
        each
        for each in sessions_in(path)
        if newest(events, each, "turn/start") > newest(events, each, "turn/end")
    }

    plan = planned()
    outcome = executed(plan)

    assert {each.thread_id for each in plan.kept if each.reason is KeepReason.LIVE} == open_turns
    assert sessions_in(path) == open_turns
    assert rows_of(path)["events"] == [row for row in before["events"] if row[0] in open_turns]
    assert outcome.removed.thread_count == 5 - len(open_turns)
    assert outcome.removed.checkpoint_count == len(before["events"]) - len(rows_of(path)["events"])
    assert rows_of(path)["sqlite_master"] == before["sqlite_master"]
    assert rows_of(path).get("persistence_state") == before.get("persistence_state")
    assert is_whole(path)


def test_activity_is_the_newest_event_but_for_the_marker_of_an_opening(
    store: Callable[[str], Path],
) -> None:
    path = store("v14-forked")
    newest = max(
        time for key, _, kind, time, *_ in rows_of(path)["events"]
        if key == "fork-at-5" and kind != "session/end-seed"
    )  # fmt: skip
    change(path, "UPDATE events SET time = ? WHERE type = 'session/end-seed'", 1_796_000_000_000)

    plan = planned()

    (fork,) = (each for each in plan.prunable if each.thread_id == "fork-at-5")
    assert fork.last_activity == datetime(1970, 1, 1, tzinfo=UTC) + timedelta(milliseconds=newest)


def test_a_parent_goes_and_its_forks_stay_whole(store: Callable[[str], Path]) -> None:
    path = store("v14-forked")
    before = rows_of(path)

    executed(planned(Bounds(thread_ids=frozenset({"parent"}))))

    assert sessions_in(path) == {"fork-head", "fork-at-5"}
    assert rows_of(path)["events"] == [row for row in before["events"] if row[0] != "parent"]


def test_age_keep_last_and_project_bound_it(store: Callable[[str], Path]) -> None:
    path = store("v14-several")
    change(path, "UPDATE sessions SET cwd = '/elsewhere' WHERE id = 'one-turn'")

    everywhere = planned(Bounds(older_than_days=1))
    there = planned(Bounds(older_than_days=1, project="/elsewhere"))
    newest = planned(Bounds(keep_last=3))

    assert [each.thread_id for each in there.prunable] == ["one-turn"]
    assert len(everywhere.prunable) > 1
    assert len(newest.prunable) + len(newest.kept) <= 2


def test_a_session_that_moved_on_since_the_plan_is_left_alone(
    store: Callable[[str], Path],
) -> None:
    path = store("v14-forked")
    plan = planned()
    change(path, "UPDATE sessions SET revision = revision + 1 WHERE id = 'parent'")
    change(path, "UPDATE sessions SET incarnation = 'another' WHERE id = 'fork-head'")

    outcome = executed(plan)

    assert {each.thread_id: each.reason for each in outcome.skipped} == {
        "parent": SkipReason.ACTIVE,
        "fork-head": SkipReason.ACTIVE,
    }
    assert sessions_in(path) == {"parent", "fork-head"}


def test_in_version_4_a_new_event_tells_that_a_session_moved_on(
    store: Callable[[str], Path],
) -> None:
    path = store("v4-forked")
    plan = planned()
    change(path, "INSERT INTO events VALUES ('parent', 99, 'todo/write', 1, '{}', NULL, NULL)")

    outcome = executed(plan)

    assert [each.thread_id for each in outcome.skipped] == ["parent"]


def test_a_held_session_stays(store: Callable[[str], Path]) -> None:
    path = store("v14-forked")
    Hold.objects.create(store="history", thread_id="parent", reason="a court asks")

    executed(planned())

    assert sessions_in(path) == {"parent"}


def test_every_session_has_a_transaction_of_its_own(store: Callable[[str], Path]) -> None:
    path = store("v14-forked")
    with closing(sqlite3.connect(path)) as connection, connection:
        connection.execute("PRAGMA journal_mode = WAL")
    noted: list[int] = []

    def stop() -> bool:
        noted.append(len(sessions_in(path)))
        return False

    services.execute(planned(), trigger=Trigger.CODE, stop=stop, clock=lambda: NOW, vacuum=False)

    assert [3, 2, 1] == [count for count in dict.fromkeys(noted) if count]


def test_events_without_a_header_are_reclaimed_since_no_one_can_load_them(
    store: Callable[[str], Path],
) -> None:
    path = store("v14-forked")
    change(path, "DELETE FROM sessions WHERE id = 'parent'")  # a driver without foreign keys

    plan = services.plan_reclaim("history", now=NOW)
    executed(plan)

    assert [each.thread_id for each in plan.reclaimable] == ["parent"]
    assert {row[0] for row in rows_of(path)["events"]} == {"fork-head", "fork-at-5"}
    assert is_whole(path)


def test_a_log_left_by_a_crash_is_read(store: Callable[[str], Path]) -> None:
    store("v14-crash-wal")

    document = run("history_readout", "--no-save", "--format=json").document

    assert document["thread_count"] > 0
    assert document["checkpoint_count"] > 0


@pytest.mark.parametrize(
    "name",
    ["v14-wrong-version-newer", "v4-wrong-version-newer", "v14-foreign-application-id"],
)
def test_another_version_is_refused_untouched(store: Callable[[str], Path], name: str) -> None:
    path = store(name)
    before = path.read_bytes()

    ran = run("history_prune", "--all", "--no-input")

    assert ran.status == 1
    assert "nothing was listed and nothing was touched" in ran.err.lower()
    assert (path.read_bytes(), Sweep.objects.count()) == (before, 0)


def test_a_fork_of_the_vendors_schema_is_refused(store: Callable[[str], Path]) -> None:
    path = store("v14-several")
    change(path, "ALTER TABLE sessions ADD COLUMN profile_id TEXT")

    with (
        pytest.raises(LayoutUnknown, match=r"sessions does not have the columns of .* version 14"),
        open_store("history"),
    ):
        pass

    assert len(sessions_in(path)) == 5


def test_a_trigger_that_keeps_rows_undoes_the_removal(store: Callable[[str], Path]) -> None:
    path = store("v14-forked")
    plan = planned(Bounds(thread_ids=frozenset({"parent"})))
    change(
        path,
        "CREATE TRIGGER keeps BEFORE DELETE ON events WHEN OLD.seq = 3"
        " BEGIN SELECT RAISE(IGNORE); END",
    )
    before = rows_of(path)

    outcome = executed(plan)

    assert "Look for a trigger" in outcome.error
    assert rows_of(path) == before
