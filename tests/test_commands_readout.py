"""What ``history_readout`` says and keeps."""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Callable
from contextlib import closing
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from history_retention.models import Measurement, Thread

from .commands import run
from .conftest import WriteStore
from .store_files import ConversationRow, ThreadRows

pytestmark = pytest.mark.usefixtures("frozen_clock")

AS_OF = "--as-of=2026-11-30T12:00:00Z"
KEYS = [
    "database", "layout", "as_of", "file_bytes", "wal_bytes", "free_bytes", "checkpoint_bytes",
    "checkpoint_count", "write_count", "thread_count", "conversation_count", "turn_count",
    "unresumable", "reclaimable", "largest_threads",
]  # fmt: skip
THREAD_KEYS = [
    "thread_id", "bytes", "checkpoint_count", "write_count", "last_activity", "state",
    "conversation_ids", "command", "project",
]  # fmt: skip
ODD_IDS = [
    "", " lead", "two\nlines", "\x1b[2Jwiped", "日本語🧵", "x" * 300, "a'b\"; DROP",
    "\u202egnihton",
]  # fmt: skip


def test_the_json_agrees_with_the_vendors_own_totals(
    fixture_store: Callable[[str], Path], fixtures: Path
) -> None:
    expected = json.loads((fixtures / "gaunt_sloth/history.expected.json").read_text())
    path = fixture_store("gaunt_sloth/history.db")

    ran = run("history_readout", AS_OF, "--format=json", "--top=99")

    found, stats = ran.document, expected["stats"]
    assert list(found) == KEYS
    assert (ran.status, ran.err) == (0, "")
    assert found["as_of"] == expected["now"]
    assert (found["database"], found["layout"]) == ("history", "gaunt_sloth")
    assert (found["file_bytes"], found["wal_bytes"]) == (path.stat().st_size, 0)
    assert found["checkpoint_bytes"] == stats["checkpointBytes"]
    assert found["checkpoint_count"] == stats["checkpointCount"]
    assert found["write_count"] == stats["writeCount"]
    assert found["thread_count"] == stats["threadCount"]
    assert (found["conversation_count"], found["turn_count"]) == (14, 23)
    assert found["unresumable"] == {
        "thread_count": stats["unresumableThreadCount"],
        "bytes": stats["unresumableBytes"],
    }
    assert found["reclaimable"] == {
        "thread_count": len(expected["reclaimable"]),
        "bytes": sum(expected["per_thread"][thread]["bytes"] for thread in expected["reclaimable"]),
    }
    assert {
        row["thread_id"]: (row["checkpoint_count"], row["write_count"], row["bytes"])
        for row in found["largest_threads"]
    } == {
        thread_id: (row["checkpointCount"], row["writeCount"], row["bytes"])
        for thread_id, row in expected["per_thread"].items()
    }
    sizes = [row["bytes"] for row in found["largest_threads"]]
    assert sizes == sorted(sizes, reverse=True)
    assert all(list(row) == THREAD_KEYS for row in found["largest_threads"])


def test_the_text_is_these_sentences(fixture_store: Callable[[str], Path]) -> None:
    fixture_store("gaunt_sloth/history.db")

    ran = run("history_readout", AS_OF, "--top=2")

    assert (ran.status, ran.err) == (0, "")
    assert ran.out.splitlines() == [
        "history: 16 threads with 1.0 MB of state (189 checkpoints, 277 writes) in layout "
        "gaunt_sloth, as of 2026-11-30 12:00 UTC",
        "history: file 1.4 MB, of which 0 bytes free inside; write-ahead log 0 bytes",
        "history: 14 conversations with 23 turns, transcripts 8.3 KB",
        "history: 7 threads (219.1 KB) unresumable, of which 3 (105.4 KB) reclaimable now",
        "",
        "thread                                    size  checkpoints  writes  last activity     "
        "state      conversations  command  project",
        "8958c795-04a3-4ee6-844e-1a70d848efbe  520.0 KB           45      60  2026-10-16 12:00  "
        "resumable  2              code     /home/demo",
        "421a1d89-ff3a-4d61-816c-f3b8ab82b1a1  100.2 KB           18      27  2026-11-28 12:00  "
        "resumable  1              chat     /home/demo",
        "",
        "Next: history_reclaim --database history --dry-run lists what no one can resume "
        "(105.4 KB).",
        "Next: history_prune --database history --older-than 30 --dry-run lists what has been "
        "idle for 30 days.",
    ]


def test_it_keeps_the_measurement_and_every_thread(
    fixture_store: Callable[[str], Path],
) -> None:
    fixture_store("gaunt_sloth/history.db")

    run("history_readout", AS_OF, "--top=1")

    assert (Measurement.objects.count(), Thread.objects.count()) == (1, 16)


def test_no_save_keeps_nothing(fixture_store: Callable[[str], Path]) -> None:
    fixture_store("gaunt_sloth/history.db")

    ran = run("history_readout", AS_OF, "--no-save", "--format=json")

    assert ran.document["thread_count"] == 16
    assert (Measurement.objects.count(), Thread.objects.count()) == (0, 0)


def test_a_readout_of_before_the_last_says_that_it_is_not_kept(
    fixture_store: Callable[[str], Path],
) -> None:
    fixture_store("gaunt_sloth/history.db")
    run("history_readout")

    ran = run("history_readout", AS_OF, "--format=json")

    assert (ran.status, ran.document["as_of"]) == (0, "2026-11-30T12:00:00.000Z")
    assert ran.err.startswith("history: this readout is not kept, since a later one is")
    assert Measurement.objects.get().measured_at > datetime(2026, 11, 30, 12, tzinfo=UTC)


