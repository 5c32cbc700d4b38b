"""What ``history_prune`` plans, removes, keeps and says."""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Callable
from contextlib import closing
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from history_retention.models import Hold, Sweep

from .commands import run
from .conftest import WriteStore
from .store_files import ConversationRow, ThreadRows, rows_of, threads_in

pytestmark = pytest.mark.usefixtures("frozen_clock")

AS_OF = "--as-of=2026-11-30T12:00:00Z"
SHARED = "55a6bb69-ce6c-4150-8277-fca8eaa6aab3"
INTERRUPTED = "da156fe5-db42-454a-8bcc-c912c1baff20"
UNREADABLE = "36b15dde-801e-4dc8-87ec-7006461f2257"
PLAN_KEYS = [
    "database", "layout", "as_of", "dry_run", "bounds", "prunable", "kept", "left_by_limit",
    "reclaimable",
]  # fmt: skip
OUTCOME_KEYS = ["removed", "skipped", "file_bytes_before", "file_bytes_after", "vacuum"]
THREAD_KEYS = [
    "thread_id", "conversation_ids", "command", "project", "last_activity", "turn_count",
    "checkpoint_count", "write_count", "bytes", "recently_active",
]  # fmt: skip


@pytest.fixture
def gaunt_sloth(fixture_store: Callable[[str], Path]) -> Path:
    """The vendor's own store."""
    return fixture_store("gaunt_sloth/history.db")


@pytest.fixture
def expected(fixtures: Path) -> dict[str, Any]:
    """The answers of the vendor's own algorithm."""
    answers: dict[str, Any] = json.loads(
        (fixtures / "gaunt_sloth/history.expected.json").read_text()
    )
    return answers


@pytest.mark.parametrize(
    ("case", "flags"),
    [
        ("older_than_30", ["--older-than=30"]),
        ("keep_last_3", ["--keep-last=3"]),
        ("older_than_30_keep_last_8", ["--older-than=30", "--keep-last=8"]),
    ],
)
def test_a_plan_agrees_with_the_vendors_but_for_the_shared_thread(
    gaunt_sloth: Path, expected: dict[str, Any], case: str, flags: list[str]
) -> None:
    ran = run("history_prune", AS_OF, "--dry-run", "--format=json", *flags)

    found, rows = ran.document, expected["prunable"][case]["rows"]
    assert list(found) == PLAN_KEYS
    assert [
        (row["thread_id"], row["conversation_ids"], row["command"], row["turn_count"],
         row["checkpoint_count"], row["bytes"], row["recently_active"])
        for row in found["prunable"]
    ] == [
        (row["threadId"], [row["conversationId"]], row["command"], row["turnCount"],
         row["checkpointCount"], row["bytes"], row["recentlyActive"])
        for row in rows
        if row["threadId"] != SHARED
    ]  # fmt: skip
    assert {"thread_id": SHARED, "reason": "named_by_kept_conversation"} in found["kept"]
    assert found["reclaimable"] == {"thread_count": 3, "bytes": 107_934}
    assert [list(row) for row in found["prunable"]] == [
        [*THREAD_KEYS, *(["awaiting"] if row["thread_id"] == INTERRUPTED else [])]
        for row in found["prunable"]
    ]


def test_the_bounds_are_in_the_json_under_fixed_names(gaunt_sloth: Path) -> None:
    ran = run(
        "history_prune", AS_OF, "--dry-run", "--format=json",
        "--older-than=30", "--keep-last=2", "--command=code", "--project=/home/demo",
    )  # fmt: skip

    assert ran.document["bounds"] == {
        "older_than_days": 30,
        "keep_last": 2,
        "all": False,
        "command": "code",
        "project": "/home/demo",
    }
    assert {row["command"] for row in ran.document["prunable"]} == {"code"}


def test_all_is_a_bound_that_marks_what_was_active_within_the_grace_window(
    gaunt_sloth: Path, expected: dict[str, Any]
) -> None:
    ran = run("history_prune", AS_OF, "--dry-run", "--format=json", "--all")

    everything = {row["threadId"]: row for row in expected["prunable"]["keep_last_0"]["rows"]}
    assert ran.document["bounds"]["all"] is True
    assert {row["thread_id"]: row["recently_active"] for row in ran.document["prunable"]} == {
        thread_id: row["recentlyActive"] for thread_id, row in everything.items()
    }


