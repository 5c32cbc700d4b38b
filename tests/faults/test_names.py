"""Every NAME that a database may have: opened as SQLite would, and never created."""

from __future__ import annotations

import os
import sqlite3
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from urllib.parse import quote

import pytest
from django.db import connections

from history_retention.stores import open_store

from ..commands import run
from ..store_files import ConversationRow, ThreadRows, rows_of, threads_in, write_store
from .commands import EVERY_COMMAND, PRUNE, READOUT, refusal, sentence

pytestmark = pytest.mark.usefixtures("frozen_clock")

THREADS = [ThreadRows(thread_id="named"), ThreadRows(thread_id="unnamed")]
NAMES = [ConversationRow(thread_id="named")]
Namer = Callable[..., None]

ODD_NAMES = [
    "plain.db", "with space.db", " space first", "question?mode=ro.db", "hash#tag.db", "100%.db",
    "%41.db", "a&b=c;d.db", "quote'\".db", "back\\slash.db", "new\nline.db", "\u00e9\U0001f4bb.db",
    "-flag", "file:looks like a URI", "x:y", "no text \udcff.db", "l" * 240,
]  # fmt: skip


@pytest.mark.parametrize("name", ODD_NAMES, ids=lambda name: ascii(name)[:30])
@pytest.mark.parametrize("kind", [str, Path, "relative", "symlink", "URI"])
def test_a_store_of_any_name_is_opened_pruned_and_locked_as_itself(
    name_store: Namer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str, kind: object
) -> None:
    folder = tmp_path / "folder"
    folder.mkdir()
    path = write_store(tmp_path / "plain", THREADS, NAMES).rename(folder / name)
    given: object = path
    if kind is str:
        given = str(path)
    elif kind == "relative":
        monkeypatch.chdir(folder)
        given = f"./{name}"
    elif kind == "symlink":
        given = tmp_path / "link"
        tmp_path.joinpath("link").symlink_to(path)
    elif kind == "URI":
        given = f"file:{quote(os.fsencode(path))}?mode=rw"
    name_store(given)

    readout, pruned = run(*READOUT, "--format=json"), run(*PRUNE, "--format=json")

    assert (readout.status, pruned.status) == (0, 0), readout.err + pruned.err
    assert readout.document["file_bytes"] == pruned.document["file_bytes_before"] > 8_192
    assert pruned.document["removed"]["thread_count"] == 2
    assert [entry.name for entry in folder.iterdir()] == [name]
    path.rename(tmp_path / "plain")
    assert threads_in(tmp_path / "plain") == set()


@pytest.mark.parametrize(
    "name",
    [
        "{folder}/absent.db", "{folder}/absent/absent.db", "{folder}/dangling", "{folder}/loop",
        "{folder}/there.db/below.db", "{folder}/{long}", "file:{folder}/absent.db",
        "file:{folder}/absent.db?mode=rwc", "file:{folder}/a%62sent.db", "{folder}/nul\0.db",
        "file:{folder}/there.db%00.db", "file://[bad", "file://elsewhere{folder}/there.db",
        "file:{folder}/there.db?vfs=none", "~/absent.db", "{folder}/", "file:", "file:///",
    ],
)  # fmt: skip
@EVERY_COMMAND
def test_a_name_that_leads_to_no_store_is_a_sentence_and_creates_nothing(
    name_store: Namer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str, words: list[str]
) -> None:
    folder = tmp_path / "folder"
    folder.mkdir()
    monkeypatch.chdir(folder)
    write_store(folder / "there.db", THREADS, NAMES)
    (folder / "dangling").symlink_to(folder / "absent.db")
    (folder / "loop").symlink_to(folder / "loop")
    before = sorted(folder.iterdir())
    name_store(name.format(folder=folder, long="l" * 300))

    ran = run(*words)

    assert refusal(ran)
    assert sorted(folder.iterdir()) == before


@pytest.mark.parametrize("name", ["", ":memory:", "file::memory:?cache=shared",
                                  "file:x?mode=memory&cache=shared"])  # fmt: skip
@EVERY_COMMAND
def test_a_database_in_memory_is_no_store_and_leaves_no_file(
    name_store: Namer,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    name: object,
    words: list[str],
) -> None:
    monkeypatch.chdir(tmp_path)
    name_store(name)

    ran = run(*words)

    assert (ran.status, ran.out, len(ran.err.splitlines())) == (1, "", 1)
    assert list(tmp_path.iterdir()) == []


def test_a_uri_that_only_reads_is_read_and_never_written(name_store: Namer, tmp_path: Path) -> None:
    path = write_store(tmp_path / "history.db", THREADS, NAMES)
    before = rows_of(path)
    name_store(f"{path.as_uri()}?mode=ro")

    readout, pruned = run(*READOUT), run(*PRUNE)

    assert readout.status == 0
    assert f"{path} is read-only here" in sentence(pruned)
    assert rows_of(path) == before


def test_a_store_that_is_replaced_by_another_file_is_read_anew(
    name_store: Namer, tmp_path: Path
) -> None:
    path = write_store(tmp_path / "history.db", THREADS, NAMES)
    name_store(str(path))
    assert run(*READOUT, "--format=json").document["thread_count"] == 2
    write_store(tmp_path / "other.db", THREADS[:1], []).replace(path)

    assert run(*READOUT, "--format=json").document["thread_count"] == 1


@pytest.mark.parametrize("other", ["same", "symlink", "URI"])
def test_two_aliases_of_one_file_share_its_lock(
    name_store: Namer,
    retention: Callable[..., None],
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
    other: str,
) -> None:
    path = write_store(tmp_path / "history.db", THREADS, NAMES)
    name_store(str(path))
    (tmp_path / "link.db").symlink_to(path)
    names = {"same": path, "symlink": tmp_path / "link.db", "URI": f"{path.as_uri()}?mode=rw"}
    again = {**connections.databases["history"], "NAME": names[other]}
    monkeypatch.setitem(connections.databases, "again", again)
    connections["again"] = connections.create_connection("again")
    retention(STORES={"history": {}, "again": {}})

    with open_store("history") as store, store.only_one("sweep"):
        ran = run(*PRUNE, "--database=again")

    assert "another sweep of this store is running" in ran.err
    assert threads_in(path) == {"named", "unnamed"}
    assert run(*PRUNE, "--database=again").status == 0
    assert threads_in(path) == set()


def test_a_hard_link_is_another_lock_and_still_the_same_rows(
    name_store: Namer, tmp_path: Path
) -> None:
    path = write_store(tmp_path / "history.db", THREADS, NAMES)
    os.link(path, tmp_path / "second.db")
    name_store(str(tmp_path / "second.db"))

    assert run(*PRUNE, "--no-vacuum").status == 0
    with closing(sqlite3.connect(path)) as connection:
        assert connection.execute("SELECT COUNT(*) FROM checkpoints").fetchone() == (0,)
