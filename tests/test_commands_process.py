"""The commands as programs: exit status, terminal, signals, pipes."""

from __future__ import annotations

import json
import os
import pty
import re
import signal
import sqlite3
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing, contextmanager, suppress
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from history_retention.management.commands._terminal import StopRequests
from history_retention.models import Sweep

from .commands import PROJECT, Ran, environment, manage, run
from .conftest import WriteStore
from .store_files import ConversationRow, ThreadRows, add_threads, threads_in, write_store

FIRST_THREAD = "t0000"
LARGE = 1_200


@pytest.fixture
def small(tmp_path: Path) -> Path:
    """A store with one thread that can be resumed and one that cannot, both idle for 40 days."""
    return write_store(
        tmp_path / "small.db",
        [ThreadRows(thread_id="named"), ThreadRows(thread_id="unnamed")],
        [ConversationRow(thread_id="named")],
        now=datetime.now(UTC),
    )


@pytest.fixture
def large(tmp_path: Path) -> Path:
    """A store whose threads take many boxes to remove."""
    return write_store(
        tmp_path / "large.db",
        [ThreadRows(thread_id=f"t{number:04}", writes=3) for number in range(LARGE)],
        now=datetime.now(UTC) - timedelta(days=3),
    )


class Terminal:
    """A command that runs on a terminal."""

    def __init__(self, process: subprocess.Popen[bytes], descriptor: int) -> None:
        self.process = process
        self.seen = ""
        self._descriptor = descriptor

    def wait_for(self, words: str) -> None:
        """Read until the words are there."""
        while words not in self.seen:
            assert self._read(), f"{words!r} never came after {self.seen!r}"

    def answer(self, text: str) -> None:
        """Type a line."""
        os.write(self._descriptor, text.encode())

    def end(self) -> int:
        """Read to the end and return the exit status."""
        while self._read():
            pass
        return self.process.wait(timeout=60)

    def _read(self) -> bool:
        try:
            piece = os.read(self._descriptor, 65_536)
        except OSError:  # the program is gone
            return False
        self.seen += piece.decode().replace("\r\n", "\n")
        return bool(piece)


@pytest.fixture
def terminal() -> Iterator[Callable[..., Terminal]]:
    """Start ``manage.py`` on a terminal of its own; ``stdout`` may be a pipe."""
    started: list[tuple[subprocess.Popen[bytes], int]] = []

    def start(*args: str, store: Path, ledger: Path, stdout: int | None = None) -> Terminal:
        ours, theirs = pty.openpty()
        process = subprocess.Popen(
            [sys.executable, "manage.py", *args],
            cwd=PROJECT,
            env=environment(store, ledger) | {"TERM": "dumb", "DJANGO_COLORS": "nocolor"},
            stdin=theirs,
            stdout=theirs if stdout is None else stdout,
            stderr=theirs,
            start_new_session=True,
        )
        os.close(theirs)
        started.append((process, ours))
        return Terminal(process, ours)

    yield start
    for process, descriptor in started:
        with suppress(ProcessLookupError):
            process.kill()
        process.wait()
        os.close(descriptor)


@pytest.mark.parametrize(
    ("args", "status"),
    [
        (["history_readout"], 0),
        (["history_readout", "--top=0"], 2),
        (["history_readout", "--top"], 2),
        (["history_readout", "--database=nope"], 2),
        (["history_prune"], 2),
        (["history_prune", "--older-than=0"], 2),
        (["history_prune", "--older-than=\uff13\uff10"], 2),
        (["history_prune", "--bogus"], 2),
        (["history_prune", "--older-than=30"], 1),
        (["history_prune", "--older-than=30", "--dry-run"], 0),
        (["history_prune", "--older-than=9999", "--no-input"], 0),
        (["history_reclaim", "--grace=1", "--no-input"], 2),
        (["history_reclaim", "--no-input"], 0),
        (["history_vacuum"], 1),
        (["history_vacuum", "--dry-run"], 0),
    ],
)
def test_the_exit_status_tells_done_from_refused_from_misused(
    small: Path, ledger: Path, args: list[str], status: int
) -> None:
    ran = manage(*args, store=small, ledger=ledger)

    assert ran.status == status, ran
    assert "Traceback" not in ran.err
    assert (ran.err == "") is (status == 0)
    assert status == 0 or ran.out == ""


