"""What ``history_reclaim`` takes, leaves and says."""

from __future__ import annotations

import json
from collections.abc import Callable
from datetime import timedelta
from pathlib import Path

import pytest

from history_retention.models import Sweep

from .commands import run
from .conftest import WriteStore
from .store_files import ConversationRow, ThreadRows, rows_of, threads_in

pytestmark = pytest.mark.usefixtures("frozen_clock")

AS_OF = "--as-of=2026-11-30T12:00:00Z"
KEYS = ["database", "layout", "as_of", "dry_run", "bounds", "kept", "reclaimable"]
OUTCOME_KEYS = ["removed", "skipped", "file_bytes_before", "file_bytes_after", "vacuum"]


def test_it_takes_the_threads_that_the_vendor_would_and_no_other(
    fixture_store: Callable[[str], Path], fixtures: Path
) -> None:
    expected = json.loads((fixtures / "gaunt_sloth/history.expected.json").read_text())
    path = fixture_store("gaunt_sloth/history.db")
    before = rows_of(path)

    ran = run("history_reclaim", AS_OF, "--no-input", "--format=json")

    found, after = ran.document, rows_of(path)
    assert (ran.status, ran.err) == (0, "")
    assert list(found) == KEYS + OUTCOME_KEYS
    assert sorted(found["reclaimable"]["thread_ids"]) == expected["reclaimable"]
    assert found["removed"] == {
        "thread_count": 3,
        "checkpoint_count": 30,
        "write_count": 45,
        "bytes": 107_934,
    }
    assert after["checkpoints"] == [
        row for row in before["checkpoints"] if row[0] not in expected["reclaimable"]
    ]
    assert (after["conversations"], after["sessions"]) == (
        before["conversations"],
        before["sessions"],
    )


def test_a_dry_run_has_the_plan_and_no_outcome(fixture_store: Callable[[str], Path]) -> None:
    path = fixture_store("gaunt_sloth/history.db")
    before = path.read_bytes()

    ran = run("history_reclaim", AS_OF, "--dry-run", "--format=json")

    assert list(ran.document) == KEYS
    assert ran.document["reclaimable"]["thread_count"] == 3
    assert set(ran.document["bounds"].values()) == {None, False}
    assert (path.read_bytes(), Sweep.objects.count()) == (before, 0)


def test_the_text_of_a_real_run_is_these_sentences(fixture_store: Callable[[str], Path]) -> None:
    path = fixture_store("gaunt_sloth/history.db")

    ran = run("history_reclaim", AS_OF, "--no-input")
    again = run("history_reclaim", AS_OF, "--no-input")

    assert ran.out.splitlines()[0] == (
        "history: will reclaim 3 threads (75 rows, 105.4 KB) that no one can resume, "
        "still for 24 hours"
    )
    assert ran.out.splitlines()[-3:] == [
        "history: reclaimed 3 threads (75 rows, 105.4 KB) that no one can resume; "
        "1 kept: unknown age",
        f"history: file 1.4 MB before, {path.stat().st_size / 1024**2:.1f} MB after, "
        "of which 0 bytes free inside",
        "history: vacuumed.",
    ]
    assert again.out == (
        "history: nothing to reclaim: no unresumable thread has been still for 24 hours; "
        "1 kept: unknown age\n"
    )
    assert (ran.status, again.status) == (0, 0)


def test_langgraphs_own_store_loses_five_of_the_six_unnamed_threads(
    fixture_store: Callable[[str], Path],
) -> None:
    path = fixture_store("langgraph/lg-sqlite-with-conversations.db")
    before = threads_in(path)
    named = {row[1] for row in rows_of(path)["conversations"]}

    ran = run("history_reclaim", AS_OF, "--no-input", "--format=json")

    gone = before - threads_in(path)
    assert (len(before - named), len(gone)) == (6, 5)
    assert set(ran.document["reclaimable"]["thread_ids"]) == gone


@pytest.mark.parametrize(
    ("case", "flags", "status", "taken"),
    [
        ("c01_orphan_writes.db", [], 1, set()),
        ("c01_orphan_writes.db", ["--orphan-writes"], 0, {"ghost"}),
        ("c02_write_before_checkpoint.db", ["--orphan-writes"], 0, set()),
        ("c07_conversations.db", [], 0, {"unnamed-old", "cleared"}),
        ("c08_no_conversations_table.db", [], 1, set()),
    ],
)
def test_what_users_of_langgraph_ran_into_comes_out_right(
    fixture_store: Callable[[str], Path],
    case: str,
    flags: list[str],
    status: int,
    taken: set[str],
) -> None:
    path = fixture_store(f"langgraph/cases/{case}")
    tables = [table for table in ("checkpoints", "writes", "checkpoint_writes")
              if table in rows_of(path)]  # fmt: skip
    before = {thread for table in tables for thread in threads_in(path, table)}

    ran = run("history_reclaim", AS_OF, "--no-input", *flags)

    after = {thread for table in tables for thread in threads_in(path, table)}
    assert (ran.status, before - after) == (status, taken)


