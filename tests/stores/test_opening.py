from __future__ import annotations

import sqlite3
from collections.abc import Callable
from contextlib import closing
from pathlib import Path

import pytest
from django.core.exceptions import ImproperlyConfigured
from django.db import connections

from history_retention import services
from history_retention.conf import StoreOptions
from history_retention.exceptions import LayoutUnknown, UsageError
from history_retention.stores import LAYOUTS, open_store
from history_retention.stores.gaunt_sloth import GauntSlothStore
from history_retention.stores.langgraph_sqlite import LangGraphSQLiteStore
from history_retention.stores.opening import layout_of

from ..conftest import WriteStore
from ..store_files import FIXTURES, NOW, Layout, ThreadRows, rows_of

STATE = ("thread_id", "checkpoint_ns", "checkpoint_id", "parent_checkpoint_id", "type")
CHECKPOINTS = (*STATE, "checkpoint", "metadata")
WRITES = (*STATE[:3], "task_id", "idx", "channel", "type", "value")


class SlothOfMyOwn(GauntSlothStore):
    """A layout that a project brings along."""

    layout = "my_sloth"


NO_LAYOUT = 5


def files(kind: str) -> list[str]:
    return sorted(
        str(path.relative_to(FIXTURES))
        for path in (FIXTURES / kind).rglob("*.db")
        if path.is_file()
    )


@pytest.mark.parametrize("name", files("langgraph"))
def test_every_langgraph_file_is_told_by_its_tables(
    fixture_store: Callable[[str], Path], name: str
) -> None:
    fixture_store(name)

    with open_store("history") as store:
        assert store.layout == "langgraph_sqlite"


@pytest.mark.parametrize("name", files("gaunt_sloth"))
def test_every_gaunt_sloth_file_is_told_by_its_tables(
    fixture_store: Callable[[str], Path], name: str
) -> None:
    fixture_store(name)

    with open_store("history") as store:
        assert store.layout == "gaunt_sloth"


def test_a_store_of_a_layout_that_is_not_known_is_left_alone(
    fixture_store: Callable[[str], Path],
) -> None:
    path = fixture_store("harness/v4-unrelated-db.before.sqlite")
    before = path.read_bytes()

    with (
        pytest.raises(LayoutUnknown, match=r"no history that this package knows .*its tables: "),
        open_store("history"),
    ):
        pytest.fail("it was opened")

    assert path.read_bytes() == before


@pytest.mark.parametrize(
    ("tables", "layout"),
    [
        ({"checkpoints": CHECKPOINTS, "checkpoint_writes": WRITES}, GauntSlothStore),
        ({"checkpoints": CHECKPOINTS, "writes": WRITES}, LangGraphSQLiteStore),
        ({"checkpoints": CHECKPOINTS, "writes": (*WRITES, "task_path")}, LangGraphSQLiteStore),
        ({"checkpoints": (*CHECKPOINTS, "more"), "writes": WRITES, "x": ()}, LangGraphSQLiteStore),
        ({"checkpoints": CHECKPOINTS}, None),
        ({"writes": WRITES}, None),
        ({"checkpoints": CHECKPOINTS[:-1], "writes": WRITES}, None),
        ({"checkpoints": CHECKPOINTS, "writes": WRITES[1:]}, None),
        ({"checkpoints": ("id", "name"), "checkpoint_writes": ("id",)}, None),
        ({}, None),
    ],
)
def test_a_layout_is_told_by_tables_and_columns(
    tables: dict[str, tuple[str, ...]], layout: type | None
) -> None:
    options = StoreOptions(alias="history")

    if layout is None:
        with pytest.raises(LayoutUnknown, match="nothing was touched"):
            layout_of(options, "sqlite", tables)
    else:
        assert layout_of(options, "sqlite", tables) is layout


def test_many_tables_are_not_all_listed() -> None:
    tables = {f"t{number:02}": () for number in range(30)}

    with pytest.raises(LayoutUnknown) as refused:
        layout_of(StoreOptions(alias="history"), "sqlite", tables)

    assert "its tables: t00, t01, t02, t03, t04, t05, t06, t07, …)" in str(refused.value)


@pytest.mark.parametrize("layout", ["gaunt_sloth", "langgraph_sqlite"])
def test_a_layout_asked_for_by_name_must_be_there(
    written_store: WriteStore, retention: Callable[..., None], layout: Layout
) -> None:
    other = next(name for name in LAYOUTS if name != layout)
    written_store([ThreadRows(thread_id="a")], layout=layout)

    retention(STORES={"history": {"LAYOUT": layout}})
    with open_store("history") as store:
        assert store.layout == layout
    retention(STORES={"history": {"LAYOUT": other}})
    with pytest.raises(LayoutUnknown, match=f"layout '{other}' are not all there"):
        services.measure("history", now=NOW)


def test_a_layout_of_a_projects_own_is_found_by_its_path(
    written_store: WriteStore, retention: Callable[..., None]
) -> None:
    written_store([ThreadRows(thread_id="a")])
    retention(STORES={"history": {"LAYOUT": f"{__name__}.SlothOfMyOwn"}})

    readout = services.measure("history", now=NOW, save=False)

    assert (readout.layout, readout.thread_count) == ("my_sloth", 1)


@pytest.mark.parametrize(
    ("layout", "told"),
    [
        (
            "no_such",
            "neither auto, nor one of gaunt_sloth, langgraph_sqlite, langgraph_",
        ),
        ("no.such.module.Layout", "nor a class to import"),
        (f"{__name__}.NoLayout", "nor a class to import"),
        (f"{__name__}.NO_LAYOUT", "is not a subclass of stores.base.Store"),
        ("history_retention.facts.Plan", "is not a subclass of stores.base.Store"),
    ],
)
def test_a_layout_that_is_none_is_named(
    written_store: WriteStore, retention: Callable[..., None], layout: str, told: str
) -> None:
    written_store()
    retention(STORES={"history": {"LAYOUT": layout}})

    with pytest.raises(ImproperlyConfigured, match=told):
        services.measure("history", now=NOW)


