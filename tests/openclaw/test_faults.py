"""What goes wrong around a removal: bad rows, full disks, other writers, killed processes."""

from __future__ import annotations

import json
import signal
import sqlite3
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from contextlib import closing
from datetime import UTC, datetime
from pathlib import Path
from random import Random

import pytest
import zstandard
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from history_retention import services
from history_retention.contrib.openclaw import operations
from history_retention.exceptions import LayoutUnknown
from history_retention.facts import SkipReason
from history_retention.policy import Bounds
from history_retention.services import Trigger

from ..commands import PROJECT, environment, run
from .agents import (
    UPDATED,
    Told,
    archived,
    empty_agent,
    found_in_search,
    is_whole,
    keys_in,
    opened,
    transcripts,
    write_entries,
)

NOW = datetime(2026, 12, 1, tzinfo=UTC)
KILLS = 5


@pytest.fixture
def empty(age: str, tmp_path: Path, point_at: Callable[[Path], Path]) -> Path:
    """A file with tables and not one entry."""
    return point_at(empty_agent(age, tmp_path))


def delete(*keys: str) -> operations.Deleted:
    plan = operations.plan_delete("history", keys, now=NOW)
    return operations.delete(plan, trigger=Trigger.CODE, clock=lambda: NOW)


def lines_of_rows(path: Path) -> dict[str, list[bytes]]:
    """Return the archives that are rows, decompressed by another implementation than ours."""
    with opened(path) as connection:
        if not connection.execute(
            "SELECT 1 FROM sqlite_master WHERE name = 'session_transcript_archives'"
        ).fetchone():
            return {}
        rows = connection.execute(
            "SELECT session_id, archive_blob FROM session_transcript_archives"
        ).fetchall()
    return {
        name: zstandard.ZstdDecompressor().decompressobj().decompress(data).splitlines()
        for name, data in rows
    }


BAD_TEXTS = ["{", "[1]", "null", '{"sessionId":7}', ""]


@pytest.mark.parametrize("text", BAD_TEXTS)
def test_a_malformed_entry_is_never_removed_and_stops_no_other(empty: Path, text: str) -> None:
    write_entries(
        empty,
        [
            Told(key="k:bad", session_id="b", text=text),
            Told(key="k:good", session_id="g", fields={"usageFamilySessionIds": ["b"]}),
        ],
    )

    ran = run("openclaw_sessions", "delete", "k:bad", "--no-input")
    done = delete("k:good")

    assert "Traceback" not in ran.err
    assert "k:bad" in keys_in(empty)
    assert [archive.session_id for archive in done.deletions[0].archived] == ["g"]
    assert set(transcripts(empty)) == {"b"}
    assert is_whole(empty)


def test_a_malformed_checkpoint_list_stops_every_removal_and_no_readout(empty: Path) -> None:
    broken = {"compactionCheckpoints": [{"sessionId": "x"}]}
    write_entries(
        empty,
        [Told(key="k:bad", session_id="b", fields=broken), Told(key="k:good", session_id="g")],
    )
    before = empty.read_bytes()

    deleted = run("openclaw_sessions", "delete", "k:good", "--no-input")
    pruned = run("history_prune", "--all", "--no-input")
    listed = run("openclaw_sessions", "list", "--format=json")
    readout = run("history_readout", "--no-save", "--format=json")

    for ran in (deleted, pruned):
        assert ran.status == 1
        assert "k:bad: a compaction checkpoint in its entry is not what OpenClaw writes" in ran.err
    assert len(listed.document["sessions"]) == readout.document["thread_count"] == 2
    assert (empty.read_bytes(), archived(empty)) == (before, {})


def test_ids_without_a_window_and_sessions_without_events_are_no_fault(empty: Path) -> None:
    write_entries(
        empty,
        [Told(key="k:a", session_id="a", fields={"usageFamilySessionIds": ["none", "a"]})],
        events=0,
    )

    done = delete("k:a")

    assert done.deletions[0].archived == ()
    assert (keys_in(empty), archived(empty)) == (set(), {})
    assert is_whole(empty)