def test_a_refusal_for_want_of_a_naming_table_says_what_to_configure(
    fixture_store: Callable[[str], Path],
) -> None:
    fixture_store("langgraph/lg-sqlite.db")

    ran = run("history_reclaim", AS_OF, "--no-input", "--format=json")

    assert (ran.status, ran.out) == (1, "")
    assert "CONVERSATIONS" in ran.err
    assert "--orphan-writes" in ran.err


def test_exclude_may_be_repeated_and_takes_any_thread_id(written_store: WriteStore) -> None:
    odd = ["", "-x", "a b", "日本語🧵", "free"]
    path = written_store([ThreadRows(thread_id=thread_id) for thread_id in odd])

    run(
        "history_reclaim", "--no-input",
        "--exclude=", "--exclude=-x", "--exclude", "a b", "--exclude=日本語🧵",
    )  # fmt: skip

    assert threads_in(path) == {"", "-x", "a b", "日本語🧵"}


@pytest.mark.parametrize("flag", ["--no-input", "--dry-run"])
def test_an_exclusion_that_is_no_thread_is_named_and_nothing_goes(
    written_store: WriteStore, flag: str
) -> None:
    path = written_store([ThreadRows(thread_id="kept"), ThreadRows(thread_id="free")])

    ran = run("history_reclaim", flag, "--exclude=kep t", "--exclude=free", "--exclude=fr\nee")

    assert (ran.status, ran.out, threads_in(path)) == (2, "", {"kept", "free"})
    assert "(fr\\nee, kep t)" in ran.err


@pytest.mark.parametrize("exclude", ["kept", ["kept"], ("kept",), {"kept"}])
def test_call_command_takes_one_exclusion_or_several(
    written_store: WriteStore, exclude: object
) -> None:
    path = written_store([ThreadRows(thread_id="kept"), ThreadRows(thread_id="k")])

    run("history_reclaim", "--no-input", exclude=exclude)

    assert threads_in(path) == {"kept"}


@pytest.mark.parametrize(
    ("flags", "left"),
    [
        ([], {"2h"}),
        (["--grace=24"], {"2h"}),
        (["--grace=30"], {"2h"}),
        (["--grace=31"], {"2h", "30h"}),
        (["--grace=36"], {"2h", "30h"}),
        (["--grace=48"], {"2h", "30h", "40h"}),
        (["--grace=1", "--force"], set()),
    ],
)
def test_grace_counts_in_hours_from_the_newest_row(
    written_store: WriteStore, flags: list[str], left: set[str]
) -> None:
    path = written_store(
        [ThreadRows(thread_id=f"{hours}h", age=timedelta(hours=hours)) for hours in (2, 30, 40)]
    )

    run("history_reclaim", AS_OF, "--no-input", *flags)

    assert threads_in(path) == left


def test_orphan_writes_leaves_a_thread_that_has_a_checkpoint(written_store: WriteStore) -> None:
    path = written_store(
        [ThreadRows(thread_id="ghost", checkpoints=0), ThreadRows(thread_id="whole")], None
    )

    ran = run("history_reclaim", "--no-input", "--orphan-writes", "--format=json")

    assert ran.document["reclaimable"]["thread_ids"] == ["ghost"]
    assert threads_in(path) == threads_in(path, "checkpoint_writes") == {"whole"}


def test_a_named_thread_is_never_taken(written_store: WriteStore) -> None:
    path = written_store(
        [ThreadRows(thread_id="named", age=timedelta(days=4_000))],
        [ConversationRow(thread_id="named", age=timedelta(days=4_000))],
    )

    ran = run("history_reclaim", "--no-input", "--grace=1", "--force", "--vacuum")

    assert (ran.status, threads_in(path)) == (0, {"named"})


def test_the_record_tells_the_grace(written_store: WriteStore) -> None:
    written_store([ThreadRows(thread_id="t")])

    run("history_reclaim", "--no-input", "--grace=48")

    sweep = Sweep.objects.get()
    assert (sweep.kind, sweep.removed_threads, sweep.bounds) == ("reclaim", 1, {"grace_hours": 48})


def test_without_a_terminal_and_without_no_input_nothing_happens(
    written_store: WriteStore,
) -> None:
    path = written_store([ThreadRows(thread_id="t")])

    ran = run("history_reclaim")

    assert (ran.status, ran.out, threads_in(path)) == (1, "", {"t"})
    assert "--no-input" in ran.err
