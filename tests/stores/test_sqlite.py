from __future__ import annotations

import sqlite3
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
from django.db import connections
from django.db.backends.base.base import BaseDatabaseWrapper
from django.db.backends.signals import connection_created

from history_retention import services
from history_retention.exceptions import StoreBusy, StoreUnreadable, SweepRunning
from history_retention.locks import only_one
from history_retention.policy import Bounds
from history_retention.services import Trigger
from history_retention.stores import open_store
from history_retention.stores.sqlite import SQLiteFile, encoded, is_plain, opened, sort_key

from ..conftest import WriteStore
from ..store_files import NOW, ConversationRow, ThreadRows, copy_fixture, rows_of, threads_in

WORK: dict[str, Callable[[], object]] = {
    "readout": lambda: services.measure("history", now=NOW, save=False),
    "plan": lambda: services.plan_prune("history", Bounds(older_than_days=30), now=NOW),
    "reclaim": lambda: services.plan_reclaim("history", now=NOW),
    "forecast": lambda: services.vacuum_forecast("history"),
}


@pytest.mark.parametrize("work", WORK)
@pytest.mark.parametrize(
    "fixture", ["gaunt_sloth/history.db", "langgraph/lg-sqlite-with-conversations.db"]
)
def test_looking_at_a_store_leaves_every_byte_and_no_file_beside_it(
    point_at: Callable[[Path], Path], tmp_path: Path, work: str, fixture: str
) -> None:
    (tmp_path / "folder").mkdir()
    path = point_at(copy_fixture(fixture, tmp_path / "folder"))
    before = path.read_bytes()

    WORK[work]()

    assert path.read_bytes() == before
    assert [each.name for each in path.parent.iterdir()] == [path.name]


@pytest.mark.parametrize("work", WORK)
def test_looking_for_a_store_that_is_not_there_creates_nothing(
    point_at: Callable[[Path], Path], tmp_path: Path, work: str
) -> None:
    point_at(tmp_path / "no" / "history.db")

    with pytest.raises(Exception, match="there is no file"):
        WORK[work]()

    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("journal_mode", ["delete", "wal"])
def test_a_sweep_changes_nothing_that_the_file_says_of_itself(
    written_store: WriteStore, journal_mode: str
) -> None:
    names = ("user_version", "application_id", "auto_vacuum", "journal_mode", "page_size")
    path = written_store([ThreadRows(thread_id="a")], journal_mode=journal_mode)
    with closing(sqlite3.connect(path)) as connection:
        connection.execute("PRAGMA user_version = 7")
        connection.execute("PRAGMA application_id = 1196643443")

    def said() -> list[object]:
        with closing(sqlite3.connect(path)) as connection:
            told = [connection.execute(f"PRAGMA {name}").fetchone()[0] for name in names]
        return [*told, rows_of(path)["sqlite_master"]]

    before = said()

    services.execute(services.plan_reclaim("history", now=NOW), trigger=Trigger.CODE)
    left = [each.name for each in path.parent.iterdir()]

    assert said() == before
    assert before[:4] == [7, 1196643443, 0, journal_mode]
    assert (threads_in(path), left) == (set(), [path.name])


@pytest.mark.parametrize(("setting", "value"), [("fast", 2), ("on", 1)])
def test_freed_bytes_are_overwritten_as_the_setting_says(
    written_store: WriteStore, retention: Callable[..., None], setting: str, value: int
) -> None:
    written_store()
    retention(SECURE_DELETE=setting)

    with opened("history") as file:
        assert file.value("PRAGMA secure_delete") == value


def test_secure_delete_on_leaves_nothing_of_a_thread_in_the_file(
    written_store: WriteStore, retention: Callable[..., None]
) -> None:
    path = written_store([ThreadRows(thread_id="a", size=30_000), ThreadRows(thread_id="b")])
    with closing(sqlite3.connect(path)) as connection, connection:
        connection.execute(
            "UPDATE checkpoints SET checkpoint = CAST(? AS BLOB) WHERE thread_id = 'a'",
            ["the secret word " * 2_000],
        )
    retention(SECURE_DELETE="on")
    plan = services.plan_reclaim("history", now=NOW)
    assert b"the secret word" in path.read_bytes()

    services.execute(plan, trigger=Trigger.CODE, vacuum=False)

    assert b"the secret word" not in path.read_bytes()


def test_a_store_opened_twice_is_read_by_both(written_store: WriteStore) -> None:
    written_store([ThreadRows(thread_id="a")])

    with open_store("history") as one, open_store("history") as other:
        counts = [len(list(store.indexed_threads(services.silent))) for store in (one, other)]

    assert counts == [1, 1]


def test_every_connection_to_a_store_is_closed_again(written_store: WriteStore) -> None:
    written_store([ThreadRows(thread_id="a")])
    opened_: list[BaseDatabaseWrapper] = []

    def remember(connection: BaseDatabaseWrapper, **_kwargs: Any) -> None:
        opened_.append(connection)

    connection_created.connect(remember)
    try:
        services.execute(services.plan_reclaim("history", now=NOW), trigger=Trigger.CODE)
    finally:
        connection_created.disconnect(remember)

    assert len(opened_) == 2
    assert [each.connection for each in opened_] == [None, None]


