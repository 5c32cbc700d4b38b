"""What a disk budget takes: in the order of its tiers, down to the high water, and no further."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from history_retention.contrib.openclaw.budget import Tier, Victim, plan_budget
from history_retention.contrib.openclaw.budgeting import Budgeted, budget_of, keep_budget
from history_retention.contrib.openclaw.cleanups import rules_of
from history_retention.services import Trigger

from ..commands import run
from .agents import (
    Told,
    archived,
    empty_agent,
    is_whole,
    keys_in,
    opened,
    transcripts,
    write_entries,
)

NOW = datetime(2026, 12, 1, tzinfo=UTC)


@pytest.fixture
def empty(age: str, tmp_path: Path, point_at: Callable[[Path], Path]) -> Path:
    return point_at(empty_agent(age, tmp_path))


def kept(max_bytes: int, high_water: int) -> Budgeted:
    rules = rules_of(
        "history",
        lambda rules: replace(rules, max_disk_bytes=max_bytes, high_water_bytes=high_water),
    )
    plan = budget_of("history", rules, now=NOW)
    return keep_budget("history", plan, now=NOW, trigger=Trigger.CODE, clock=lambda: NOW)


@given(
    total=st.integers(0, 1000),
    most=st.none() | st.integers(0, 1000),
    high=st.none() | st.integers(0, 1200),
    sizes=st.lists(st.integers(0, 300), max_size=8),
)
def test_it_takes_the_first_candidates_that_are_enough_and_not_one_more(
    total: int, most: int | None, high: int | None, sizes: list[int]
) -> None:
    candidates = [
        Victim(tier=Tier.ARCHIVE, name=str(number), byte_count=size)
        for number, size in enumerate(sizes)
    ]

    plan = plan_budget(total, candidates, max_bytes=most, high_water_bytes=high)

    taken = len(plan.victims)
    assert plan.victims == tuple(candidates[:taken])
    if most is None or total <= most:
        assert taken == 0
        return
    assert plan.high_water_bytes <= most
    excess = total - plan.high_water_bytes
    if taken:
        assert sum(sizes[: taken - 1]) < excess
    assert sum(sizes[:taken]) >= excess or taken == len(sizes)


@pytest.mark.parametrize("age", ["v8"])
def test_age_a_lets_the_longest_idle_entries_go_with_their_transcripts_archived(
    empty: Path,
) -> None:
    write_entries(empty, [Told(key=f"k:{n}", session_id=f"s{n}") for n in range(4)], events=20)
    with opened(empty) as connection:
        for number in range(4):
            connection.execute(
                "UPDATE session_entries SET updated_at = ?, entry_json ="
                " json_set(entry_json, '$.updatedAt', ?) WHERE session_key = ?",
                [1_796_000_000_000 - number, 1_796_000_000_000 - number, f"k:{number}"],
            )
    before = transcripts(empty)
    one = sum(map(len, before["s0"])) + 60

    done = kept(max_bytes=3 * one, high_water=2 * one)

    assert done.deleted is not None
    assert keys_in(empty) == {"k:0", "k:1"}
    assert set(archived(empty)) == {("s2", "deleted"), ("s3", "deleted")}
    assert archived(empty)["s3", "deleted"] == before["s3"]
    assert is_whole(empty)


@pytest.mark.parametrize("age", ["v23"])
def test_age_b_lets_archives_go_first_then_sessions_that_no_entry_needs_then_capped_entries(
    empty: Path,
) -> None:
    write_entries(
        empty,
        [
            Told(key="k:old", session_id="gone"),
            Told(key="k:now", session_id="now", windows=("history",)),
            Told(key="k:capped", session_id="c", fields={"archiveReason": "active-session-cap"}),
            Told(key="k:manual", session_id="m", fields={"archiveReason": "manual"}),
        ],
    )
    with opened(empty) as connection:
        connection.execute(
            "UPDATE session_nodes SET archived_at = 5 WHERE session_key IN ('k:capped','k:manual')"
        )
        connection.execute("UPDATE session_nodes SET entry_valid = 1")
    run("openclaw_sessions", "delete", "k:old", "--no-input")
    before = transcripts(empty)
    assert set(archived(empty)) == {("gone", "deleted")}

    done = kept(max_bytes=1, high_water=0)

    assert [name.partition(".")[0] for name in done.archives] == ["gone"]
    assert [archive.session_id for archive in done.sessions] == ["history"]
    assert done.deleted is not None
    assert [each.key for each in done.deleted.deletions] == ["k:capped"]
    assert keys_in(empty) == {"k:now", "k:manual"}
    assert set(transcripts(empty)) == {"now", "m"}
    assert archived(empty) == {
        ("history", "deleted"): before["history"],
        ("c", "deleted"): before["c"],
    }
    assert is_whole(empty)


def test_without_the_flag_a_budget_is_told_and_takes_nothing(empty: Path) -> None:
    write_entries(empty, [Told(key="k:1", session_id="one")], events=30)

    told = run(
        "openclaw_sessions", "cleanup", "--max-disk-bytes=1kb", "--dry-run", "--format=json"
    ).document["disk_budget"]
    default = run("openclaw_sessions", "cleanup", "--no-input", "--format=json").document

    assert told["over_budget"] is True
    assert told["max_bytes"] == 1024
    assert default["disk_budget"]["over_budget"] is False
    assert "freed" not in default
    assert keys_in(empty) == {"k:1"}
