"""What every flag takes and refuses, from a shell and from ``call_command`` alike."""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, date, datetime
from pathlib import Path

import pytest

from .commands import run
from .conftest import WriteStore
from .store_files import ConversationRow, ThreadRows, threads_in

pytestmark = pytest.mark.usefixtures("frozen_clock")

WHOLE_NUMBER_FLAGS = {
    "--older-than": ("history_prune", "--no-input"),
    "--keep-last": ("history_prune", "--no-input"),
    "--limit": ("history_prune", "--no-input", "--all"),
    "--grace": ("history_reclaim", "--no-input"),
    "--top": ("history_readout",),
}
TEXT_FLAGS = {
    "--command": ("history_prune", "--all"),
    "--project": ("history_prune", "--all"),
    "--database": ("history_prune", "--all"),
}
COMMANDS = {
    "history_readout": (),
    "history_prune": ("--all",),
    "history_reclaim": (),
    "history_vacuum": (),
}
NO_NUMBERS = [
    "", " ", "-1", "0", "-0", "00", "0.5", "30.0", "1e3", "+30", "1_000", "0x1e", " 30", "30\n",
    "99999999999", "9" * 5_000, "-" + "9" * 30, "nan", "inf", "thirty",
    "30 days", "\uff13\uff10", "\u0663\u0660",
    "²", "\x00", "\udcff", "\x1b[2J", "'; DROP TABLE checkpoints; --",
]  # fmt: skip
NO_INSTANTS = [
    "", "now", "yesterday", "0", "1764504000", "2026-11-30", "20261130", "2026-W49-1",
    "2026-02-30T00:00:00Z", "2026-13-01T00:00:00Z", "2026-11-30T25:00:00Z",
    "2026-11-30T12:00:00+25:00", "2026-11-30T12:00:00ZZ", "11/30/2026 12:00",
    "0001-01-01T00:00:00+14:00", "9999-12-31T23:59:59-14:00", "1969-12-31T23:59:59Z",
    "\uff12\uff10\uff12\uff16-11-30T12:00:00Z", "2026-11-30T12:00:00Z\n", "\x1b[2J", "\udcff",
]  # fmt: skip


@pytest.fixture
def store(written_store: WriteStore) -> Path:
    """A store in which every command finds something."""
    return written_store(
        [ThreadRows(thread_id="named"), ThreadRows(thread_id="unnamed")],
        [ConversationRow(thread_id="named")],
    )


def refused(status: int, out: str, err: str, *words: str) -> bool:
    """Tell whether a command said one clean sentence with the words, and nothing else."""
    sentence = err.removesuffix("\n")
    return (
        status == 2
        and out == ""
        and sentence.isprintable()
        and len(sentence) < 250
        and sentence.endswith(".")
        and all(word in sentence for word in words)
    )


@pytest.mark.parametrize("value", NO_NUMBERS)
@pytest.mark.parametrize("flag", WHOLE_NUMBER_FLAGS)
def test_a_flag_refuses_what_is_no_whole_number_from_one(
    store: Path, flag: str, value: str
) -> None:
    ran = run(*WHOLE_NUMBER_FLAGS[flag], f"{flag}={value}")

    assert refused(ran.status, ran.out, ran.err, f"{flag} takes ", "from 1 to "), ran
    assert threads_in(store) == {"named", "unnamed"}


@pytest.mark.parametrize("value", [0, -1, 10**12, 0.5, 30.0, True, False, b"30", [30], "", "0"])
@pytest.mark.parametrize("flag", WHOLE_NUMBER_FLAGS)
def test_a_keyword_of_call_command_is_refused_like_its_flag(
    store: Path, flag: str, value: object
) -> None:
    keyword = flag.removeprefix("--").replace("-", "_")

    ran = run(*WHOLE_NUMBER_FLAGS[flag], **{keyword: value})

    assert refused(ran.status, ran.out, ran.err, f"{flag} takes ", "from 1 to "), ran
    assert threads_in(store) == {"named", "unnamed"}


@pytest.mark.parametrize("value", ["30", "030", 30])
def test_a_whole_number_is_taken_as_text_and_as_a_number(store: Path, value: object) -> None:
    ran = run("history_prune", "--dry-run", format="json", older_than=value)

    assert ran.document["bounds"]["older_than_days"] == 30


@pytest.mark.parametrize(
    ("flag", "highest"),
    [
        ("--older-than", 36_500),
        ("--keep-last", 10**9),
        ("--limit", 10**9),
        ("--grace", 876_000),
        ("--top", 100_000),
    ],
)
def test_a_whole_number_has_a_highest_value(store: Path, flag: str, highest: int) -> None:
    rehearsal = "--no-save" if flag == "--top" else "--dry-run"

    highest_taken = run(*WHOLE_NUMBER_FLAGS[flag], rehearsal, f"{flag}={highest}")
    next_one = run(*WHOLE_NUMBER_FLAGS[flag], rehearsal, f"{flag}={highest + 1}")

    assert highest_taken.status == 0
    assert refused(next_one.status, next_one.out, next_one.err, f"{highest:,}", str(highest + 1))


