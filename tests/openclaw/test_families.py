"""The family of an entry, and what removing one takes, hands over and leaves: no database."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from history_retention.contrib.openclaw.ages import A, Age, B, age_of
from history_retention.contrib.openclaw.entries import Entry, entry_of
from history_retention.contrib.openclaw.families import UnreadableFamily, family
from history_retention.contrib.openclaw.plans import (
    References,
    StayReason,
    Window,
    removal,
)
from history_retention.contrib.openclaw.protection import Protection, protection

IDS = st.sampled_from("abcdefgh")
CHECKPOINTS = st.lists(
    st.builds(
        lambda own, before, after: {
            "sessionId": own,
            "preCompaction": {"sessionId": before},
            "postCompaction": {"sessionId": after},
        },
        IDS, IDS, IDS,
    ),
    max_size=2,
)  # fmt: skip


def entry(key: str, session_id: str = "a", **fields: Any) -> Entry:
    told = {"sessionId": session_id, "updatedAt": 5, **fields}
    return entry_of(key, session_id, json.dumps(told).encode(), 5)


def window(session_id: str, key: str, *, is_cold: bool = False) -> Window:
    return Window(
        session_id=session_id, key=key, updated_at=1, generation="0", is_cold=is_cold, snapshot=()
    )


def test_a_family_is_in_the_order_in_which_its_ids_are_first_seen() -> None:
    told = entry(
        "k",
        " one ",
        previousSessionId="two",
        usageFamilySessionIds=["three", "one", " ", "", None, 7],
        compactionCheckpoints=[
            {
                "sessionId": "one",
                "preCompaction": {"sessionId": "four"},
                "postCompaction": {"sessionId": "\ufefffive\u00a0"},
            }
        ],
    )

    assert family(told, B) == ("one", "two", "three", "four", "five")
    assert family(told, A) == ("one", "three", "four", "five")


@pytest.mark.parametrize(
    "fields",
    [
        {"compactionCheckpoints": [{"sessionId": "x", "preCompaction": {"sessionId": "y"}}]},
        {"compactionCheckpoints": [{"sessionId": "x", "postCompaction": {}, "preCompaction": 1}]},
        {"compactionCheckpoints": "none"},
        {"compactionCheckpoints": [None]},
        {"usageFamilySessionIds": "abc"},
    ],
)
def test_a_family_that_cannot_be_told_stops_the_operation(fields: Mapping[str, Any]) -> None:
    with pytest.raises(UnreadableFamily, match=r"k: .* nothing was removed"):
        family(entry("k", **fields), B)


@pytest.mark.parametrize("text", [b"{", b"[]", b"null", b'"text"', b"\xff", b"[" * 100_000])
def test_an_entry_that_is_no_object_protects_its_column_and_stops_nothing(text: bytes) -> None:
    broken = entry_of("k", "kept", text, 5)

    assert family(broken, A) == ()
    assert not broken.is_readable(A)
    references = References([broken], A)
    assert references.others("kept", "another") == "k"


@pytest.mark.parametrize(
    ("fields", "valid"),
    [
        ({}, True),
        ({"updatedAt": 6}, False),
        ({"updatedAt": "5"}, False),
        ({"updatedAt": True}, False),
        ({"sessionId": "b"}, False),
    ],
)
def test_age_b_reads_only_an_entry_that_agrees_with_its_columns(
    fields: Mapping[str, Any], valid: bool
) -> None:
    told = entry_of("k", "a", json.dumps({"sessionId": "a", "updatedAt": 5, **fields}).encode(), 5)

    assert told.is_readable(B) is valid
    assert told.is_readable(A) is True


@pytest.mark.parametrize("age", [A, B])
@given(data=st.data())
def test_nothing_that_a_survivor_needs_is_ever_removed(age: Age, data: st.DataObject) -> None:
    count = data.draw(st.integers(2, 5))
    entries = [
        entry(
            f"key-{number}",
            data.draw(IDS),
            usageFamilySessionIds=data.draw(st.lists(IDS, max_size=3)),
            compactionCheckpoints=data.draw(CHECKPOINTS),
        )
        for number in range(count)
    ]
    owners = {
        session_id: data.draw(st.sampled_from([each.key for each in entries]))
        for session_id in data.draw(st.sets(IDS))
    }
    windows = {
        session_id: window(session_id, key, is_cold=data.draw(st.booleans()))
        for session_id, key in owners.items()
    }
    victim, *others = entries
    references = References(entries, age)

    plan = removal(victim, age, references, windows)

    needed = {each for other in others for each in (other.current_id, *family(other, age))}
    assert not needed & set(plan.session_ids)
    assert not {each for each in plan.session_ids if windows[each].is_cold}
    own = {victim.current_id, *family(victim, age)}
    owned = {each for each, key in owners.items() if key == victim.key}
    looked_at = own | owned if age.has_nodes else own
    free = {each for each in looked_at - needed if each in windows and not windows[each].is_cold}
    assert set(plan.session_ids) == free
    if age.has_nodes:
        assert set(plan.handed_over) == owned & needed
        assert plan.leaves_shell == bool(owned - needed - free)
        assert all(heir != victim.key for heir in plan.handed_over.values())
    else:
        assert (plan.handed_over, plan.leaves_shell) == ({}, False)


def test_windows_of_a_pinned_entry_are_all_needed() -> None:
    pinned = entry_of("pinned", "a", b'{"sessionId":"a","updatedAt":5}', 5, pinned_at=1)
    victim = entry("victim", "v", usageFamilySessionIds=["old"])
    references = References([pinned, victim], B)

    plan = removal(
        victim, B, references, {"old": window("old", "pinned"), "v": window("v", "victim")}
    )

    assert plan.session_ids == ("v",)
    assert [(stay.session_id, stay.reason) for stay in plan.stays] == [("old", StayReason.NEEDED)]


def test_forgetting_a_key_frees_what_only_it_needed() -> None:
    references = References([entry("one", "a"), entry("two", "a")], A)
    copied = references.copy()

    copied.drop("two")

    assert (references.others("a", "one"), copied.others("a", "one")) == ("two", None)


@pytest.mark.parametrize(
    ("key", "fields", "by_b", "by_a"),
    [
        ("agent:main:main", {}, Protection.MAIN, None),
        ("global", {}, Protection.MAIN, None),
        ("agent:main:x", {"modelSelectionLocked": True}, Protection.LOCKED, Protection.LOCKED),
        ("agent:main:x", {"modelSelectionLocked": 1}, None, None),
        ("agent:main:x", {"status": "running"}, Protection.RUNNING, None),
        ("agent:main:x", {"delivery": {"kind": "external"}}, Protection.EXTERNAL, None),
        ("agent:main:x", {"chatType": "thread"}, Protection.CHANNEL, Protection.CHANNEL),
        ("agent:main:x", {"origin": {"chatType": "group"}}, Protection.CHANNEL, Protection.CHANNEL),
        ("agent:main:slack:channel:c1", {}, Protection.CHANNEL, Protection.CHANNEL),
        ("agent:main:discord:x:thread:9", {}, Protection.CHANNEL, Protection.CHANNEL),
        ("agent:main:telegram:dm:7:topic:3", {}, Protection.CHANNEL, Protection.CHANNEL),
        ("agent:main:telegram:direct:1", {}, Protection.DIRECT, None),
        ("agent:main:slack:acct:dm:u1", {}, Protection.DIRECT, None),
        ("agent:main:direct:u1", {}, Protection.DIRECT, None),
        ("agent:main:cron:x:thread:9", {}, None, None),
        ("agent:main:subagent:1", {"status": "running"}, Protection.RUNNING, None),
        ("agent:main:dashboard:x", {}, None, None),
    ],
)  # fmt: skip
def test_what_protects_an_entry_by_each_age(
    key: str, fields: Mapping[str, Any], by_b: Protection | None, by_a: Protection | None
) -> None:
    told = entry(key, **fields)

    assert (protection(told, B), protection(told, A)) == (by_b, by_a)


def test_a_pin_counts_unless_another_session_started_the_entry() -> None:
    def pinned(key: str = "agent:main:x", **fields: Any) -> Entry:
        text = json.dumps({"sessionId": "a", "updatedAt": 5, **fields}).encode()
        return entry_of(key, "a", text, 5, pinned_at=1)

    assert protection(pinned(), B) is Protection.PINNED
    assert protection(pinned(parentSessionKey="agent:main:main"), B) is Protection.PINNED
    assert protection(pinned(parentSessionKey="agent:main:other"), B) is None
    assert protection(pinned(spawnedBy="agent:main:main"), B) is None
    assert protection(pinned("agent:main:subagent:1"), B) is None


def test_a_file_with_the_tables_of_both_ages_is_of_neither() -> None:
    common = {
        "transcript_events": ["session_id", "seq", "event_json", "created_at"],
        "schema_meta": ["meta_key", "role"],
    }
    of_a = {
        "session_entries": ["session_key", "session_id", "entry_json", "updated_at"],
        "sessions": ["session_id", "session_key", "updated_at"],
    }
    of_b = {
        "session_nodes": [
            "session_key", "current_session_id", "entry_json", "updated_at", "pinned_at",
            "archived_at",
        ],
        "session_windows": ["session_id", "session_key", "updated_at"],
        "transcript_rewrite_watermarks": ["session_id", "generation"],
    }  # fmt: skip

    assert age_of({**common, **of_a}) is A
    assert age_of({**common, **of_b}) is B
    assert age_of({**common, **of_a, **of_b}) is None
    assert age_of(common) is None
