"""What ``openclaw_sessions`` takes, does and says."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest

from history_retention.models import Hold, Sweep

from ..commands import Ran, manage, run
from .agents import OPENCLAW, archived, copy_agent, is_whole, keys_in, opened, transcripts

MAIN = "agent:main:main"
ALPHA = "agent:main:dashboard:alpha"
BETA = "agent:main:dashboard:beta"
SHARED = "22222222-2222-4222-8222-00000000bbbb"


def sessions(*args: str) -> Ran:
    return run("openclaw_sessions", *args)


def test_the_list_tells_sizes_families_and_what_protects_each_key(agent: Path) -> None:
    document = sessions("list", "--format=json").document

    told = {each["key"]: each for each in document["sessions"]}
    lengths = {name: sum(map(len, lines)) for name, lines in transcripts(agent).items()}
    assert len(told) == 7
    assert document["unneeded"] == {"session_ids": [], "bytes": 0}
    for each in told.values():
        assert each["family_bytes"] == sum(lengths[name] for name in each["session_ids"])
    assert told[BETA]["session_ids"] == ["44444444-4444-4444-8444-444444444444", SHARED]
    assert told[BETA]["event_count"] == 5
    assert told[ALPHA]["event_count"] == 10
    assert {key: each["protection"] for key, each in told.items() if each["protection"]} == {
        MAIN: "main_session",
        "agent:main:telegram:direct:1001": "direct_conversation",
        "agent:main:telegram:group:-1001234567890:topic:42": "group_channel_or_thread",
    }


def test_a_delete_of_one_key_prints_one_object_with_these_names(agent: Path, age: str) -> None:
    ran = sessions("delete", MAIN, "--no-input", "--format=json")

    assert (ran.status, ran.err) == (0, "")
    document = ran.document
    assert list(document) == ["deleted", "key", "archived", "removed", "kept"]
    assert (document["deleted"], document["key"], document["kept"]) == (True, MAIN, [])
    assert [
        (each["session_id"], each["reason"], each["events"]) for each in document["archived"]
    ] == [
        ("11111111-1111-4111-8111-111111111111", "deleted", 5),
        ("11111111-1111-4111-8111-00000000aaaa", "deleted", 5),
    ]
    for each in document["archived"]:
        assert Path(each["path"]).stat().st_size == each["bytes"]
    assert document["removed"]["transcript_events"] == 10
    assert document["removed"]["session_transcript_fts"] == 8
    assert MAIN not in keys_in(agent)
    assert is_whole(agent)


def test_a_shared_session_is_kept_until_the_last_key_goes(agent: Path) -> None:
    first = sessions("delete", ALPHA, "--no-input", "--format=json").document
    second = sessions("delete", BETA, "--no-input", "--format=json").document

    assert first["kept"] == [{"session_id": SHARED, "reason": "needed_by_another_entry"}]
    assert len(first["archived"]) == 1
    assert second["kept"] == []
    assert [each["session_id"] for each in second["archived"]] == [
        "44444444-4444-4444-8444-444444444444",
        SHARED,
    ]


def test_a_dry_run_says_the_same_and_changes_nothing(agent: Path) -> None:
    before = agent.read_bytes()

    ran = sessions("delete", ALPHA, BETA, "no:such:key", "--dry-run", "--format=json")

    told = {each["key"]: each for each in ran.document["results"]}
    assert told[ALPHA]["kept"] == [{"session_id": SHARED, "reason": "needed_by_another_entry"}]
    assert told[BETA]["archived"] == ["44444444-4444-4444-8444-444444444444", SHARED]
    assert told["no:such:key"]["deletable"] is False
    assert (agent.read_bytes(), archived(agent), Sweep.objects.count()) == (before, {}, 0)


def test_a_prune_says_that_transcripts_are_archived_first(agent: Path) -> None:
    ran = run("history_prune", "--all", "--no-input")

    assert "This cannot be undone. Transcripts are archived first" in ran.out
    assert len(archived(agent)) == 5


def test_a_delete_is_on_record(agent: Path) -> None:
    sessions("delete", MAIN, "--no-input")

    (sweep,) = Sweep.objects.all()
    assert (sweep.kind, sweep.trigger, sweep.layout, sweep.ending) == (
        "prune", "command", "openclaw", "done",
    )  # fmt: skip
    assert (sweep.removed_threads, sweep.removed_checkpoints) == (1, 10)


def test_a_held_key_stays_and_the_answer_says_why(agent: Path) -> None:
    Hold.objects.create(store="history", thread_id=MAIN, reason="a court asks")

    document = sessions("delete", MAIN, "--no-input", "--format=json").document

    assert (document["deleted"], document["left"]) == (False, "held")
    assert MAIN in keys_in(agent)


@pytest.mark.parametrize(
    ("field", "value", "sentence"),
    [
        ("modelSelectionLocked", "json('true')", "has its model selection locked"),
        ("status", "'running'", "is at work now"),
    ],
)
def test_an_entry_that_openclaw_never_removes_is_refused(
    agent: Path, age: str, field: str, value: str, sentence: str
) -> None:
    table = "session_nodes" if age == "v23" else "session_entries"
    with opened(agent) as connection:
        connection.execute(
            f"UPDATE {table} SET entry_json = json_set(entry_json, '$.{field}', {value})"
            " WHERE session_key = ?",
            [MAIN],
        )

    ran = sessions("delete", MAIN, ALPHA, "--no-input")

    assert (ran.status, ran.out) == (1, "")
    assert sentence in ran.err
    assert {MAIN, ALPHA} < keys_in(agent)


def test_an_unknown_key_is_said_and_is_no_failure(agent: Path) -> None:
    ran = sessions("delete", "agent:main:nobody", "--no-input")

    assert (ran.status, ran.out) == (
        0,
        "agent:main:nobody: not deleted: there is no such entry\n",
    )


def test_a_reset_keeps_the_key_and_empties_its_transcript(agent: Path, age: str) -> None:
    before = transcripts(agent)
    old = "77777777-7777-4777-8777-777777777777"

    document = sessions("reset", "agent:main:scratch-1", "--no-input", "--format=json").document

    assert document["reset"] is True
    assert "agent:main:scratch-1" in keys_in(agent)
    if age == "v8":
        assert document["session_id"] not in before
        assert archived(agent) == {(old, "reset"): before[old]}
        assert old not in transcripts(agent)
    else:
        assert document["session_id"] == old
        assert archived(agent) == {}
        assert transcripts(agent)[old][:-1] == before[old]
        assert json.loads(transcripts(agent)[old][-1])["type"] == "reset"
    assert is_whole(agent)


def test_a_cleanup_shows_every_key_and_asks_nobody_when_told_so(
    tmp_path: Path, point_at: Callable[[Path], Path]
) -> None:
    path = point_at(copy_agent("v23", tmp_path, "maintenance"))
    flags = ("--as-of=2026-11-30T20:54:00Z", "--max-entries=12", "--format=json")

    rehearsed = sessions("cleanup", *flags, "--dry-run").document
    done = sessions("cleanup", *flags, "--no-input").document

    assert len(rehearsed["sessions"]) == 21
    assert rehearsed["sessions"] == done["sessions"]
    assert (len(done["archived_in_place"]), len(done["deleted"])) == (2, 5)
    assert {each["key"] for each in done["deleted"]} & keys_in(path) == set()


def test_archives_are_listed_verified_and_removed_by_age_alone_when_asked(agent: Path) -> None:
    sessions("delete", MAIN, "--no-input", "--format=json")

    told = sessions("archives", "--verify", "--format=json").document["archives"]
    kept = sessions("archives", "--older-than=1d", "--no-input", "--format=json").document
    gone = sessions("archives", "--older-than=1ms", "--no-input", "--format=json").document

    assert [(each["verified"], each["pending"]) for each in told] == [("5 events", False)] * 2
    assert (kept["removed"], len(gone["removed"])) == ([], 2)
    assert sessions("archives", "--format=json").document["archives"] == []


def test_a_damaged_archive_is_told_with_status_1(agent: Path) -> None:
    (archive,) = sessions("delete", "agent:main:scratch-1", "--no-input", "--format=json").document[
        "archived"
    ]
    path = Path(archive["path"])
    path.write_bytes(path.read_bytes()[:-9])

    ran = sessions("archives", "--verify")

    assert ran.status == 1
    assert "1 archive cannot be read" in ran.err
    assert "damaged" in ran.out


@pytest.mark.parametrize(
    ("flags", "sentence"),
    [
        (["cleanup", "--prune-after=soon", "--dry-run"], "'soon' is no duration"),
        (["cleanup", "--max-entries=0", "--dry-run"], "--max-entries takes a whole number from 1"),
        (["cleanup", "--mode=maybe", "--dry-run"], "--mode takes enforce or warn"),
        (["archives", "--older-than=0", "--dry-run"], "--older-than takes a time above 0"),
        (["reset", MAIN, "--dry-run"], "reset has no --dry-run"),
    ],
)
def test_a_wrong_flag_is_one_sentence_with_status_2(
    agent: Path, flags: list[str], sentence: str
) -> None:
    ran = sessions(*flags)

    assert (ran.status, ran.out) == (2, "")
    assert sentence in ran.err


def test_a_store_of_another_layout_is_refused(fixture_store: Callable[[str], Path]) -> None:
    path = fixture_store("gaunt_sloth/history.db")
    before = path.read_bytes()

    ran = sessions("list")

    assert ran.status == 1
    assert "this is a store of layout gaunt_sloth, and not of OpenClaw" in ran.err
    assert path.read_bytes() == before


def test_without_a_terminal_nothing_goes_unless_no_input_is_given(
    agent: Path, ledger: Path
) -> None:
    ran = manage("openclaw_sessions", "delete", MAIN, store=agent, ledger=ledger)

    assert ran.status == 1
    assert "pass --no-input" in ran.err
    assert MAIN in keys_in(agent)


def test_the_vendors_own_archives_are_listed_and_whole(
    tmp_path: Path, point_at: Callable[[Path], Path]
) -> None:
    path = point_at(copy_agent("v8", tmp_path))
    folder = path.parents[1] / "sessions"
    folder.mkdir()
    for archive in (OPENCLAW / "archives").iterdir():
        (folder / archive.name).write_bytes(archive.read_bytes())

    told = sessions("archives", "--verify", "--format=json").document["archives"]

    assert [(each["session_id"][:4], each["reason"], each["verified"]) for each in told] == [
        ("2222", "deleted", "5 events"),
        ("7777", "reset", "5 events"),
        ("1111", "deleted", "5 events"),
    ]