def test_two_keys_with_one_session_archive_it_with_the_last(empty: Path) -> None:
    write_entries(empty, [Told(key="k:1", session_id="s"), Told(key="k:2", session_id="s")])
    before = transcripts(empty)

    first, second = delete("k:1"), delete("k:2")

    assert [len(done.deletions[0].archived) for done in (first, second)] == [0, 1]
    assert archived(empty) == {("s", "deleted"): before["s"]}
    assert (transcripts(empty), keys_in(empty)) == ({}, set())
    assert is_whole(empty)


def test_nothing_of_a_removed_transcript_is_found_by_search(empty: Path) -> None:
    write_entries(empty, [Told(key="k:1", session_id="one"), Told(key="k:2", session_id="two")])
    assert (found_in_search(empty, "one"), found_in_search(empty, "two")) == (2, 2)

    delete("k:1")

    assert (found_in_search(empty, "one"), found_in_search(empty, "two")) == (0, 2)


def test_an_entry_that_changes_after_the_plan_is_left_alone(empty: Path, age: str) -> None:
    write_entries(empty, [Told(key="k:1", session_id="one"), Told(key="k:2", session_id="two")])
    plan = operations.plan_delete("history", ["k:1", "k:2"], now=NOW)
    with opened(empty) as connection:
        connection.execute(
            "INSERT INTO transcript_events (session_id, seq, event_json, created_at)"
            " VALUES ('one', 2, '{\"late\":true}', ?)",
            [UPDATED],
        )

    done = operations.delete(plan, trigger=Trigger.CODE, clock=lambda: NOW)

    assert [(each.thread_id, each.reason) for each in done.outcome.skipped] == [
        ("k:1", SkipReason.ACTIVE)
    ]
    assert keys_in(empty) == {"k:1"}
    assert len(transcripts(empty)["one"]) == 3


def test_a_prune_of_entries_that_share_a_session_takes_all_of_them_in_one_run(
    empty: Path, retention: Callable[..., None]
) -> None:
    retention(BOX_SECONDS=0, GAP_SECONDS=0)
    shared = {"usageFamilySessionIds": ["shared"]}
    write_entries(
        empty,
        [
            Told(key="k:1", session_id="one", fields=shared, windows=("shared",)),
            Told(key="k:2", session_id="two", fields=shared),
            Told(key="k:3", session_id="three", fields=shared),
        ],
    )
    before = transcripts(empty)

    plan = services.plan_prune("history", Bounds(everything=True), now=NOW)
    outcome = services.execute(plan, trigger=Trigger.CODE, clock=lambda: NOW)

    assert (outcome.skipped, outcome.removed.thread_count) == ((), 3)
    assert outcome.removed.checkpoint_count == 8
    assert archived(empty) == {(name, "deleted"): lines for name, lines in before.items()}


@pytest.mark.parametrize("age", ["v23"])
def test_a_compressed_event_is_archived_as_it_was_written(empty: Path) -> None:
    write_entries(empty, [Told(key="k:1", session_id="one")])
    text = b'{"type":"message","text":"' + b"large " * 1_000 + b'"}'
    _compress(empty, text, len(text))

    delete("k:1")

    assert archived(empty)["one", "deleted"][1] == text


@pytest.mark.parametrize("age", ["v23"])
@pytest.mark.parametrize(("frame", "length"), [(b"not zstd", 3), (None, 3)])
def test_a_compressed_event_that_is_damaged_keeps_its_session(
    empty: Path, frame: bytes | None, length: int
) -> None:
    write_entries(empty, [Told(key="k:1", session_id="one")])
    _compress(empty, b"four", length, frame)

    done = delete("k:1")

    assert "event 1 of session one cannot be read" in done.outcome.error
    assert (keys_in(empty), archived(empty)) == ({"k:1"}, {})
    assert is_whole(empty)