@pytest.mark.parametrize(
    "key",
    [
        "",
        ", PRIMARY KEY (checkpoint_id)",
        ", PRIMARY KEY (checkpoint_ns, thread_id, checkpoint_id)",
        ", PRIMARY KEY (thread_id COLLATE NOCASE, checkpoint_ns, checkpoint_id)",
    ],
)
def test_a_table_with_another_key_is_not_the_vendors_and_left_alone(
    written_store: WriteStore, key: str
) -> None:
    path = written_store()
    with closing(sqlite3.connect(path)) as connection, connection:
        connection.execute("DROP TABLE checkpoints")
        connection.execute(
            "CREATE TABLE checkpoints (thread_id TEXT, checkpoint_ns TEXT, checkpoint_id TEXT,"
            f" parent_checkpoint_id TEXT, type TEXT, checkpoint BLOB, metadata BLOB{key})"
        )
        connection.execute(
            "INSERT INTO checkpoints VALUES ('a', '', '1f14f8c6-ee96-6007-8000-000000000007', NULL,"
            " 'json', x'00', NULL)"
        )
    before = rows_of(path)

    with pytest.raises(LayoutUnknown, match="the primary key of checkpoints is not the one"):
        services.plan_reclaim("history", now=NOW)

    assert rows_of(path) == before


def test_a_table_that_is_a_view_is_no_table(written_store: WriteStore) -> None:
    path = written_store()
    with closing(sqlite3.connect(path)) as connection, connection:
        connection.execute("ALTER TABLE checkpoints RENAME TO kept")
        connection.execute("CREATE VIEW checkpoints AS SELECT * FROM kept")

    with pytest.raises(LayoutUnknown, match="no history that this package knows"):
        services.measure("history", now=NOW)


def test_a_store_in_memory_is_opened_without_looking_for_a_file(
    point_at: Callable[[Path], Path],
) -> None:
    point_at(Path(":memory:"))

    with pytest.raises(LayoutUnknown, match="it has no tables"):
        services.measure("history", now=NOW)


def test_a_database_of_another_kind_is_refused_before_it_is_reached(
    written_store: WriteStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    written_store()
    monkeypatch.setattr(connections["history"], "vendor", "oracle", raising=False)

    with pytest.raises(
        LayoutUnknown, match=r"no store of a kind known here lies in oracle, only in sql"
    ):
        services.measure("history", now=NOW)


class SlothInOracle(GauntSlothStore):
    """A layout of a database that the alias is not."""

    vendor = "oracle"


def test_a_layout_of_another_kind_of_database_is_refused(
    written_store: WriteStore, retention: Callable[..., None]
) -> None:
    path = written_store([ThreadRows(thread_id="a")])
    before = path.read_bytes()
    retention(STORES={"history": {"LAYOUT": f"{__name__}.SlothInOracle"}})

    with pytest.raises(LayoutUnknown, match=r"lies in oracle, and 'history' is sqlite; nothing"):
        services.plan_reclaim("history", now=NOW)

    assert path.read_bytes() == before


@pytest.mark.parametrize("alias", ["nowhere", "", "default"])
def test_an_alias_that_is_no_store_is_refused(written_store: WriteStore, alias: str) -> None:
    written_store()

    with pytest.raises(UsageError, match="is no store of"), open_store(alias):
        pytest.fail("it was opened")


@pytest.mark.parametrize(
    ("layout", "told"),
    [
        ("auto", r"of more than one layout \(gaunt_sloth, langgraph_sqlite\); nothing was touched"),
        (
            "gaunt_sloth",
            "beside checkpoint_writes there is the table writes with writes of",
        ),
        ("langgraph_sqlite", "beside writes there is the table checkpoint_writes with writes of"),
        (f"{__name__}.SlothOfMyOwn", "beside checkpoint_writes there is the table writes"),
    ],
)
def test_a_file_with_the_writes_of_both_layouts_is_left_alone(
    written_store: WriteStore, retention: Callable[..., None], layout: str, told: str
) -> None:
    path = written_store([ThreadRows(thread_id="a")])
    with closing(sqlite3.connect(path)) as connection, connection:
        connection.execute("CREATE TABLE writes AS SELECT * FROM checkpoint_writes")
    before = path.read_bytes()
    retention(STORES={"history": {"LAYOUT": layout}})

    with pytest.raises(LayoutUnknown, match=told):
        services.plan_reclaim("history", now=NOW)

    assert path.read_bytes() == before


def test_another_table_called_writes_is_none_of_a_threads(written_store: WriteStore) -> None:
    path = written_store([ThreadRows(thread_id="a")])
    with closing(sqlite3.connect(path)) as connection, connection:
        connection.execute("CREATE TABLE writes (id INTEGER PRIMARY KEY, author TEXT)")

    plan = services.plan_reclaim("history", now=NOW)

    assert [thread.thread_id for thread in plan.reclaimable] == ["a"]


def test_a_schema_of_a_file_is_refused_before_anything_is_read(
    written_store: Callable[..., Path], retention: Callable[..., None]
) -> None:
    path = written_store()
    retention(STORES={"history": {"SCHEMA": "agents"}})
    before = path.read_bytes()

    with (
        pytest.raises(UsageError, match=r"SCHEMA is 'agents', and only .* PostgreSQL has schemas"),
        open_store("history"),
    ):
        pytest.fail("it was opened")

    assert path.read_bytes() == before
