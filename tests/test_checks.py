"""What ``manage.py check`` says, with the line to add."""

from __future__ import annotations

import io
import sqlite3
from collections.abc import Callable
from contextlib import closing
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from django.core.checks import CheckMessage, run_checks
from django.core.management import call_command
from django.db import connections, models
from django.db.utils import ConnectionRouter
from pytest_django import Settings as ProjectSettings

from history_retention import checks, services
from history_retention.checks import check_settings
from history_retention.policy import Bounds
from history_retention.store_checks import check_stores

from .conftest import WriteStore
from .store_files import NOW, ConversationRow, ThreadRows

pytestmark = pytest.mark.django_db(databases=["default", "history"])

Retention = Callable[..., None]
FixtureStore = Callable[[str], Path]
PointAt = Callable[[Path], Path]


def said(messages: list[CheckMessage]) -> list[str]:
    """Return the numbers of the messages."""
    return [str(message.id).removeprefix("history_retention.") for message in messages]


def store_said() -> list[CheckMessage]:
    """Check the store that the test points at."""
    return check_stores(databases=["history"])


def altered(path: Path, *sql: str) -> None:
    """Change the tables of a file to what another version of its agent had created."""
    with closing(sqlite3.connect(path)) as connection:
        for statement in sql:
            connection.execute(statement)
        connection.commit()


@pytest.fixture
def store(written_store: WriteStore) -> Path:
    """A store with nothing amiss."""
    return written_store([ThreadRows(thread_id="a")], [ConversationRow(thread_id="a")])


def test_the_bundled_project_has_nothing_to_say() -> None:
    told = io.StringIO()

    call_command("check", fail_level="WARNING", stdout=told)

    assert told.getvalue() == "System check identified no issues (0 silenced).\n"


def test_a_plain_check_opens_no_store(point_at: PointAt, tmp_path: Path) -> None:
    path = tmp_path / "notes.db"
    path.write_text("not a database " * 100)
    point_at(path)

    assert run_checks() == []


def test_both_kinds_of_checks_run_with_djangos_own(retention: Retention, store: Path) -> None:
    altered(store, "DROP INDEX idx_conversations_thread_id")
    retention(STORES={"gone": {}, "history": {}})

    found = run_checks(databases=["history"])

    assert sorted(said(found)) == ["E002", "W005"]


def test_wrong_settings_are_an_error_that_names_the_key(retention: Retention) -> None:
    retention(GRACE=24)

    (message,) = check_settings()

    assert said([message]) == ["E001"]
    assert message.msg == ("HISTORY_RETENTION['GRACE'] takes a timedelta longer than zero, not 24.")
    assert message.hint == 'HISTORY_RETENTION = {"STORES": {"history": {}}}'


def test_wrong_settings_are_said_once_even_with_databases(retention: Retention) -> None:
    retention(GRACE=24)

    assert said(run_checks(databases=["history"])) == ["E001"]


def test_settings_without_a_store_are_a_warning(settings: ProjectSettings) -> None:
    del settings.HISTORY_RETENTION

    (message,) = check_settings()

    assert said([message]) == ["W001"]
    assert message.hint == 'HISTORY_RETENTION = {"STORES": {"history": {}}}'


def test_a_store_that_is_no_database_is_an_error_with_the_entry_to_add(
    retention: Retention,
) -> None:
    retention(STORES={"gone": {}, "history": {}})

    (message,) = check_settings()

    assert said([message]) == ["E002"]
    assert "'gone', which is no database of DATABASES" in message.msg
    assert str(message.hint).startswith('DATABASES["gone"] = {"ENGINE": ')


def test_a_schema_of_a_file_is_an_error(retention: Retention, store: Path) -> None:
    retention(STORES={"history": {"SCHEMA": "agents"}})

    (message,) = check_settings()

    assert message.id == "history_retention.E012"
    assert "['SCHEMA'] is 'agents', and a file of SQLite has no schemas" in message.msg
    assert message.hint == "remove SCHEMA from the options of 'history'"


def test_a_store_that_is_no_database_is_not_looked_into(retention: Retention) -> None:
    retention(STORES={"gone": {}})

    assert check_stores(databases=["gone"]) == []