def _compress(path: Path, text: bytes, length: int, frame: bytes | None = None) -> None:
    navigation = {
        "version": 1,
        "report": {"kind": "canonical"},
        "navigation": {},
        "reset": {},
        "model": {},
        "modelBytes": 0,
        "modelWithoutCheckpointBytes": 0,
        "withoutCustomDataBytes": 0,
    }
    with opened(path) as connection:
        connection.execute(
            "UPDATE transcript_events SET event_json = NULL, event_zstd = ?,"
            " event_utf8_bytes = ?, navigation_json = ? WHERE session_id = 'one' AND seq = 1",
            [frame or zstandard.ZstdCompressor().compress(text), length, json.dumps(navigation)],
        )


@pytest.mark.parametrize("age", ["v23"])
def test_a_session_in_cold_storage_stays_and_its_key_becomes_a_shell(empty: Path) -> None:
    write_entries(
        empty,
        [
            Told(
                key="k:1",
                session_id="one",
                fields={"usageFamilySessionIds": ["cold"]},
                windows=("cold",),
            )
        ],
    )
    with opened(empty) as connection:
        connection.execute("DELETE FROM transcript_events WHERE session_id = 'cold'")
        connection.execute(
            "INSERT INTO session_transcript_cold_archives VALUES"
            " ('cold', 'g', 'x.jsonl.zst', ?, 2, 10, 10, 1, 1, 'file', NULL)",
            ["0" * 64],
        )

    done = delete("k:1")
    again = delete("k:1")

    assert [(stay.session_id, stay.reason.value) for stay in done.deletions[0].kept] == [
        ("cold", "in_cold_storage")
    ]
    with opened(empty) as connection:
        assert connection.execute(
            "SELECT session_key, current_session_id, entry_json, entry_valid FROM session_nodes"
        ).fetchall() == [("k:1", "cold", "{}", -1)]
        assert connection.execute(
            "SELECT COUNT(*) FROM session_transcript_cold_archives"
        ).fetchone() == (1,)
    assert again.deletions == ()
    assert is_whole(empty)


@pytest.mark.parametrize("age", ["v23"])
def test_without_a_rewrite_watermark_a_transcript_stays(empty: Path) -> None:
    write_entries(empty, [Told(key="k:1", session_id="one")])
    with opened(empty) as connection:
        connection.execute("DELETE FROM transcript_rewrite_watermarks")

    done = delete("k:1")

    assert "session one has no rewrite watermark" in done.outcome.error
    assert keys_in(empty) == {"k:1"}


@pytest.mark.parametrize("age", ["v23"])
def test_a_file_before_version_19_has_its_archive_on_disk_first(empty: Path) -> None:
    write_entries(empty, [Told(key="k:1", session_id="one")])
    before = transcripts(empty)
    with opened(empty) as connection:
        connection.execute("DROP TABLE session_transcript_archives")
        connection.execute("PRAGMA user_version = 16")

    done = delete("k:1")

    (archive,) = done.deletions[0].archived
    assert archive.path.exists()
    assert archived(empty) == {("one", "deleted"): before["one"]}
    assert (keys_in(empty), done.pending) == (set(), ())


def test_a_newer_schema_is_listed_and_never_changed(empty: Path, age: str) -> None:
    write_entries(empty, [Told(key="k:1", session_id="one")])
    with opened(empty) as connection:
        connection.execute("PRAGMA user_version = 24")
    before = empty.read_bytes()

    listed = run("openclaw_sessions", "list", "--format=json").document
    ran = run("history_prune", "--all", "--no-input")

    assert [each["key"] for each in listed["sessions"]] == ["k:1"]
    assert ran.status == 1
    assert "has OpenClaw's schema 24" in ran.err
    assert empty.read_bytes() == before


