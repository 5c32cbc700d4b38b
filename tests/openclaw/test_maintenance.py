"""The vendor's own maintenance of its own file of every kind of key, decided by ours."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path

import pytest

from history_retention.contrib.openclaw.cleanups import (
    CleanedUp,
    clean_up,
    decisions_of,
    rules_of,
)
from history_retention.contrib.openclaw.maintenance import Action, Decision
from history_retention.services import Trigger

from .agents import answers, archived, copy_agent, is_whole, opened, transcripts

AT = datetime(2026, 11, 30, 20, 54, tzinfo=UTC)
ANSWERS = answers("v23-maintenance")


@pytest.fixture
def agent(tmp_path: Path, point_at: Callable[[Path], Path]) -> Path:
    return point_at(copy_agent("v23", tmp_path, "maintenance"))


def decided(max_entries: int, *, enforces: bool = True) -> list[Decision]:
    rules = rules_of(
        "history", lambda rules: replace(rules, max_entries=max_entries, enforces=enforces)
    )
    return decisions_of("history", rules, now=AT)


def done(decisions: list[Decision]) -> CleanedUp:
    return clean_up("history", decisions, now=AT, trigger=Trigger.CODE, clock=lambda: AT)


def vendors_actions() -> dict[str, str]:
    """Return the action of each session id from the table that the vendor printed."""
    rows = re.findall(
        r"│ (\S+) +│ agent\S+ +│[^\n]*id:(\S+) +│\n│ +│ +│ +│ +│ (\S+) +│",
        ANSWERS["dry_run_text"],
    )
    return {head + tail: action for action, head, tail in rows}


def counted(decisions: list[Decision]) -> dict[str, int]:
    """Count decisions in the vendor's words."""
    actions = Counter(each.action for each in decisions)
    return {
        "modelRunPruned": actions[Action.PRUNE_MODEL_RUN],
        "archived": actions[Action.ARCHIVE_AGE] + actions[Action.ARCHIVE_DASHBOARD],
        "capArchived": actions[Action.ARCHIVE_CAP],
        "pruned": actions[Action.PRUNE_STALE],
        "capped": actions[Action.CAP_OVERFLOW] + actions[Action.ARCHIVE_CAP],
    }


def nodes(path: Path) -> dict[str, tuple[str, int, bool, str | None]]:
    with opened(path) as connection:
        return {
            key: (session_id, valid, archived_at is not None, reason)
            for key, session_id, valid, archived_at, reason in connection.execute(
                "SELECT session_key, current_session_id, entry_valid, archived_at,"
                " json_extract(entry_json, '$.archiveReason') FROM session_nodes"
            )
        }


def vendors_nodes(name: str) -> dict[str, tuple[str, int, bool, str | None]]:
    return {
        node["key"]: (
            node["sid"], node["valid"], node["archived_at"] is not None, node.get("archiveReason"),
        )
        for node in ANSWERS[name]["nodes"]
    }  # fmt: skip


def summary(name: str) -> dict[str, int]:
    return {key: ANSWERS[name][key] for key in counted([])}


def test_each_of_the_keys_gets_the_vendors_decision(agent: Path) -> None:
    decisions = decided(12)

    told = vendors_actions()
    assert len(told) == 21
    assert {each.entry.current_id: each.action.value for each in decisions} == told
    assert counted(decisions) == summary("dry_run")
    assert all(each.reason for each in decisions if each.action is Action.KEEP)


def test_a_cleanup_leaves_what_the_vendors_left_and_archives_what_went(agent: Path) -> None:
    before = transcripts(agent)

    cleaned = done(decided(12))

    assert nodes(agent) == vendors_nodes("after_enforce")
    assert counts(cleaned) == (2, 5)
    went = set(before) - set(transcripts(agent))
    assert {name: archived(agent)[name, "deleted"] for name in went} == {
        name: before[name] for name in went
    }
    assert len(went) == 5
    assert is_whole(agent)


def counts(cleaned: CleanedUp) -> tuple[int, int]:
    assert cleaned.deleted is not None
    return len(cleaned.archived), cleaned.deleted.outcome.removed.thread_count


def test_a_cap_takes_what_the_vendors_took(agent: Path) -> None:
    done(decided(12))

    decisions = decided(5)
    cleaned = done(decisions)

    assert counted(decisions) == summary("then_enforce_maxEntries5")
    assert counts(cleaned) == (3, 1)
    assert nodes(agent) == vendors_nodes("after_cap")
    assert is_whole(agent)


def test_a_warning_changes_nothing(agent: Path) -> None:
    done(decided(12))
    before = agent.read_bytes()

    decisions = decided(5, enforces=False)
    cleaned = done(decisions)

    assert counted(decisions) == summary("then_warn_maxEntries5")
    assert Counter(each.reason for each in decisions)["warn_only"] == 4
    assert (cleaned.archived, cleaned.deleted) == ((), None)
    assert agent.read_bytes() == before


def test_an_entry_that_changed_since_the_decision_stays_as_it_is(agent: Path) -> None:
    decisions = decided(12)
    keys = ("agent:main:hook:abc", "agent:main:old-explicit")
    with opened(agent) as connection:
        for key in keys:
            connection.execute(
                "UPDATE session_nodes SET entry_json ="
                " json_set(entry_json, '$.label', 'mine'), entry_valid = 1 WHERE session_key = ?",
                [key],
            )

    cleaned = done(decisions)

    assert sorted(cleaned.changed) == sorted(keys)
    assert set(keys) < set(nodes(agent))
    assert nodes(agent)["agent:main:old-explicit"][2] is False
    assert counts(cleaned) == (1, 4)