def test_a_dry_run_changes_no_byte_and_records_nothing(gaunt_sloth: Path) -> None:
    before = gaunt_sloth.read_bytes()

    ran = run("history_prune", AS_OF, "--older-than=30", "--dry-run")

    assert ran.out.splitlines()[-1] == "Dry run: nothing was removed."
    assert gaunt_sloth.read_bytes() == before
    assert Sweep.objects.count() == 0


def test_it_removes_exactly_the_planned_threads_and_not_a_byte_of_the_others(
    gaunt_sloth: Path, expected: dict[str, Any]
) -> None:
    before, size = rows_of(gaunt_sloth), gaunt_sloth.stat().st_size
    plan = run("history_prune", AS_OF, "--older-than=30", "--dry-run", "--format=json").document

    ran = run("history_prune", AS_OF, "--older-than=30", "--no-input", "--format=json")

    found, after = ran.document, rows_of(gaunt_sloth)
    gone = {row["thread_id"] for row in plan["prunable"]} | set(expected["reclaimable"])
    states = ("checkpoints", "checkpoint_writes")
    assert (ran.status, ran.err, len(gone)) == (0, "", 8)
    assert list(found) == PLAN_KEYS + OUTCOME_KEYS
    assert {key: found[key] for key in PLAN_KEYS} == {**plan, "dry_run": False}
    assert found["removed"] == {
        "thread_count": 8,
        "checkpoint_count": sum(expected["per_thread"][t]["checkpointCount"] for t in gone),
        "write_count": sum(expected["per_thread"][t]["writeCount"] for t in gone),
        "bytes": sum(expected["per_thread"][t]["bytes"] for t in gone),
    }
    for table, rows in before.items():
        kept = [row for row in rows if not (table in states and row[0] in gone)]
        assert after[table] == kept, table
    assert found["skipped"] == []
    assert (found["file_bytes_before"], found["file_bytes_after"]) == (
        size,
        gaunt_sloth.stat().st_size,
    )
    assert found["file_bytes_after"] < size / 2
    assert found["vacuum"] == {"ran": True, "reason": "history: vacuumed."}


def test_a_second_run_finds_nothing_and_that_is_no_failure(gaunt_sloth: Path) -> None:
    run("history_prune", AS_OF, "--older-than=30", "--no-input")
    before = gaunt_sloth.read_bytes()

    ran = run("history_prune", AS_OF, "--older-than=30", "--no-input")

    assert (ran.status, ran.err) == (0, "")
    assert ran.out == (
        "history: nothing to prune idle for 30 days; "
        "2 kept: 1 unknown age, 1 named by a kept conversation\n"
    )
    assert gaunt_sloth.read_bytes() == before


def test_the_json_of_a_run_that_finds_nothing_has_the_same_keys(written_store: WriteStore) -> None:
    written_store()

    ran = run("history_prune", "--older-than=30", "--no-input", "--format=json")

    assert list(ran.document) == PLAN_KEYS + OUTCOME_KEYS
    assert ran.document["removed"]["thread_count"] == 0
    assert ran.document["vacuum"]["ran"] is False


def test_the_text_of_a_real_run_is_these_sentences(gaunt_sloth: Path) -> None:
    ran = run("history_prune", AS_OF, "--older-than=30", "--command=code", "--no-input")

    assert (ran.status, ran.err) == (0, "")
    assert ran.out.splitlines() == [
        "history: will prune 3 threads (136 rows, 547.6 KB) idle for 30 days and of command code",
        "history: last active from 2026-10-16 12:00 to 2026-10-30 12:00 UTC; "
        "none within the last 24 hours",
        "  thread                                last activity     checkpoints  writes      size  "
        "turns  conversations  command  project     note",
        "  554914d9-eb34-448d-85c5-10386c265d00  2026-10-30 12:00            3       5    2.6 KB  "
        "    1  10             code     /home/demo",
        "  da156fe5-db42-454a-8bcc-c912c1baff20  2026-10-21 12:00            9      14   25.1 KB  "
        "    2  8              code     /home/demo  awaiting an answer",
        "  8958c795-04a3-4ee6-844e-1a70d848efbe  2026-10-16 12:00           45      60  520.0 KB  "
        "    5  2              code     /home/demo",
        "history: will reclaim 3 threads (75 rows, 105.4 KB) that no one can resume, "
        "still for 24 hours",
        "  thread                                last activity     checkpoints  writes     size",
        "  5259a4ff-cf92-459d-8c1b-8f04299e0dad  2026-11-27 12:00           12      18  42.2 KB",
        "  95f2a367-0883-4fbd-8a02-71f9367bdacd  2026-11-29 11:59            6       9  12.2 KB",
        "  ec5e1760-50ba-4dc2-8c5e-091f78dcef1d  2026-10-01 12:00           12      18  51.0 KB",
        "history: 1 kept: unknown age",
        "  thread                                kept because",
        "  36b15dde-801e-4dc8-87ec-7006461f2257  unknown age",
        "This cannot be undone. Transcripts stay; the state that a resume needs goes.",
        "history: pruned 6 threads (211 rows, 653.0 KB) idle for 30 days and of command code, "
        "unresumable ones along with them; 1 kept: unknown age",
        f"history: file 1.4 MB before, {gaunt_sloth.stat().st_size / 1024:.1f} KB after, "
        "of which 0 bytes free inside",
        "history: vacuumed.",
    ]