def test_a_file_that_is_no_agents_own_is_never_changed(empty: Path) -> None:
    write_entries(empty, [Told(key="k:1", session_id="one")])
    with opened(empty) as connection:
        connection.execute("UPDATE schema_meta SET role = 'control'")

    with pytest.raises(LayoutUnknown, match="does not say that this is an agent's own database"):
        delete("k:1")

    assert keys_in(empty) == {"k:1"}


def test_an_archive_folder_that_cannot_be_written_keeps_rows_or_archives(
    empty: Path, age: str
) -> None:
    write_entries(empty, [Told(key="k:1", session_id="one")])
    before = transcripts(empty)
    folder = empty.parents[1] / "sessions"
    folder.write_text("a file where the folder should be")

    done = delete("k:1")

    if age == "v8":
        assert "cannot be looked into for archives (Not a directory)" in done.outcome.error
        assert (transcripts(empty), keys_in(empty)) == (before, {"k:1"})
    else:
        assert done.outcome.error == ""
        assert len(done.pending) == 1
        assert lines_of_rows(empty) == before
        with opened(empty) as connection:
            (error, attempts) = connection.execute(
                "SELECT last_publish_error, publish_attempts FROM session_transcript_archives"
            ).fetchone()
        assert "cannot be written" in error
        assert attempts == 1
        folder.unlink()
        write_entries(empty, [Told(key="k:2", session_id="two")])
        assert delete("k:2").pending == ()
        assert {name for name, _ in archived(empty)} == {"one", "two"}