@pytest.mark.parametrize("value", NO_INSTANTS)
@pytest.mark.parametrize("command", COMMANDS)
def test_as_of_refuses_what_is_no_instant(store: Path, command: str, value: str) -> None:
    ran = run(command, *COMMANDS[command], f"--as-of={value}")

    assert refused(ran.status, ran.out, ran.err, "--as-of takes a date and a time"), ran
    assert threads_in(store) == {"named", "unnamed"}


@pytest.mark.parametrize("value", [0, 1764504000, 1.5, True, date(2026, 11, 30), b"2026"])
def test_as_of_refuses_a_keyword_that_is_no_instant(store: Path, value: object) -> None:
    ran = run("history_prune", "--all", as_of=value)

    assert refused(ran.status, ran.out, ran.err, "--as-of takes a date and a time"), ran


@pytest.mark.parametrize(
    ("value", "instant"),
    [
        ("2026-11-30T12:00:00Z", "2026-11-30T12:00:00.000Z"),
        ("2026-11-30T12:00:00", "2026-11-30T12:00:00.000Z"),
        ("2026-11-30 12:00", "2026-11-30T12:00:00.000Z"),
        ("2026-11-30T12:00:00.123456+05:30", "2026-11-30T06:30:00.123Z"),
        ("1970-01-01T00:00:00Z", "1970-01-01T00:00:00.000Z"),
        (datetime(2026, 11, 30, 12), "2026-11-30T12:00:00.000Z"),  # noqa: DTZ001
        (datetime(2026, 11, 30, 12, tzinfo=UTC), "2026-11-30T12:00:00.000Z"),
    ],
)
def test_as_of_is_an_instant_and_no_zone_means_utc(
    store: Path, value: object, instant: str
) -> None:
    ran = run("history_prune", "--all", "--dry-run", format="json", as_of=value)

    assert ran.document["as_of"] == instant


@pytest.mark.parametrize(
    ("command", "rehearsal"),
    [
        ("history_readout", "--no-save"),
        ("history_prune", "--dry-run"),
        ("history_reclaim", "--dry-run"),
        ("history_vacuum", "--dry-run"),
    ],
)
def test_a_future_as_of_needs_a_rehearsal(store: Path, command: str, rehearsal: str) -> None:
    future = "--as-of=9999-12-31T23:59:59Z"

    in_earnest = run(command, *COMMANDS[command], future)
    rehearsed = run(command, *COMMANDS[command], future, rehearsal)

    assert refused(in_earnest.status, in_earnest.out, in_earnest.err, "future", rehearsal)
    assert rehearsed.status == 0


@pytest.mark.parametrize("flag", TEXT_FLAGS)
@pytest.mark.parametrize("value", ["", 0, 30, True, b"chat", ["chat"]])
def test_a_text_flag_refuses_what_is_empty_or_no_text(
    store: Path, flag: str, value: object
) -> None:
    ran = run(*TEXT_FLAGS[flag], **{flag.removeprefix("--"): value})

    assert refused(ran.status, ran.out, ran.err, f"{flag} takes a text that is not empty"), ran
    assert threads_in(store) == {"named", "unnamed"}


@pytest.mark.parametrize("value", ["nope", "default", "HISTORY", " history", "../history", "é\x1b"])
@pytest.mark.parametrize("command", COMMANDS)
def test_an_alias_that_is_no_store_is_refused(store: Path, command: str, value: str) -> None:
    ran = run(command, *COMMANDS[command], f"--database={value}")

    assert refused(ran.status, ran.out, ran.err, "history"), ran


@pytest.mark.parametrize("value", ["", "xml", "JSON", "json ", 1, None, ["json"]])
@pytest.mark.parametrize("command", COMMANDS)
def test_a_format_that_is_neither_text_nor_json_is_refused(
    store: Path, command: str, value: object
) -> None:
    ran = run(command, *COMMANDS[command], format=value)

    assert refused(ran.status, ran.out, ran.err, "--format takes text or json"), ran