def test_verbosity_0_says_the_outcome_alone_and_2_every_row(written_store: WriteStore) -> None:
    threads = [ThreadRows(thread_id=f"t{number:02}") for number in range(12)]
    written_store(threads, [ConversationRow(thread_id=thread.thread_id) for thread in threads])

    one = run("history_prune", "--all", "--dry-run")
    two = run("history_prune", "--all", "--dry-run", verbosity=2)
    zero = run("history_prune", "--all", "--no-input", verbosity=0)

    shown = [
        sum(line[:4] in ("  t0", "  t1") for line in ran.out.splitlines()) for ran in (one, two)
    ]
    assert shown == [10, 12]
    assert "  and 2 more; -v 2 shows all\n" in one.out
    assert zero.out.splitlines()[0].startswith("history: pruned 12 threads (24 rows, ")


def test_recently_active_threads_are_marked_in_the_text(written_store: WriteStore) -> None:
    written_store(
        [
            ThreadRows(thread_id="old"),
            ThreadRows(thread_id="fresh", age=timedelta(hours=1)),
        ],
        [
            ConversationRow(thread_id="old"),
            ConversationRow(thread_id="fresh", age=timedelta(hours=1)),
        ],
    )

    ran = run("history_prune", AS_OF, "--all", "--dry-run")

    marked = [line.split()[0] for line in ran.out.splitlines() if "recently active" in line]
    assert marked == ["fresh"]
    assert "1 within the last 24 hours" in ran.out


@pytest.mark.parametrize(
    ("days", "threads"),
    [
        (30, {"chat-400d", "errored", "forked", "interrupt-pending", "interrupt-resumed",
              "large-state", "subgraph-pending", "subgraph-resumed", "subgraph-stateful"}),
        (90, 5),
        (100, 3),
        (365, {"chat-400d"}),
    ],
)  # fmt: skip
def test_langgraphs_own_store_is_pruned_by_the_age_of_its_threads(
    fixture_store: Callable[[str], Path], days: int, threads: set[str] | int
) -> None:
    path = fixture_store("langgraph/lg-sqlite.db")
    before = threads_in(path) | threads_in(path, "writes")

    ran = run("history_prune", AS_OF, f"--older-than={days}", "--no-input", "--format=json")

    gone = before - (threads_in(path) | threads_in(path, "writes"))
    assert {row["thread_id"] for row in ran.document["prunable"]} == gone
    assert threads in (gone, len(gone))
    assert ran.document["removed"]["thread_count"] == len(gone)


@pytest.mark.parametrize(
    ("case", "flags", "taken", "kept"),
    [
        ("c03_last_activity.db", ["--older-than=30"], ["dead"], {}),
        (
            "c06_ts_formats.db",
            ["--older-than=30"],
            ["naive", "no-fraction", "plus", "z"],
            {"junk": "unknown_age", "epoch-int": "unknown_age"},
        ),
        (
            "c14_shared_thread.db",
            ["--older-than=30"],
            ["u"],
            {"t": "named_by_kept_conversation"},
        ),
        ("c14_shared_thread.db", ["--keep-last=1"], ["u"], {"t": "named_by_kept_conversation"}),
    ],
)
def test_what_users_of_langgraph_ran_into_comes_out_right(
    fixture_store: Callable[[str], Path],
    case: str,
    flags: list[str],
    taken: list[str],
    kept: dict[str, str],
) -> None:
    path = fixture_store(f"langgraph/cases/{case}")
    before = threads_in(path)

    ran = run("history_prune", AS_OF, "--no-input", "--format=json", *flags)

    assert sorted(row["thread_id"] for row in ran.document["prunable"]) == taken
    assert {row["thread_id"]: row["reason"] for row in ran.document["kept"]} == kept
    assert threads_in(path) == before - set(taken)