def test_a_full_disk_while_archiving_takes_nothing(
    empty: Path, age: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    write_entries(empty, [Told(key=f"k:{n}", session_id=f"s{n}") for n in range(3)], events=40)
    before = transcripts(empty)
    folder = empty.parents[1] / "sessions"
    folder.mkdir()
    mount = ["mount", "-t", "tmpfs", "-o", "size=4k", "tmpfs", str(folder)]
    if subprocess.run(mount, check=False, capture_output=True).returncode:
        pytest.skip("nobody may mount a small disk here")
    try:
        (folder / "filler").write_bytes(bytes(4096))
        done = delete("k:0", "k:1", "k:2")
        if age == "v8":
            assert "cannot be written" in done.outcome.error
            assert transcripts(empty) == before
        else:
            assert lines_of_rows(empty) == before
            assert len(done.pending) == 3
        assert [path.name for path in folder.iterdir()] == ["filler"]
    finally:
        subprocess.run(["umount", "--lazy", str(folder)], check=True)


def test_tables_that_are_not_ours_stay_as_they_are(empty: Path) -> None:
    write_entries(empty, [Told(key="k:1", session_id="one")])
    theirs = "auth_profile_store auth_profile_state cache_entries memory_index_sources"
    with opened(empty) as connection:
        for table in theirs.split():
            columns = connection.execute(f"PRAGMA table_info({table})").fetchall()
            values = [
                1
                if kind in ("INTEGER", "REAL")
                else b"k:1"
                if kind == "BLOB"
                else f"k:1 one {name}"
                for _, name, kind, *_ in columns
            ]
            marks = ", ".join("?" * len(values))
            connection.execute(f"INSERT INTO {table} VALUES ({marks})", values)
        before = {t: connection.execute(f"SELECT * FROM {t}").fetchall() for t in theirs.split()}

    delete("k:1")

    with opened(empty) as connection:
        after = {t: connection.execute(f"SELECT * FROM {t}").fetchall() for t in theirs.split()}
    assert after == before
    assert all(len(rows) == 1 for rows in after.values())


@pytest.mark.parametrize("journal_mode", ["delete", "wal"])
def test_either_journal_mode_and_a_log_left_by_a_crash(
    empty: Path, tmp_path: Path, journal_mode: str
) -> None:
    write_entries(empty, [Told(key="k:1", session_id="one"), Told(key="k:2", session_id="two")])
    with closing(sqlite3.connect(empty)) as connection:
        connection.execute(f"PRAGMA journal_mode = {journal_mode}")
    code = (
        "import sqlite3, os, sys; c = sqlite3.connect(sys.argv[1]); "
        'c.execute("UPDATE transcript_event_identities SET created_at = 7"); c.commit(); '
        "os.kill(os.getpid(), 9)"
    )
    subprocess.run([sys.executable, "-c", code, str(empty)], check=False)

    done = delete("k:1")

    assert done.outcome.removed.thread_count == 1
    with opened(empty) as connection:
        assert connection.execute(
            "SELECT DISTINCT created_at FROM transcript_event_identities"
        ).fetchall() == [(7,)]
    assert is_whole(empty)


@pytest.mark.endurance
def test_a_killed_delete_leaves_rows_or_a_readable_archive_of_every_session(
    empty: Path, ledger: Path
) -> None:
    random = Random(7)
    keys = [f"k:{number:03}" for number in range(120)]
    write_entries(
        empty,
        [
            Told(
                key=key,
                session_id=f"own-{key[2:]}",
                fields={"usageFamilySessionIds": [f"shared-{int(key[2:]) // 3}"]},
                windows=(f"shared-{int(key[2:]) // 3}",),
            )
            for key in keys
        ],
    )
    before = transcripts(empty)
    assert len(before) == 160

    for _ in range(KILLS):
        _killed(["openclaw_sessions", "delete", *keys, "--no-input"], empty, ledger, random)
        assert is_whole(empty)
        _require_rows_or_archives(empty, before)
    _ended(["openclaw_sessions", "delete", *keys, "--no-input"], empty, ledger)

    assert (keys_in(empty), transcripts(empty)) == (set(), {})
    assert archived(empty) == {(name, "deleted"): lines for name, lines in before.items()}


def _require_rows_or_archives(path: Path, before: dict[str, list[bytes]]) -> None:
    rows, files, blobs = transcripts(path), archived(path), lines_of_rows(path)
    for name, lines in before.items():
        assert lines in (rows.get(name), files.get((name, "deleted")), blobs.get(name))


def _killed(words: Sequence[str], store: Path, ledger: Path, random: Random) -> None:
    """Run a command and kill it some time after it has begun to remove."""
    process = _started(words, store, ledger)
    begun = len(keys_in(store))
    while process.poll() is None and len(keys_in(store)) == begun:
        time.sleep(0.001)
    time.sleep(random.uniform(0, 0.05))
    process.send_signal(signal.SIGKILL)
    process.communicate()


def _ended(words: Sequence[str], store: Path, ledger: Path) -> None:
    process = _started(words, store, ledger)
    _, err = process.communicate(timeout=120)
    assert process.returncode == 0, err


def _started(words: Sequence[str], store: Path, ledger: Path) -> subprocess.Popen[bytes]:
    return subprocess.Popen(
        [sys.executable, "manage.py", *words],
        cwd=PROJECT,
        env=environment(store, ledger),
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    )


NAMES = st.sampled_from([f"s{number}" for number in range(7)])


@pytest.mark.endurance
@settings(
    max_examples=25,
    deadline=None,
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow],
)
@given(data=st.data())
def test_deleting_all_entries_in_any_order_leaves_no_row_and_archives_each_transcript_once(
    age: str,
    tmp_path_factory: pytest.TempPathFactory,
    point_at: Callable[[Path], Path],
    data: st.DataObject,
) -> None:
    path = point_at(empty_agent(age, tmp_path_factory.mktemp("agent")))
    told = [
        Told(
            key=f"k:{number}",
            session_id=data.draw(NAMES),
            fields={"usageFamilySessionIds": data.draw(st.lists(NAMES, max_size=3))},
            windows=tuple(data.draw(st.lists(NAMES, max_size=2))) if age == "v23" else (),
            pinned=data.draw(st.booleans()),
        )
        for number in range(data.draw(st.integers(1, 5)))
    ]
    write_entries(path, told)
    before = transcripts(path)
    archives = 0

    for key in data.draw(st.permutations([each.key for each in told])):
        survivors = {
            each.session_id for each in told if each.key in keys_in(path) and each.key != key
        }
        archives += len(delete(key).deletions[0].archived)
        assert {name for name in survivors if name in before} <= set(transcripts(path))
        assert is_whole(path)

    assert (keys_in(path), transcripts(path)) == (set(), {})
    assert archived(path) == {(name, "deleted"): lines for name, lines in before.items()}
    assert archives == len(before)