@pytest.mark.parametrize("command", ["history_readout", "history_reclaim", "history_vacuum"])
def test_a_store_that_is_not_there_is_one_sentence_and_stays_away(
    tmp_path: Path, ledger: Path, command: str
) -> None:
    absent = tmp_path / "absent.db"
    noinput = [] if command == "history_readout" else ["--no-input"]

    ran = manage(command, *noinput, store=absent, ledger=ledger)

    assert (ran.status, ran.out, absent.exists()) == (1, "", False)
    assert ran.err.startswith("CommandError: history: ")
    assert len(ran.err.splitlines()) == 1


def test_a_ledger_without_tables_says_to_migrate(small: Path, tmp_path: Path) -> None:
    ran = manage("history_readout", store=small, ledger=tmp_path / "empty.sqlite3")

    assert (ran.status, ran.out, len(ran.err.splitlines())) == (1, "", 1)
    assert "migrate" in ran.err


def test_json_is_alone_on_stdout_and_the_run_is_real(small: Path, ledger: Path) -> None:
    ran = manage("history_prune", "--older-than=30", "--no-input", "--format=json",
                 store=small, ledger=ledger)  # fmt: skip

    assert (ran.status, ran.err) == (0, "")
    assert ran.document["removed"]["thread_count"] == 2
    assert threads_in(small) == set()


def test_thread_ids_from_the_shell_need_not_be_text(tmp_path: Path, ledger: Path) -> None:
    store = write_store(tmp_path / "store.db", [ThreadRows(thread_id="plain")])
    with closing(sqlite3.connect(store)) as connection, connection:
        for table in ("checkpoints", "checkpoint_writes"):
            connection.execute(f"UPDATE {table} SET thread_id = CAST(X'ff41' AS TEXT)")

    every = manage("history_reclaim", "--dry-run", "--format=json", store=store, ledger=ledger)
    but_one = manage("history_reclaim", "--dry-run", "--format=json", "--exclude", "\udcffA",
                     store=store, ledger=ledger)  # fmt: skip

    assert every.document["kept"] == [{"thread_id": "\udcffA", "reason": "unknown_age"}]
    assert but_one.document["kept"] == []


def test_an_ascii_terminal_gets_escapes_instead_of_an_error(tmp_path: Path, ledger: Path) -> None:
    store = write_store(tmp_path / "store.db", [ThreadRows(thread_id="日本語🧵")])

    ran = manage("history_readout", store=store, ledger=ledger,
                 env={"PYTHONIOENCODING": "ascii:strict"})  # fmt: skip

    assert ran.status == 0
    assert "\\u65e5\\u672c\\u8a9e\\U0001f9f5" in ran.out


@pytest.mark.parametrize(
    "args",
    [
        ["history_readout", "--top=1200"],
        ["history_reclaim", "--dry-run", "-v2"],
        ["history_reclaim", "--no-input", "-v2"],
    ],
)
def test_a_reader_that_leaves_ends_nothing_and_raises_nothing(
    large: Path, ledger: Path, args: list[str]
) -> None:
    with subprocess.Popen(
        [sys.executable, "manage.py", *args],
        cwd=PROJECT,
        env=environment(large, ledger),
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    ) as process:
        assert process.stdout is not None
        assert process.stderr is not None
        process.stdout.read(10)
        process.stdout.close()
        error = process.stderr.read()

    assert (process.returncode, error) == (0, b"")
    assert (threads_in(large) == set()) is ("--no-input" in args)


def test_an_output_that_cannot_be_written_is_a_sentence(small: Path, ledger: Path) -> None:
    with Path("/dev/full").open("w") as full:
        done = subprocess.run(
            [sys.executable, "manage.py", "history_readout"],
            cwd=PROJECT,
            env=environment(small, ledger),
            stdout=full,
            stderr=subprocess.PIPE,
            text=True,
            check=False,
            timeout=60,
        )

    assert done.returncode == 1
    assert done.stderr == (
        "CommandError: The output could not be written: No space left on device. "
        "Nothing was kept.\n"
    )