@pytest.mark.parametrize("name", ["with space.db", "größe ☃.db", "a?b#c%41.db", "a'b.db", "-x.db"])
def test_a_file_of_any_name_is_opened_and_no_other_created(
    point_at: Callable[[Path], Path], tmp_path: Path, name: str
) -> None:
    copy = copy_fixture("gaunt_sloth/history.db", tmp_path)
    path = point_at(copy.rename(tmp_path / name))

    assert services.measure("history", now=NOW, save=False).thread_count == 16
    assert [each.name for each in tmp_path.iterdir()] == [path.name]


def test_a_uri_is_opened_as_it_stands(point_at: Callable[[Path], Path], tmp_path: Path) -> None:
    path = copy_fixture("gaunt_sloth/history.db", tmp_path)
    point_at(Path("x"))
    connections.databases["history"]["NAME"] = f"file:{path}?mode=ro"
    connections["history"] = connections.create_connection("history")

    assert services.measure("history", now=NOW, save=False).thread_count == 16
    plan = services.plan_reclaim("history", now=NOW)
    outcome = services.execute(plan, trigger=Trigger.CODE)

    assert "is read-only here" in outcome.error
    assert outcome.removed.thread_count == 0


def test_a_link_to_a_store_is_the_store(point_at: Callable[[Path], Path], tmp_path: Path) -> None:
    copy = copy_fixture("gaunt_sloth/history.db", tmp_path)
    link = tmp_path / "link.db"
    link.symlink_to(copy)
    point_at(link)

    with (
        open_store("history") as store,
        store.only_one("sweep"),
        pytest.raises(SweepRunning, match="another sweep of this store"),
        only_one("sweep", "history", str(copy.resolve())),
    ):
        pytest.fail("two swept it at once")


def test_a_store_of_another_encoding_is_refused(
    point_at: Callable[[Path], Path], tmp_path: Path
) -> None:
    path = tmp_path / "store.db"
    with closing(sqlite3.connect(path)) as connection:
        connection.execute("PRAGMA encoding = 'UTF-16le'")
        connection.execute("CREATE TABLE t (a)")
    point_at(path)

    with pytest.raises(StoreUnreadable, match="is not encoded as UTF-8"):
        services.measure("history", now=NOW, save=False)


def test_a_transaction_that_fails_is_rolled_back_and_the_lock_let_go(
    written_store: WriteStore,
) -> None:
    path = written_store([ThreadRows(thread_id="a")])
    before = rows_of(path)

    def broken(file: SQLiteFile, statement: str) -> None:
        with file.removing():
            file.run("DELETE FROM checkpoints")
            file.run(statement % ())

    with opened("history") as file:
        with pytest.raises(StoreUnreadable, match="refused a statement"):
            broken(file, "DELETE FROM nowhere")
        with pytest.raises(TypeError):
            broken(file, "no statement at all: %s")
        with closing(sqlite3.connect(path, timeout=0)) as agent, agent:
            agent.execute("BEGIN IMMEDIATE")

    assert rows_of(path) == before


def test_a_write_lock_that_another_holds_is_a_sentence(
    written_store: WriteStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = written_store([ThreadRows(thread_id="a")])
    monkeypatch.setitem(connections["history"].settings_dict, "OPTIONS", {"timeout": 0})

    with closing(sqlite3.connect(path, isolation_level=None)) as agent, opened("history") as file:
        agent.execute("BEGIN IMMEDIATE")
        with pytest.raises(StoreBusy, match="is locked by another process"), file.removing():
            pytest.fail("both hold the write lock")


@pytest.mark.parametrize(
    ("thread_id", "bound", "plain"),
    [
        ("", "", True),
        ("日本語🧵", "日本語🧵", True),
        ("a\x00", "a\x00", False),
        ("\udcff", b"\xff", False),
        ("\udce9t\udce9", b"\xe9t\xe9", False),
    ],
)
def test_an_id_is_bound_as_its_own_bytes(thread_id: str, bound: str | bytes, plain: bool) -> None:
    assert (encoded(thread_id), is_plain(thread_id)) == (bound, plain)
    assert sort_key(thread_id) == (bound if isinstance(bound, bytes) else bound.encode())


@pytest.mark.parametrize(
    ("payload", "size", "first"),
    [
        (b"0123456789", 4, b"0123"),
        (b"01", 4, b"01"),
        (b"", 4, b""),
        (b"x" * 100_000, 200, b"x" * 200),
        ("größe", 4, "größe".encode()[:4]),
        (None, 4, b""),
        (5, 4, b""),
        (1.5, 4, b""),
    ],
)
def test_the_first_bytes_of_a_payload_of_any_kind(
    written_store: WriteStore, payload: object, size: int, first: bytes
) -> None:
    path = written_store(
        [ThreadRows(thread_id="a", checkpoints=1)], [ConversationRow(thread_id="a")]
    )
    with closing(sqlite3.connect(path)) as connection, connection:
        connection.execute("UPDATE checkpoints SET rowid = 9, checkpoint = ?", [payload])

    with opened("history") as file:
        assert file.first_bytes("checkpoints", "checkpoint", 9, size) == first