def test_no_file_but_the_database_and_the_archive_folder_is_touched(
    empty: Path, age: str, ledger: Path
) -> None:
    key = "agent:main:telegram:group:-100:topic:42"
    marker = f"sqlite:main:one:{empty}"
    write_entries(empty, [Told(key=key, session_id="one", fields={"sessionFile": marker})])
    code = (
        "import os, sys\n"
        "sys.argv = ['manage.py', 'openclaw_sessions', 'delete', sys.argv[1], '--no-input']\n"
        "import django; os.environ['DJANGO_SETTINGS_MODULE'] = 'project.settings'; django.setup()\n"
        "import zstandard, history_retention.contrib.openclaw.management.commands."
        "openclaw_sessions\n"
        "seen = []\n"
        "def hook(event, args):\n"
        "    if event in ('open', 'os.listdir', 'os.scandir', 'sqlite3.connect', 'os.remove',"
        " 'os.rename', 'os.link', 'os.mkdir'):\n"
        "        seen.append((event, str(args[0])))\n"
        "sys.addaudithook(hook)\n"
        "from django.core.management import execute_from_command_line\n"
        "execute_from_command_line(sys.argv)\n"
        "for event, path in seen: print(f'SEEN {event} {path}')\n"
    )
    ran = subprocess.run(
        [sys.executable, "-c", code, key],
        cwd=PROJECT,
        env=environment(empty, ledger),
        capture_output=True,
        text=True,
        check=True,
    )

    state = str(empty.parents[1])
    touched = {
        line.split(" ", 2)[2].removeprefix("file:").partition("?")[0]
        for line in ran.stdout.splitlines()
        if line.startswith("SEEN ") and state in line
    }
    sessions = f"{state}/sessions"
    assert {path for path in touched if not path.startswith(sessions)} <= {
        str(empty), str(empty.parent),
    }  # fmt: skip
    assert any(path.startswith(sessions) for path in touched)
    assert key not in keys_in(empty)


def test_an_error_of_the_store_is_one_sentence(empty: Path) -> None:
    write_entries(empty, [Told(key="k:1", session_id="one")])
    with opened(empty) as connection:
        connection.execute(
            "CREATE TRIGGER refuses BEFORE DELETE ON transcript_events"
            " BEGIN SELECT RAISE(ABORT, 'not today'); END"
        )

    done = delete("k:1")

    assert "not today" in done.outcome.error
    assert keys_in(empty) == {"k:1"}


@pytest.mark.parametrize("age", ["v23"])
def test_what_refuses_a_publication_does_not_undo_the_removal_or_its_report(empty: Path) -> None:
    write_entries(empty, [Told(key="k:1", session_id="one"), Told(key="k:2", session_id="two")])
    before = transcripts(empty)
    with opened(empty) as connection:
        connection.execute(
            "CREATE TRIGGER refuses BEFORE UPDATE ON session_transcript_archives"
            " BEGIN SELECT RAISE(ABORT, 'not today'); END"
        )

    done = delete("k:1", "k:2")

    assert (done.outcome.removed.thread_count, done.outcome.skipped) == (2, ())
    assert (done.outcome.error, len(done.pending)) == ("", 2)
    assert lines_of_rows(empty) == before