@pytest.mark.parametrize(
    ("command", "flags"),
    [
        ("history_readout", ["--no-save"]),
        (
            "history_prune",
            ["--dry-run", "--no-input", "--all", "--no-reclaim", "--vacuum", "--no-vacuum"],
        ),
        (
            "history_reclaim",
            ["--dry-run", "--no-input", "--force", "--orphan-writes", "--vacuum"],
        ),
        (
            "history_vacuum",
            ["--dry-run", "--no-input", "--incremental", "--enable-incremental", "--force"],
        ),
    ],
)
def test_a_switch_takes_no_value(store: Path, command: str, flags: list[str]) -> None:
    for flag in flags:
        keyword = flag.removeprefix("--").replace("-", "_")
        bounds = {"older_than": 30} if command == "history_prune" else {}

        ran = run(command, **bounds, **{keyword: "false"})

        assert refused(ran.status, ran.out, ran.err, f"{flag} is given or not"), (flag, ran)
    assert threads_in(store) == {"named", "unnamed"}


@pytest.mark.parametrize("value", [0, b"t", [1], ["a", None], {"a": 1}.items()])
def test_exclude_refuses_what_are_no_thread_ids(store: Path, value: object) -> None:
    ran = run("history_reclaim", exclude=value)

    assert refused(ran.status, ran.out, ran.err, "--exclude takes a thread id"), ran


@pytest.mark.parametrize(
    "bounds",
    [
        [],
        ["--command", "chat"],
        ["--project", "/srv/app"],
        ["--command", "chat", "--project", "/srv/app", "--limit", "5"],
        ["--no-reclaim", "--vacuum"],
    ],
)
def test_a_prune_without_a_bound_removes_nothing_and_names_the_bounds(
    store: Path, bounds: list[str]
) -> None:
    ran = run("history_prune", "--no-input", *bounds)

    assert refused(ran.status, ran.out, ran.err, "--older-than", "--keep-last", "--all"), ran
    assert threads_in(store) == {"named", "unnamed"}


@pytest.mark.parametrize("bound", ["--older-than=30", "--keep-last=1"])
def test_all_beside_another_bound_is_refused(store: Path, bound: str) -> None:
    ran = run("history_prune", "--no-input", "--all", bound)

    assert refused(ran.status, ran.out, ran.err, "--all"), ran
    assert threads_in(store) == {"named", "unnamed"}


def test_vacuum_beside_no_vacuum_is_refused(store: Path) -> None:
    ran = run("history_prune", "--no-input", "--all", "--vacuum", "--no-vacuum")

    assert refused(ran.status, ran.out, ran.err, "--vacuum", "--no-vacuum"), ran
    assert threads_in(store) == {"named", "unnamed"}


@pytest.mark.parametrize("other", ["--enable-incremental", "--force"])
def test_two_ways_to_vacuum_are_refused(store: Path, other: str) -> None:
    ran = run("history_vacuum", "--no-input", "--incremental", other)

    assert refused(ran.status, ran.out, ran.err, "--incremental", other), ran


def test_a_grace_below_the_setting_needs_force(store: Path) -> None:
    refusal = run("history_reclaim", "--dry-run", "--grace=23")
    forced = run("history_reclaim", "--dry-run", "--grace=23", "--force")

    assert refused(refusal.status, refusal.out, refusal.err, "--force"), refusal
    assert forced.status == 0


def test_flags_may_not_be_shortened(store: Path) -> None:
    ran = run("history_prune", "--older=30", "--no-input")

    assert (ran.status, threads_in(store)) == (1, {"named", "unnamed"})


@pytest.mark.parametrize("keyword", [{"no_input": True}, {"interactive": False}])
def test_call_command_says_no_input_in_two_ways(store: Path, keyword: dict[str, bool]) -> None:
    ran = run("history_prune", all=True, **keyword)

    assert (ran.status, threads_in(store)) == (0, set())


def test_no_input_has_the_spelling_of_djangos_own_commands(store: Path) -> None:
    ran = run("history_prune", "--all", "--noinput")

    assert (ran.status, threads_in(store)) == (0, set())


@pytest.mark.parametrize(
    ("keywords", "left"),
    [({"no_reclaim": True}, {"unnamed"}), ({"no_reclaim": False}, set())],
)
def test_call_command_takes_a_negated_flag_by_its_own_name(
    store: Path, keywords: dict[str, bool], left: set[str]
) -> None:
    run("history_prune", "--no-input", all=True, **keywords)

    assert threads_in(store) == left


def test_every_message_of_a_missing_store_setting_is_a_sentence(
    store: Path, retention: Callable[..., None]
) -> None:
    retention(STORES={})

    ran = run("history_readout")

    assert refused(ran.status, ran.out, ran.err, "STORES")


def test_a_wrong_setting_is_a_sentence_that_names_the_key(
    store: Path, retention: Callable[..., None]
) -> None:
    retention(GRACE=24)

    ran = run("history_readout")

    assert (ran.status, ran.out) == (1, "")
    assert "HISTORY_RETENTION['GRACE']" in ran.err