def test_yes_on_a_terminal_removes_what_was_shown(
    terminal: Callable[..., Terminal], small: Path, ledger: Path
) -> None:
    command = terminal("history_prune", "--older-than=30", store=small, ledger=ledger)
    command.wait_for("Type 'yes' to go on: ")
    shown = command.seen

    command.answer("yes\n")
    status = command.end()

    assert "history: will prune 1 thread (2 rows, " in shown
    assert "history: will reclaim 1 thread (2 rows, " in shown
    assert "Remove 2 threads (2.2 KB) from history?" in shown
    assert (status, threads_in(small)) == (0, set())
    assert "history: pruned 2 threads (4 rows, " in command.seen


@pytest.mark.parametrize("answer", ["no\n", "\n", "y\n", "yes!\n", "yes no\n", "\x04"])
def test_any_other_answer_removes_nothing(
    terminal: Callable[..., Terminal], small: Path, ledger: Path, answer: str
) -> None:
    command = terminal("history_prune", "--older-than=30", store=small, ledger=ledger)
    command.wait_for("Type 'yes' to go on: ")

    command.answer(answer)
    status = command.end()

    assert (status, threads_in(small)) == (1, {"named", "unnamed"})
    assert command.seen.endswith("Nothing was removed. The answer was not yes.\n")


def test_ctrl_c_at_the_question_removes_nothing(
    terminal: Callable[..., Terminal], small: Path, ledger: Path
) -> None:
    command = terminal("history_prune", "--older-than=30", store=small, ledger=ledger)
    command.wait_for("Type 'yes' to go on: ")

    command.process.send_signal(signal.SIGINT)
    status = command.end()

    assert (status, threads_in(small)) == (1, {"named", "unnamed"})
    assert command.seen.endswith("CommandError: Interrupted. Nothing was removed.\n")
    assert "Traceback" not in command.seen


def test_a_question_beside_json_is_not_on_stdout(
    terminal: Callable[..., Terminal], small: Path, ledger: Path, tmp_path: Path
) -> None:
    with (tmp_path / "out.json").open("w") as out:
        command = terminal(
            "history_prune", "--older-than=30", "--format=json",
            store=small, ledger=ledger, stdout=out.fileno(),
        )  # fmt: skip
        command.wait_for("Type 'yes' to go on: ")
        command.answer("yes\n")
        status = command.end()
    document = json.loads((tmp_path / "out.json").read_text())

    assert "history: will prune 1 thread" in command.seen
    assert (status, document["removed"]["thread_count"]) == (0, 2)


def test_nothing_to_prune_asks_nothing(
    terminal: Callable[..., Terminal], small: Path, ledger: Path
) -> None:
    command = terminal(
        "history_prune", "--older-than=9999", "--no-reclaim", store=small, ledger=ledger
    )

    assert command.end() == 0
    assert "history: nothing to prune idle for 9,999 days\n" in command.seen
    assert "Type 'yes'" not in command.seen


def test_a_vacuum_asks_too(terminal: Callable[..., Terminal], small: Path, ledger: Path) -> None:
    add_threads(small, [ThreadRows(thread_id="gone", size=100_000)])
    manage("history_prune", "--all", "--no-input", "--no-vacuum", store=small, ledger=ledger)
    size = small.stat().st_size
    command = terminal("history_vacuum", store=small, ledger=ledger)
    command.wait_for("Vacuum history? Type 'yes' to go on: ")

    command.answer("no\n")

    assert (command.end(), small.stat().st_size) == (1, size)


def test_progress_is_shown_on_a_terminal_and_wiped(
    terminal: Callable[..., Terminal], large: Path, ledger: Path
) -> None:
    command = terminal("history_reclaim", "--no-input", store=large, ledger=ledger)

    assert command.end() == 0
    counts = re.findall(r"\rremoving ([\d,]+) of 1,200", command.seen)
    assert counts != []
    last = command.seen.split("\r")
    assert last[-2].isspace()
    assert last[-1].startswith("history: reclaimed 1,200 threads (4,800 rows, 1.5 MB) that ")


@pytest.mark.parametrize("extra", [["--format=json"], ["-v0"]])
def test_no_progress_for_json_or_in_silence(
    terminal: Callable[..., Terminal], large: Path, ledger: Path, extra: list[str]
) -> None:
    command = terminal("history_reclaim", "--no-input", *extra, store=large, ledger=ledger)

    assert command.end() == 0
    assert "\r" not in command.seen
    assert "removing" not in command.seen