def test_exact_reads_the_rows_that_a_second_readout_would_recall(
    fixture_store: Callable[[str], Path],
) -> None:
    path = fixture_store("gaunt_sloth/history.db")
    run("history_readout")
    with closing(sqlite3.connect(path)) as connection, connection:
        connection.execute("UPDATE checkpoints SET checkpoint = x'' WHERE rowid = 1")

    first, second, exact = (
        run("history_readout", "--format=json", *flags).document["checkpoint_bytes"]
        for flags in ([], ["--no-save"], ["--exact"])
    )

    assert first == second > exact


def test_it_changes_nothing_in_the_store(fixture_store: Callable[[str], Path]) -> None:
    path = fixture_store("gaunt_sloth/history.db")
    before = path.read_bytes()

    run("history_readout", AS_OF)

    assert path.read_bytes() == before


def test_a_store_where_nothing_names_threads_says_so_beside_the_json(
    fixture_store: Callable[[str], Path],
) -> None:
    fixture_store("langgraph/lg-sqlite.db")

    as_json = run("history_readout", AS_OF, "--format=json")
    as_text = run("history_readout", AS_OF)

    assert as_json.document["thread_count"] == 30
    assert as_json.document["checkpoint_count"] == 208
    assert as_json.document["write_count"] == 380
    assert as_json.document["unresumable"] == {"thread_count": 0, "bytes": 0}
    assert "history: unresumable threads cannot be told" in as_text.out
    assert "history_reclaim" not in as_text.out


def test_no_prune_is_recommended_where_it_would_find_nothing(written_store: WriteStore) -> None:
    written_store([ThreadRows(thread_id="t")], None)

    readout = run("history_readout")
    prune = run("history_prune", "--all", "--dry-run", "--format=json")

    assert prune.document["prunable"] == []
    assert "1 thread with" in readout.out
    assert "history_prune" not in readout.out


def test_an_empty_store_has_totals_and_no_table(written_store: WriteStore) -> None:
    written_store()

    ran = run("history_readout")

    assert ran.status == 0
    assert ran.out.startswith("history: 0 threads with 0 bytes of state")
    assert "thread  " not in ran.out
    assert "Next:" not in ran.out


def test_free_space_leads_to_the_vacuum(written_store: WriteStore) -> None:
    written_store([ThreadRows(thread_id="t", size=100_000)], [ConversationRow(thread_id="t")])
    run("history_prune", "--all", "--no-input", "--no-vacuum")

    ran = run("history_readout")

    assert "Next: history_vacuum --database history --dry-run" in ran.out


def test_odd_thread_ids_are_whole_in_json_and_harmless_in_text(written_store: WriteStore) -> None:
    written_store(
        [ThreadRows(thread_id=thread_id) for thread_id in ODD_IDS],
        [ConversationRow(thread_id="named", project="/srv/\x1b]0;owned\x07")],
    )

    as_json = run("history_readout", "--format=json", "--top=99")
    as_text = run("history_readout", "--top=99")

    assert {row["thread_id"] for row in as_json.document["largest_threads"]} == set(ODD_IDS)
    assert as_json.out.isascii()
    assert all(line.isprintable() for line in as_text.out.splitlines())
    rows = as_text.out.split("\n\n")[1].splitlines()[1:]
    assert len(rows) == len(ODD_IDS)
    assert sum(row.startswith(("''  ", "' lead'  ", "two\\nlines  ")) for row in rows) == 3
    assert any("x" * 27 + "..." + "x" * 10 in row for row in rows)
    assert max(map(len, rows)) < 200


def test_bytes_that_are_no_text_survive_as_a_thread_id(
    written_store: WriteStore,
) -> None:
    path = written_store([ThreadRows(thread_id="plain")])
    _rename(path, "CAST(X'ff7f41' AS TEXT)")

    as_json = run("history_readout", "--format=json")
    as_text = run("history_readout")

    assert as_json.document["largest_threads"][0]["thread_id"] == "\udcff\x7fA"
    assert "\\udcff\\x7fA" in as_text.out


def test_the_last_activity_in_json_has_milliseconds_and_a_zone(written_store: WriteStore) -> None:
    written_store([ThreadRows(thread_id="t", age=timedelta(days=2))])

    ran = run("history_readout", AS_OF, "--format=json")

    thread = ran.document["largest_threads"][0]
    assert thread["last_activity"] == "2026-11-28T12:00:00.000Z"
    assert thread["state"] == "unresumable"


def test_an_unknown_activity_is_null_and_the_word_unknown(written_store: WriteStore) -> None:
    written_store([ThreadRows(thread_id="t", age=None)])

    as_json = run("history_readout", "--format=json")
    as_text = run("history_readout")

    assert as_json.document["largest_threads"][0]["last_activity"] is None
    assert as_json.document["largest_threads"][0]["state"] == "unknown_age"
    assert "unknown        unknown age" in as_text.out


def test_a_store_that_is_not_there_is_a_sentence_and_stays_away(
    point_at: Callable[[Path], Path], tmp_path: Path
) -> None:
    path = point_at(tmp_path / "absent.db")

    ran = run("history_readout", "--format=json")

    assert (ran.status, ran.out, len(ran.err.splitlines())) == (1, "", 1)
    assert str(path) in ran.err
    assert not path.exists()


def _rename(path: Path, expression: str) -> None:
    with closing(sqlite3.connect(path)) as connection, connection:
        for table in ("checkpoints", "checkpoint_writes"):
            connection.execute(f"UPDATE {table} SET thread_id = {expression}")