def test_a_hold_keeps_a_thread_and_the_report_says_so(written_store: WriteStore) -> None:
    path = written_store(
        [ThreadRows(thread_id="held"), ThreadRows(thread_id="free")],
        [ConversationRow(thread_id="held"), ConversationRow(thread_id="free")],
    )
    Hold.objects.create(store="history", thread_id="held", reason="an audit")

    ran = run("history_prune", "--older-than=30", "--no-input", verbosity=0)

    assert threads_in(path) == {"held"}
    assert ran.out.splitlines()[0] == (
        "history: pruned 1 thread (2 rows, 1.1 KB) idle for 30 days; 1 kept: held"
    )


def test_limit_takes_the_longest_idle_and_leaves_the_rest_for_the_next_run(
    written_store: WriteStore,
) -> None:
    threads = [
        ThreadRows(thread_id=f"t{days}", age=timedelta(days=days)) for days in (40, 50, 60, 70)
    ]
    path = written_store(
        threads,
        [ConversationRow(thread_id=thread.thread_id, age=timedelta(90)) for thread in threads],
    )

    first = run("history_prune", "--older-than=30", "--limit=3", "--no-input", "--format=json")
    left = threads_in(path)
    second = run("history_prune", "--older-than=30", "--limit=3", "--no-input", "--format=json")

    assert (first.document["removed"]["thread_count"], left) == (3, {"t40"})
    assert first.document["left_by_limit"] == {"thread_count": 1}
    assert (second.document["removed"]["thread_count"], threads_in(path)) == (1, set())
    assert second.document["left_by_limit"] == {"thread_count": 0}


def test_what_a_limit_leaves_is_said_before_and_after_a_run_and_only_then(
    written_store: WriteStore,
) -> None:
    threads = [ThreadRows(thread_id=f"t{number}") for number in range(6)]
    written_store(threads, [ConversationRow(thread_id="t0"), ConversationRow(thread_id="t1")])
    words = ("history_prune", "--older-than=30", "--no-vacuum")

    dry = run(*words, "--limit=1", "--dry-run")
    real = run(*words, "--limit=1", "--no-input")
    rest = run(*words, "--no-input")

    assert "history: 5 threads left by --limit 1 for the next run" in dry.out.splitlines()
    assert real.out.splitlines()[-3] == (
        "history: pruned 1 thread (2 rows, 1.1 KB) idle for 30 days; "
        "5 threads left by --limit 1 for the next run"
    )
    assert "pruned 5 threads" in rest.out
    assert "--limit" not in rest.out


def test_no_reclaim_leaves_what_no_one_can_resume(gaunt_sloth: Path) -> None:
    ran = run(
        "history_prune", AS_OF, "--older-than=30", "--no-reclaim", "--no-input", "--format=json"
    )

    assert ran.document["reclaimable"] == {"thread_count": 0, "bytes": 0}
    assert ran.document["removed"]["thread_count"] == 5


def test_no_vacuum_leaves_the_file_as_large_and_says_how_much_is_free(gaunt_sloth: Path) -> None:
    size = gaunt_sloth.stat().st_size

    ran = run("history_prune", AS_OF, "--older-than=30", "--no-input", "--no-vacuum")

    assert gaunt_sloth.stat().st_size == size
    assert ran.status == 0
    assert "history: not vacuumed, as asked; " in ran.out


def test_vacuum_false_from_python_means_no_vacuum(gaunt_sloth: Path) -> None:
    size = gaunt_sloth.stat().st_size

    run("history_prune", AS_OF, "--no-input", older_than=30, vacuum=False)

    assert gaunt_sloth.stat().st_size == size


def test_vacuum_with_nothing_to_prune_vacuums_what_is_free(gaunt_sloth: Path) -> None:
    run("history_prune", AS_OF, "--older-than=30", "--no-input", "--no-vacuum")
    size = gaunt_sloth.stat().st_size

    ran = run("history_prune", AS_OF, "--older-than=30", "--no-input", "--vacuum")

    assert (ran.status, gaunt_sloth.stat().st_size < size / 2) == (0, True)
    assert ran.out.splitlines()[-1] == "history: vacuumed."