@contextmanager
def removing(large: Path, ledger: Path, *args: str) -> Iterator[subprocess.Popen[str]]:
    """Run a reclaim in a pipe until it has removed its first thread."""
    with subprocess.Popen(
        [sys.executable, "manage.py", "history_reclaim", "--no-input", *args],
        cwd=PROJECT,
        env=environment(large, ledger),
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    ) as process:
        with closing(sqlite3.connect(large, timeout=30)) as connection:
            while connection.execute(
                "SELECT 1 FROM checkpoints WHERE thread_id = ?", (FIRST_THREAD,)
            ).fetchone():
                assert process.poll() is None
        yield process


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_the_first_signal_ends_it_after_the_current_batch_with_a_true_report(
    large: Path, ledger: Path, number: signal.Signals
) -> None:
    with removing(large, ledger, "--format=json") as process:
        process.send_signal(number)
        out, err = process.communicate(timeout=60)
    ran = Ran(status=process.returncode, out=out, err=err)

    left = threads_in(large)
    assert (ran.status, threads_in(large, "checkpoint_writes")) == (1, left)
    assert 0 < len(left) < LARGE
    assert ran.document["removed"]["thread_count"] == LARGE - len(left)
    assert ran.document["removed"]["write_count"] == 3 * (LARGE - len(left))
    assert ran.err == (
        f"CommandError: Interrupted after {LARGE - len(left):,} of 1,200 threads; "
        "run the same command again to finish.\n"
    )
    with closing(sqlite3.connect(ledger)) as connection:
        assert connection.execute(
            "SELECT ending, removed_threads FROM history_retention_sweep"
        ).fetchall() == [("interrupted", LARGE - len(left))]


def test_a_second_signal_ends_it_at_once_with_every_thread_whole(
    written_store: WriteStore, retention: Callable[..., None]
) -> None:
    retention(BOX_SECONDS=0, GAP_SECONDS=60)
    path = written_store(
        [ThreadRows(thread_id="a"), ThreadRows(thread_id="b")], now=datetime.now(UTC)
    )
    before = signal.getsignal(signal.SIGINT)

    def interrupt_twice() -> None:
        while threads_in(path) == {"a", "b"}:
            pass
        stop = getattr(signal.getsignal(signal.SIGINT), "__self__")  # noqa: B009
        os.kill(os.getpid(), signal.SIGINT)
        while not stop():
            pass
        os.kill(os.getpid(), signal.SIGINT)

    thread = threading.Thread(target=interrupt_twice)
    thread.start()
    ran = run("history_reclaim", "--no-input", "--format=json")
    thread.join()

    assert (ran.status, ran.out) == (1, "")
    assert ran.err == (
        "Interrupted. Every thread is whole or gone, and what was removed is on record; "
        "run the same command again to finish.\n"
    )
    assert threads_in(path) == threads_in(path, "checkpoint_writes") == {"b"}
    assert (Sweep.objects.get().ending, Sweep.objects.get().removed_threads) == ("interrupted", 1)
    assert signal.getsignal(signal.SIGINT) is before


def test_a_signal_that_was_ignored_stays_ignored() -> None:
    before = signal.signal(signal.SIGTERM, signal.SIG_IGN)
    try:
        with StopRequests() as stop:
            os.kill(os.getpid(), signal.SIGTERM)
            asked = stop()
    finally:
        signal.signal(signal.SIGTERM, before)

    assert not asked


def test_only_the_main_thread_listens_to_signals() -> None:
    before = signal.getsignal(signal.SIGINT)

    def look() -> object:
        with StopRequests():
            return signal.getsignal(signal.SIGINT)

    with ThreadPoolExecutor(1) as pool:
        assert pool.submit(look).result() is before


def test_what_was_interrupted_is_finished_by_the_next_run(large: Path, ledger: Path) -> None:
    with removing(large, ledger) as process:
        process.send_signal(signal.SIGINT)
        process.communicate(timeout=60)
    left = len(threads_in(large))

    ran = manage("history_reclaim", "--no-input", "--format=json", store=large, ledger=ledger)

    assert (ran.status, ran.document["removed"]["thread_count"]) == (0, left)
    assert threads_in(large) == set()