@pytest.mark.parametrize("age", ["v8"])
@pytest.mark.parametrize("seq", [-5, None, "'late'"])
def test_an_event_of_a_strange_number_is_archived_or_its_session_stays(
    empty: Path, seq: object
) -> None:
    write_entries(empty, [Told(key="k:1", session_id="one")])
    with closing(sqlite3.connect(empty)) as connection, connection:
        connection.execute(
            "CREATE TABLE events (session_id TEXT NOT NULL REFERENCES sessions(session_id)"
            " ON DELETE CASCADE, seq INTEGER, event_json TEXT NOT NULL,"
            " created_at INTEGER NOT NULL, PRIMARY KEY (session_id, seq))"
        )
        connection.execute("INSERT INTO events SELECT * FROM transcript_events")
        connection.execute("DROP TABLE transcript_events")
        connection.execute("ALTER TABLE events RENAME TO transcript_events")
        connection.execute("DELETE FROM transcript_event_identities")
        told = "NULL" if seq is None else seq
        connection.execute(f"INSERT INTO transcript_events VALUES ('one', {told}, '{{}}', 1)")

    done = delete("k:1")

    if seq is None:
        assert "has 3 events and 2 could be read in order" in done.outcome.error
        assert (keys_in(empty), archived(empty)) == ({"k:1"}, {})
    else:
        assert keys_in(empty) == set()
        assert b"{}" in archived(empty)["one", "deleted"]
        assert len(archived(empty)["one", "deleted"]) == 3


@pytest.mark.parametrize("age", ["v8"])
def test_a_key_that_is_no_text_stops_a_removal_and_is_a_sentence(empty: Path) -> None:
    write_entries(empty, [Told(key="k:1", session_id="one")])
    with opened(empty) as connection:
        connection.execute("INSERT INTO session_entries VALUES (x'6b', 'one', '{}', 1, NULL)")

    ran = run("history_prune", "--all", "--no-input")

    assert ran.status == 1
    assert "a key or a session that is no text" in ran.err
    assert set(transcripts(empty)) == {"one"}


def test_a_plugins_table_with_a_hostile_name_goes_along_and_nothing_else(
    empty: Path, age: str
) -> None:
    write_entries(empty, [Told(key="k:1", session_id="one"), Told(key="k:2", session_id="two")])
    windows = "session_windows" if age == "v23" else "sessions"
    name = 'x"; DELETE FROM schema_meta; --'
    quoted = name.replace('"', '""')
    with opened(empty) as connection:
        connection.execute(
            f'CREATE TABLE "{quoted}" (session_id TEXT REFERENCES {windows}(session_id)'
            " ON DELETE CASCADE)"
        )
        connection.execute(f"INSERT INTO \"{quoted}\" VALUES ('one'), ('two')")

    done = delete("k:1")

    assert done.deletions[0].removed[name.lower()] == 1
    with opened(empty) as connection:
        assert connection.execute(f'SELECT session_id FROM "{quoted}"').fetchall() == [("two",)]
        assert connection.execute("SELECT COUNT(*) FROM schema_meta").fetchone() == (1,)


@pytest.mark.parametrize("age", ["v23"])
def test_an_entry_archived_in_place_keeps_what_it_said_as_it_was_written(empty: Path) -> None:
    text = (
        f'{{"sessionId":"s","updatedAt":{UPDATED},"big":12345678901234567890,"huge":1e400,'
        '"lone":"\\ud800","pinnedAt":7,"label":"é"}'
    )
    write_entries(empty, [Told(key="agent:main:dashboard:x", session_id="s", text=text)])
    flags = ("--as-of=2026-12-01T00:00:00Z", "--archive-dashboard-after=1h", "--no-input")

    ran = run("openclaw_sessions", "cleanup", *flags)

    assert (ran.status, ran.err) == (0, "")
    with opened(empty) as connection:
        (after, archived_at, valid) = connection.execute(
            "SELECT CAST(entry_json AS BLOB), archived_at, entry_valid FROM session_nodes"
        ).fetchone()
    assert after.decode() == text.replace('"pinnedAt":7,', "").removesuffix("}") + (
        f',"archivedAt":{archived_at},"archiveReason":"stale-dashboard"}}'
    )
    assert valid == 1