def test_a_vacuum_that_was_asked_for_and_could_not_run_is_status_1_after_the_report(
    gaunt_sloth: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("history_retention.stores.sqlite_space.VACUUM_MARGIN", 10**12)

    asked = run(
        "history_prune", AS_OF, "--older-than=30", "--no-input", "--vacuum", "--format=json"
    )

    assert (asked.status, asked.document["removed"]["thread_count"]) == (1, 8)
    assert asked.document["vacuum"] == {"ran": False, "reason": asked.err.strip()}


def test_a_vacuum_that_nobody_asked_for_may_not_run_without_a_failure(
    gaunt_sloth: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("history_retention.stores.sqlite_space.VACUUM_MARGIN", 10**12)

    ran = run("history_prune", AS_OF, "--older-than=30", "--no-input", "--format=json")

    assert (ran.status, ran.document["vacuum"]["ran"]) == (0, False)


def test_a_sweep_is_on_record_with_its_bounds_and_its_trigger(gaunt_sloth: Path) -> None:
    run("history_prune", AS_OF, "--older-than=30", "--no-input")

    sweep = Sweep.objects.get()
    assert (sweep.kind, sweep.trigger, sweep.ending) == ("prune", "command", "done")
    assert (sweep.removed_threads, sweep.bounds) == (
        8,
        {"older_than_days": 30, "grace_hours": 24.0},
    )


def test_a_refused_delete_is_a_full_report_then_a_sentence_and_status_1(
    written_store: WriteStore,
) -> None:
    path = written_store(
        [ThreadRows(thread_id="a"), ThreadRows(thread_id="b")],
        [ConversationRow(thread_id="a"), ConversationRow(thread_id="b")],
    )
    with closing(sqlite3.connect(path)) as connection, connection:
        connection.execute(
            "CREATE TRIGGER keep BEFORE DELETE ON checkpoint_writes"
            " BEGIN SELECT RAISE(ABORT, 'not these'); END"
        )

    ran = run("history_prune", "--older-than=30", "--no-input", "--format=json")

    assert ran.status == 1
    assert list(ran.document) == PLAN_KEYS + OUTCOME_KEYS
    assert ran.document["removed"]["thread_count"] == 0
    assert len(ran.document["prunable"]) == 2
    assert (len(ran.err.splitlines()), "not these" in ran.err) == (1, True)
    assert threads_in(path) == threads_in(path, "checkpoint_writes") == {"a", "b"}


def test_a_partial_prune_says_how_far_it_came(
    written_store: WriteStore, retention: Callable[..., None]
) -> None:
    retention(BOX_SECONDS=0, GAP_SECONDS=0)
    path = written_store(
        [ThreadRows(thread_id="a"), ThreadRows(thread_id="b")],
        [ConversationRow(thread_id="a"), ConversationRow(thread_id="b")],
    )
    with closing(sqlite3.connect(path)) as connection, connection:
        connection.execute(
            "CREATE TRIGGER keep BEFORE DELETE ON checkpoints WHEN OLD.thread_id = 'b'"
            " BEGIN SELECT RAISE(ABORT, 'not this'); END"
        )

    ran = run("history_prune", "--older-than=30", "--no-input", verbosity=0)

    assert ran.status == 1
    assert ran.out.splitlines()[0] == (
        "history: pruned 1 thread (2 rows, 1.1 KB) idle for 30 days; "
        "incomplete after 1 of 2 threads"
    )
    assert "not this" in ran.err
    assert (threads_in(path), Sweep.objects.get().ending) == ({"b"}, "partial")


def test_without_a_terminal_and_without_no_input_nothing_happens_and_the_flag_is_named(
    gaunt_sloth: Path,
) -> None:
    before = gaunt_sloth.read_bytes()

    ran = run("history_prune", AS_OF, "--older-than=30")

    assert (ran.status, ran.out) == (1, "")
    assert ran.err == (
        "Nothing was removed. There is no terminal to ask for confirmation on: pass --no-input "
        "to go ahead without, or --dry-run to look.\n"
    )
    assert gaunt_sloth.read_bytes() == before


def test_a_store_that_lacks_the_naming_table_has_nothing_to_prune_and_says_why(
    written_store: WriteStore,
) -> None:
    path = written_store([ThreadRows(thread_id="t")], None)

    ran = run("history_prune", "--all", "--no-input")

    assert (ran.status, threads_in(path)) == (0, {"t"})
    assert "nothing to prune" in ran.out
    assert "conversations" in ran.err