def test_a_missing_router_is_an_error_with_the_line_to_add(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(checks, "router", ConnectionRouter([]))

    (message,) = check_settings()

    assert said([message]) == ["E003"]
    assert message.hint == 'DATABASE_ROUTERS = ["history_retention.routers.HistoryRouter"]'


@pytest.mark.parametrize(
    "layout", ["gaunt-sloth", "AUTO", "no.such.module.Layout", "django.db.models.Model"]
)
def test_an_unknown_layout_is_an_error_that_lists_the_known_ones(
    retention: Retention, layout: str
) -> None:
    retention(STORES={"history": {"LAYOUT": layout}})

    (message,) = check_settings()

    assert said([message]) == ["E004"]
    assert repr(layout) in message.msg
    assert message.hint == (
        '"LAYOUT": "auto", or one of gaunt_sloth, langgraph_sqlite, langgraph_postgres, '
        "openclaw, harness"
    )


@pytest.mark.parametrize(
    "layout",
    [
        "auto",
        "gaunt_sloth",
        "langgraph_sqlite",
        "history_retention.stores.gaunt_sloth.GauntSlothStore",
    ],
)
def test_a_known_layout_is_fine(retention: Retention, layout: str) -> None:
    retention(STORES={"history": {"LAYOUT": layout}})

    assert check_settings() == []


@pytest.mark.parametrize("model", ["chat.Conversation", "auth.Conversation"])
def test_a_model_that_is_not_there_is_an_error(retention: Retention, model: str) -> None:
    retention(STORES={"history": {"CONVERSATIONS": {"MODEL": model}}})

    (message,) = check_settings()

    assert said([message]) == ["E005"]
    assert message.msg.startswith("HISTORY_RETENTION['STORES']['history']['CONVERSATIONS']: ")
    assert message.hint == '"MODEL": "your_app.Conversation"'


@pytest.mark.parametrize(
    ("option", "name"),
    [
        ("THREAD_FIELD", "thread"),
        ("THREAD_FIELD", "user__username"),
        ("ACTIVITY_FIELD", "seen"),
        ("LABEL_FIELD", "user__nickname"),
        ("LABEL_FIELD", "id__username"),
        ("PROJECT_FIELD", "__"),
    ],
)
def test_a_field_that_is_not_there_is_an_error_that_lists_those_that_are(
    retention: Retention, option: str, name: str
) -> None:
    source = {"MODEL": "admin.LogEntry", "THREAD_FIELD": "id", option: name}
    retention(STORES={"history": {"CONVERSATIONS": source}})

    (message,) = check_settings()

    assert said([message]) == ["E006"]
    assert f"['CONVERSATIONS']['{option}']: admin.LogEntry has no field '{name}'." in message.msg
    assert str(message.hint).startswith(f'"{option}": one of id, action_time, user, ')


@pytest.mark.parametrize("option", ["THREAD_FIELD", "LABEL_FIELD"])
def test_a_relation_from_elsewhere_is_no_field(retention: Retention, option: str) -> None:
    source = {"MODEL": "auth.User", "THREAD_FIELD": "username", option: "logentry"}
    retention(STORES={"history": {"CONVERSATIONS": source}})

    assert said(check_settings()) == ["E006"]


def test_fields_that_are_there_are_fine(retention: Retention) -> None:
    source = {
        "MODEL": "admin.LogEntry",
        "THREAD_FIELD": "pk",
        "ACTIVITY_FIELD": "action_time",
        "LABEL_FIELD": "user__username",
        "PROJECT_FIELD": "user_id",
    }
    retention(STORES={"history": {"CONVERSATIONS": [source, source]}})

    assert check_settings() == []


@pytest.mark.parametrize("databases", [None, [], ["default"]])
def test_a_store_that_was_not_asked_for_is_not_looked_into(
    point_at: PointAt, tmp_path: Path, databases: list[str] | None
) -> None:
    point_at(tmp_path / "none.db")

    assert check_stores(databases=databases) == []


def test_a_store_with_nothing_amiss_has_nothing_to_say(store: Path) -> None:
    assert store_said() == []


@pytest.mark.parametrize(
    "fixture", ["gaunt_sloth/history.db", "langgraph/lg-sqlite-with-conversations.db"]
)
def test_the_vendors_own_files_have_nothing_amiss_and_stay_as_they_are(
    fixture_store: FixtureStore, fixture: str
) -> None:
    path = fixture_store(fixture)
    before = path.read_bytes()

    found = store_said()
    connections["history"].close()

    assert found == []
    assert path.read_bytes() == before


def test_a_missing_file_is_an_error_with_its_path_and_is_not_created(
    point_at: PointAt, tmp_path: Path
) -> None:
    path = point_at(tmp_path / "none.db")

    (message,) = store_said()

    assert said([message]) == ["E009"]
    assert message.msg.startswith(f"history: there is no file {path}; none was created")
    assert message.hint == 'DATABASES["history"]["NAME"] = "/path/to/history.db"'
    assert list(tmp_path.iterdir()) == []


def test_a_database_without_tables_is_a_warning(point_at: PointAt, tmp_path: Path) -> None:
    path = tmp_path / "empty.db"
    path.touch()
    point_at(path)

    (message,) = store_said()

    assert said([message]) == ["W003"]
    assert path.stat().st_size == 0


def test_a_database_of_something_else_is_an_error(point_at: PointAt, tmp_path: Path) -> None:
    path = tmp_path / "shop.db"
    altered(path, "CREATE TABLE orders (id INTEGER)")
    point_at(path)

    (message,) = store_said()

    assert said([message]) == ["E007"]
    assert "its tables: orders" in message.msg


def test_state_tables_that_lack_columns_are_an_error_that_names_them(store: Path) -> None:
    altered(
        store,
        "ALTER TABLE checkpoints DROP COLUMN metadata",
        "ALTER TABLE checkpoint_writes DROP COLUMN value",
    )

    (message,) = store_said()

    assert said([message]) == ["E007"]
    assert "Table checkpoints lacks metadata. Table checkpoint_writes lacks value." in message.msg


def test_a_column_that_only_newer_savers_have_is_not_missed(fixture_store: FixtureStore) -> None:
    path = fixture_store("langgraph/lg-sqlite-v1.0.4.db")
    altered(path, "ALTER TABLE writes DROP COLUMN value")

    (message,) = store_said()

    assert message.msg.endswith("Table writes lacks value.")


def test_a_layout_whose_tables_are_not_there_is_an_error(retention: Retention, store: Path) -> None:
    retention(STORES={"history": {"LAYOUT": "langgraph_sqlite"}})

    (message,) = store_said()

    assert said([message]) == ["E007"]
    assert "layout 'langgraph_sqlite' are not all there" in message.msg


def test_a_layout_that_does_not_exist_is_left_to_the_settings_check(
    retention: Retention, store: Path
) -> None:
    retention(STORES={"history": {"LAYOUT": "no_such_layout"}})

    assert store_said() == []


@pytest.mark.parametrize("kind", ["text", "folder"])
def test_a_file_that_is_no_database_is_an_error(
    point_at: PointAt, tmp_path: Path, kind: str
) -> None:
    path = tmp_path / "notes.db"
    if kind == "folder":
        path.mkdir()
    else:
        path.write_text("not a database " * 100)
    point_at(path)

    (message,) = store_said()

    assert said([message]) == ["E008"]
    assert str(path) in message.msg


def test_a_store_on_another_kind_of_database_is_an_error_without_connecting(
    point_at: PointAt, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(connections.databases["history"], "ENGINE", "django.db.backends.dummy")
    point_at(tmp_path / "none.db")

    (message,) = store_said()

    assert said([message]) == ["E007"]
    assert "no store of a kind known here lies in unknown, only in sqlite and" in message.msg


def test_a_locked_store_is_a_warning(store: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(connections["history"].settings_dict, "OPTIONS", {"timeout": 0})
    with closing(sqlite3.connect(store)) as other:
        other.execute("BEGIN EXCLUSIVE")

        (message,) = store_said()

    assert said([message]) == ["W002"]
    assert message.hint == "manage.py check --database history"


def test_a_langgraph_store_that_nothing_names_is_a_warning_with_the_option_to_add(
    fixture_store: FixtureStore,
) -> None:
    fixture_store("langgraph/lg-sqlite.db")

    (message,) = store_said()

    assert said([message]) == ["W004"]
    assert message.hint == (
        '"CONVERSATIONS": {"MODEL": "your_app.Conversation", "THREAD_FIELD": "thread_id"}'
    )


def test_a_gaunt_sloth_store_that_lacks_the_thread_column_is_a_warning(store: Path) -> None:
    altered(
        store,
        "DROP INDEX idx_conversations_thread_id",
        "ALTER TABLE conversations DROP COLUMN thread_id",
    )

    (message,) = store_said()

    assert said([message]) == ["W004"]
    assert "no column thread_id in conversations" in message.msg
    assert message.hint == "manage.py history_reclaim --database history --orphan-writes"


@pytest.mark.parametrize(
    "index",
    [
        "",
        "CREATE INDEX other ON conversations(project)",
        "CREATE INDEX other ON conversations(project, thread_id)",
    ],
)
def test_no_index_on_the_thread_column_is_a_warning_with_the_statement(
    store: Path, index: str
) -> None:
    altered(store, "DROP INDEX idx_conversations_thread_id", index)

    (message,) = store_said()

    assert said([message]) == ["W005"]
    assert message.hint == ("CREATE INDEX idx_conversations_thread_id ON conversations(thread_id);")


@pytest.mark.parametrize(
    "index",
    [
        "CREATE INDEX other ON conversations(thread_id, project)",
        "CREATE UNIQUE INDEX other ON conversations(thread_id)",
    ],
)
def test_any_index_that_starts_with_the_thread_column_is_enough(store: Path, index: str) -> None:
    altered(store, "DROP INDEX idx_conversations_thread_id", index)

    assert store_said() == []


def test_the_statement_in_the_hint_ends_the_warning(store: Path) -> None:
    altered(store, "DROP INDEX idx_conversations_thread_id")
    (message,) = store_said()

    altered(store, str(message.hint))

    assert store_said() == []


@pytest.mark.parametrize(
    ("table", "column", "consequence"),
    [
        ("sessions", "conversation_id", "a conversation counts as active when it started"),
        ("conversations", "started_ts", "without a turn tells no time and its thread is never"),
    ],
)
def test_columns_that_tell_the_time_are_missed_and_what_follows_is_said(
    store: Path, table: str, column: str, consequence: str
) -> None:
    altered(store, f"ALTER TABLE {table} DROP COLUMN {column}")

    (message,) = store_said()

    assert said([message]) == ["W006"]
    assert f"table {table} lacks {column}" in message.msg
    assert consequence in message.msg


@pytest.mark.parametrize("turns", [[], [timedelta(days=40)]])
def test_what_is_said_to_follow_from_a_missing_start_does_follow(
    written_store: WriteStore, turns: list[timedelta]
) -> None:
    path = written_store([ThreadRows(thread_id="a")], [ConversationRow(thread_id="a", turns=turns)])
    altered(path, "ALTER TABLE conversations DROP COLUMN started_ts")

    plan = services.plan_prune("history", Bounds(everything=True), now=NOW)

    assert len(plan.prunable) == len(turns)


class Unindexed(models.Model):
    """A model whose columns have no index, or one that serves no search by the column."""

    plain = models.TextField()
    second = models.TextField()
    partial = models.TextField()

    class Meta:
        app_label = "hostapp"
        managed = False
        indexes = [
            models.Index(fields=["id", "second"], name="second_after_id"),
            models.Index(fields=["partial"], condition=models.Q(id__gt=1), name="not_all_of_it"),
        ]

    def __str__(self) -> str:
        return self.plain


class Indexed(models.Model):
    """A model whose columns have each an index, in each of the ways to ask for one."""

    unique = models.TextField(unique=True)
    column = models.TextField(db_index=True)
    relation: models.ForeignKey[Any, Any] = models.ForeignKey(Unindexed, models.CASCADE)
    listed = models.TextField()
    constrained = models.TextField()
    together = models.TextField()

    class Meta:
        app_label = "hostapp"
        managed = False
        indexes = [models.Index(fields=["-listed", "id"], name="listed_first")]
        constraints = [models.UniqueConstraint(fields=["constrained", "id"], name="constrained")]
        unique_together = [("together", "id")]

    def __str__(self) -> str:
        return self.unique


@pytest.mark.parametrize("name", ["plain", "second", "partial"])
def test_a_thread_field_without_an_index_is_a_warning_with_the_line(
    retention: Retention, name: str
) -> None:
    source = {"MODEL": "hostapp.Unindexed", "THREAD_FIELD": name}
    retention(STORES={"history": {"CONVERSATIONS": source}})

    (message,) = check_settings()

    assert said([message]) == ["W007"]
    assert f"hostapp.Unindexed.{name} has no index" in message.msg
    assert message.hint == f"{name} = models.TextField(..., db_index=True)"


@pytest.mark.parametrize(
    "name", ["pk", "id", "unique", "column", "relation", "listed", "constrained", "together"]
)
def test_a_thread_field_that_an_index_starts_with_is_fine(retention: Retention, name: str) -> None:
    source = {"MODEL": "hostapp.Indexed", "THREAD_FIELD": name}
    retention(STORES={"history": {"CONVERSATIONS": source}})

    assert check_settings() == []
