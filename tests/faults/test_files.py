"""Files that are no store, not any more, or not for us to write: one sentence, nothing changed."""

from __future__ import annotations

import os
import socket
import sqlite3
from collections import Counter
from collections.abc import Callable
from contextlib import closing, suppress
from datetime import timedelta
from pathlib import Path

import pytest

from history_retention.models import Sweep

from ..commands import run
from ..conftest import WriteStore
from ..store_files import ConversationRow, ThreadRows
from .commands import EVERY_COMMAND, READING_COMMANDS, refusal

pytestmark = pytest.mark.usefixtures("frozen_clock")

MAGIC = b"SQLite format 3\0"

THREADS = [ThreadRows(thread_id=f"t{number:03}", size=600, writes=2) for number in range(60)]
FRESH = [ThreadRows(thread_id=f"fresh{number}", age=timedelta(hours=1)) for number in range(5)]
NAMES = [ConversationRow(thread_id=thread.thread_id) for thread in [*THREADS[:30], *FRESH]]


@EVERY_COMMAND
def test_a_missing_file_is_named_and_not_created(
    point_at: Callable[[Path], Path], tmp_path: Path, words: list[str]
) -> None:
    point_at(tmp_path / "nowhere" / "history.db")

    ran = run(*words)

    assert f"there is no file {tmp_path}/nowhere/history.db; none was created" in refusal(ran)
    assert list(tmp_path.iterdir()) == []
    assert Sweep.objects.count() == 0


@EVERY_COMMAND
@pytest.mark.parametrize("kind", ["folder", "pipe", "socket", "device", "device without end"])
def test_what_is_no_regular_file_is_said_and_never_waited_for(
    point_at: Callable[[Path], Path], tmp_path: Path, words: list[str], kind: str
) -> None:
    path = tmp_path / "history.db"
    if kind == "folder":
        path.mkdir()
    elif kind == "pipe":
        os.mkfifo(path)
    elif kind == "socket":
        with socket.socket(socket.AF_UNIX) as listener:
            listener.bind(str(path))
    else:
        path = Path("/dev/zero" if kind == "device without end" else "/dev/null")
    point_at(path)

    ran = run(*words)

    what = "is a folder" if kind == "folder" else "is not a regular file"
    assert f"{path} {what}" in refusal(ran)
    assert [entry.name for entry in tmp_path.rglob("*")] == (
        [] if kind.startswith("device") else ["history.db"]
    )


@EVERY_COMMAND
@pytest.mark.parametrize(
    "content",
    [b"not a database\n" * 100, MAGIC, MAGIC + b"\xff" * 8_000, b"\0" * 8_192],
    ids=["text", "magic", "magic and noise", "zeros"],
)
def test_a_file_that_is_no_database_is_said_and_left_byte_for_byte(
    point_at: Callable[[Path], Path], tmp_path: Path, words: list[str], content: bytes
) -> None:
    path = point_at(tmp_path / "history.db")
    path.write_bytes(content)

    ran = run(*words)

    assert f"{path} is not a SQLite database" in refusal(ran)
    assert path.read_bytes() == content
    assert [entry.name for entry in tmp_path.iterdir()] == ["history.db"]


@EVERY_COMMAND
@pytest.mark.parametrize("content", [b"", b"\0"])
def test_a_file_shorter_than_any_database_has_no_tables_and_keeps_its_bytes(
    point_at: Callable[[Path], Path], tmp_path: Path, words: list[str], content: bytes
) -> None:
    path = point_at(tmp_path / "history.db")
    path.write_bytes(content)

    ran = run(*words)

    assert "(it has no tables); nothing was touched" in refusal(ran)
    assert path.read_bytes() == content
    assert [entry.name for entry in tmp_path.iterdir()] == ["history.db"]


@EVERY_COMMAND
def test_a_database_of_something_else_is_listed_and_left_byte_for_byte(
    point_at: Callable[[Path], Path], tmp_path: Path, words: list[str]
) -> None:
    path = point_at(tmp_path / "bookmarks.db")
    with closing(sqlite3.connect(path)) as connection, connection:
        connection.execute("CREATE TABLE bookmarks (url TEXT)")
        connection.execute("CREATE TABLE checkpoints (id INTEGER PRIMARY KEY, lap_time REAL)")
        connection.execute("INSERT INTO checkpoints VALUES (1, 61.2)")
    before = path.read_bytes()

    ran = run(*words)

    assert "(its tables: bookmarks, checkpoints); nothing was touched" in refusal(ran)
    assert path.read_bytes() == before


@READING_COMMANDS
@pytest.mark.parametrize("left", [16, 99, 100, 511, 4_095, 4_096, 4_097, 0.3, 0.5, 0.9])
def test_a_truncated_database_is_said_and_loses_nothing_more(
    written_store: WriteStore, words: list[str], left: float
) -> None:
    path = written_store(THREADS, NAMES)
    size = path.stat().st_size
    os.truncate(path, int(left if left >= 1 else size * left))
    before = path.read_bytes()

    ran = run(*words)

    assert str(path) in refusal(ran)
    assert path.read_bytes() == before


@pytest.mark.parametrize("noise", [b"\0", b"\xff", bytes(range(256))])
def test_a_damaged_page_anywhere_never_costs_a_thread_that_was_not_planned(
    written_store: WriteStore, noise: bytes
) -> None:
    path = written_store([*THREADS, *FRESH], NAMES)
    sound = path.read_bytes()
    fresh = {thread.thread_id for thread in FRESH}
    endings = Counter[int]()
    for start in range(4_096, len(sound), 4_096):
        damaged = sound[:start] + (noise * 4_096)[:4_096] + sound[start + 4_096 :]
        path.write_bytes(damaged)
        there = fresh & threads_read(path)

        ran = run("history_prune", "--older-than=30", "--no-input", "--no-vacuum")

        endings[ran.status] += 1
        assert ran.status == 0 or ran.err.splitlines()[-1].endswith(".")
        assert there <= threads_read(path)
    assert set(endings) == {0, 1}


def threads_read(path: Path) -> set[str]:
    """Return the threads that a plain scan of the checkpoints finds before it meets damage."""
    found = set()
    with closing(sqlite3.connect(path)) as connection, suppress(sqlite3.DatabaseError):
        for (thread_id,) in connection.execute("SELECT thread_id FROM checkpoints NOT INDEXED"):
            found.add(thread_id)
    return found
