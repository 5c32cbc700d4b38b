"""Every step that the vendor's own program took on its own file, taken by ours."""

from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from history_retention.contrib.openclaw import operations
from history_retention.contrib.openclaw.operations import Deleted
from history_retention.services import Trigger

from .agents import answers, archived, is_whole, told_tables, transcripts

AT = datetime(2026, 11, 30, 21, tzinfo=UTC)
SCRATCH = "agent:main:scratch-1"
CRON = "agent:main:cron:job-1:run:abc"


def delete(*keys: str, keeps_transcripts: bool = False) -> Deleted:
    plan = operations.plan_delete("history", keys, now=AT)
    return operations.delete(
        plan, trigger=Trigger.CODE, keeps_transcripts=keeps_transcripts, clock=lambda: AT
    )


def steps(age: str) -> dict[str, Any]:
    """Return the vendor's answers by the beginning of what was done."""
    return {step["step"]: step for step in answers(f"{age}-families")["steps"]}


def key_of(step: str) -> str:
    return step.split(" ")[1]


def test_every_delete_leaves_what_the_vendor_left_and_archives_what_it_archived(
    age: str, agent: Path
) -> None:
    before = transcripts(agent)
    told = [step for step in steps(age).values() if step["step"].startswith("delete agent:main:")]
    told = told[:5]
    assert [len(step["result"]["archivedTranscripts"]) for step in told] == [2, 1, 2, 3, 1]

    for step in told:
        done = delete(key_of(step["step"]))

        (deletion,) = done.deletions
        names = [Path(each["archivedPath"]).name for each in step["result"]["archivedTranscripts"]]
        assert [each.session_id for each in deletion.archived] == [
            name.partition(".jsonl.")[0] for name in names
        ]
        assert told_tables(agent, age).items() <= step["after"].items()
        assert is_whole(agent)
    removed = {session_id for session_id, _ in archived(agent)}
    assert archived(agent) == {(each, "deleted"): before[each] for each in removed}
    assert len(removed) == 9


def test_deleting_a_key_that_is_not_there_answers_that_nothing_was_deleted(
    age: str, agent: Path
) -> None:
    done = delete("agent:main:no-such-key")

    assert done.deletions == ()
    assert done.outcome.removed.thread_count == 0


def test_a_reset_gives_what_the_vendors_reset_gave(age: str, agent: Path) -> None:
    (step,) = (step for name, step in steps(age).items() if name.startswith(f"reset {SCRATCH}"))
    wanted = step["result"]["nextEntry"]

    done = operations.reset(
        "history",
        SCRATCH,
        trigger=Trigger.CODE,
        changes=wanted if age == "v8" else None,
        clock=lambda: datetime.fromtimestamp(wanted["updatedAt"] / 1000, UTC),
    )

    assert done.session_id == wanted["sessionId"]
    assert [each.reason for each in done.archived] == ["reset"] * (age == "v8")
    told = told_tables(agent, age)
    for name, rows in step["after"].items():
        if name not in ("archives", "files"):
            assert _of(told[name], "scratch-1", "7777") == _of(rows, "scratch-1", "7777")
    assert is_whole(agent)


def _of(rows: Any, *words: str) -> Any:
    """Return those rows that are of the session that was reset."""
    if isinstance(rows, dict):
        return {name: count for name, count in rows.items() if name.startswith(words[1])}
    return [row for row in rows if any(word in row for word in words)]


def test_an_entry_deleted_without_its_transcript_leaves_it_where_it_is(
    age: str, agent: Path
) -> None:
    done = delete(CRON, keeps_transcripts=True)

    (deletion,) = done.deletions
    assert deletion.archived == ()
    (step,) = (step for name, step in steps(age).items() if "without archive" in name)
    told = told_tables(agent, age)
    for name, rows in step["after"].items():
        if name not in ("archives", "files"):
            assert _of(told[name], "cron", "8888") == _of(rows, "cron", "8888")
    assert is_whole(agent)


def test_a_reset_whose_next_entry_keeps_the_old_session_archives_nothing(
    age: str, agent: Path
) -> None:
    old = "77777777-7777-4777-8777-777777777777"
    new = "77777777-7777-4777-8777-0000000000aa"
    changes = {"sessionId": new, "updatedAt": 9, "usageFamilySessionIds": [old, new]}
    before = transcripts(agent)

    done = operations.reset(
        "history", SCRATCH, trigger=Trigger.CODE, changes=changes, clock=lambda: AT
    )

    assert (done.archived, dict(done.removed)) == ((), {})
    assert transcripts(agent)[old][:5] == before[old]
    assert archived(agent) == {}
    assert is_whole(agent)


@pytest.mark.parametrize("age", ["v23"])
def test_a_delete_after_a_reset_archives_its_mark_too(agent: Path) -> None:
    operations.reset("history", SCRATCH, trigger=Trigger.CODE, clock=lambda: AT)

    (deletion,) = delete(SCRATCH).deletions

    assert [archive.event_count for archive in deletion.archived] == [6]
    assert is_whole(agent)


@pytest.mark.parametrize("age", ["v23"])
def test_a_file_whose_checks_call_octet_length_is_vacuumed(agent: Path) -> None:
    done = delete("agent:main:main", "agent:main:dashboard:alpha")

    assert (done.outcome.vacuum.ran, done.outcome.error) == (True, "")
    assert done.outcome.space_after.file_bytes < done.outcome.space_before.file_bytes
    assert is_whole(agent)
