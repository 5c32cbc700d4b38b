"""Where models live, and that no command of Django's reaches into a store."""

from __future__ import annotations

import io
import json
import sqlite3
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
from django.contrib.auth.models import User
from django.core.management import call_command
from django.db import connections, models, router
from django.db.utils import ConnectionRouter

from history_retention.exceptions import UsageError
from history_retention.migrating import leave_store_alone
from history_retention.models import (
    Checkpoint,
    CheckpointWrite,
    Conversation,
    Hold,
    LangGraphWrite,
    Lease,
    Measurement,
    Session,
    Sweep,
    Thread,
)
from history_retention.routers import HistoryRouter

from .commands import manage
from .store_files import copy_fixture

pytestmark = pytest.mark.django_db(databases=["default", "history", "replica"])

Retention = Callable[..., None]
FixtureStore = Callable[[str], Path]

VENDOR: list[type[models.Model]] = [
    Checkpoint,
    CheckpointWrite,
    LangGraphWrite,
    Conversation,
    Session,
]
LEDGER: list[type[models.Model]] = [Thread, Measurement, Sweep, Hold, Lease]


def contents(folder: Path) -> dict[str, bytes]:
    """Return every file of a folder, byte for byte, but for what SQLite keeps while it is open."""
    files = {path.name: path.read_bytes() for path in folder.iterdir() if path.is_file()}
    return {
        name: content
        for name, content in files.items()
        if not name.endswith("-shm") and (content or not name.endswith("-wal"))
    }


def sqlite_rows(path: Path) -> dict[str, list[Any]]:
    """Return all rows of the tables that agents write."""
    with closing(sqlite3.connect(path)) as connection:
        return {
            model._meta.db_table: connection.execute(
                f"SELECT * FROM {model._meta.db_table}"
            ).fetchall()
            for model in (Checkpoint, LangGraphWrite, Conversation, Session)
        }


@pytest.mark.parametrize("model", VENDOR)
def test_an_agents_rows_are_read_from_the_first_store(
    retention: Retention, model: type[models.Model]
) -> None:
    retention(STORES={"history": {}, "default": {}})

    assert router.db_for_read(model) == "history"


def test_without_a_store_reading_an_agents_rows_says_what_to_configure(
    retention: Retention,
) -> None:
    retention(STORES={})

    with pytest.raises(UsageError, match="names no store: add the alias"):
        list(Checkpoint.objects.all())


def test_rows_related_to_an_agents_row_are_read_from_its_own_store(retention: Retention) -> None:
    retention(STORES={"history": {}, "default": {}})
    conversation = Conversation(id=1)
    conversation._state.db = "default"

    assert conversation.turns.all().db == "default"


class Elsewhere:
    """A router of the project's that sends everything to one database."""

    def db_for_read(self, model: type[models.Model], **hints: Any) -> str:
        return "history"

    db_for_write = db_for_read


@pytest.mark.parametrize("model", LEDGER)
def test_the_ledger_is_read_and_written_in_default_alone(model: type[models.Model]) -> None:
    routers = ConnectionRouter([HistoryRouter(), Elsewhere()])

    assert (routers.db_for_read(model), routers.db_for_write(model)) == ("default", "default")
    assert routers.allow_migrate_model("default", model) is True
    assert routers.allow_migrate_model("history", model) is False


def test_the_models_of_other_apps_are_left_to_the_other_routers() -> None:
    routers = ConnectionRouter([HistoryRouter(), Elsewhere()])

    assert (routers.db_for_read(User), routers.db_for_write(User)) == ("history", "history")


@pytest.mark.parametrize("model", VENDOR)
@pytest.mark.parametrize("alias", ["default", "history"])
def test_an_agents_table_is_migrated_nowhere(
    retention: Retention, model: type[models.Model], alias: str
) -> None:
    retention(STORES={"history": {}, "default": {}})

    assert router.allow_migrate_model(alias, model) is False
    assert router.allow_migrate(alias, "history_retention", model_name=model.__name__) is False


@pytest.mark.parametrize("app_label", ["auth", "history_retention", "elsewhere"])
def test_a_store_takes_no_migration_of_any_app(app_label: str) -> None:
    assert router.allow_migrate("history", app_label) is False


def test_while_the_settings_are_wrong_only_default_takes_migrations(retention: Retention) -> None:
    retention(GRACE=24)

    assert router.allow_migrate("history", "auth") is False
    assert router.allow_migrate_model("default", User) is True
    assert router.allow_migrate_model("default", Hold) is True


@pytest.mark.parametrize(("stores"), [{"history": {}}, {"default": {}}])
def test_default_takes_migrations_even_when_it_is_a_store_too(
    retention: Retention, stores: dict[str, Any]
) -> None:
    retention(STORES=stores)

    assert router.allow_migrate_model("default", User) is True
    assert router.allow_migrate("default", "history_retention") is True


def test_a_database_that_is_no_store_takes_the_projects_apps_but_not_the_ledger(
    retention: Retention,
) -> None:
    retention(STORES={"default": {}})

    assert router.allow_migrate_model("history", User) is True
    assert router.allow_migrate_model("history", Hold) is False


def test_agents_rows_relate_within_one_store_and_to_nothing_else() -> None:
    here, also_here, elsewhere = Conversation(id=1), Session(id=1), Conversation(id=1)
    here._state.db = also_here._state.db = "history"
    elsewhere._state.db = "default"

    assert router.allow_relation(here, also_here) is True
    assert router.allow_relation(elsewhere, also_here) is False
    assert router.allow_relation(elsewhere, User(id=1)) is False
    assert router.allow_relation(Hold(id=1), User(id=1)) is True


COMMANDS = [
    ["migrate"],
    ["migrate", "--run-syncdb"],
    ["migrate", "--fake"],
    ["migrate", "--plan"],
    ["migrate", "history_retention"],
    ["migrate", "history_retention", "zero"],
    ["migrate", "auth"],
    ["flush", "--no-input"],
    ["sqlflush"],
    ["dumpdata"],
    ["dumpdata", "history_retention"],
    ["loaddata", "rows.json"],
    ["createcachetable"],
    ["check"],
    ["inspectdb", "checkpoints"],
]


@pytest.mark.parametrize("command", COMMANDS, ids=" ".join)
@pytest.mark.parametrize(
    "fixture", ["gaunt_sloth/history.db", "langgraph/lg-sqlite-with-conversations.db"]
)
def test_djangos_commands_leave_a_store_byte_for_byte_as_it_was(
    fixture_store: FixtureStore, tmp_path: Path, command: list[str], fixture: str
) -> None:
    fixture_store(fixture)
    rows = tmp_path / "rows.json"
    rows.write_text(
        json.dumps(
            [
                {
                    "model": "history_retention.conversation",
                    "pk": 99,
                    "fields": {"started_ts": "x"},
                },
                {"model": "auth.group", "pk": 99, "fields": {"name": "x", "permissions": []}},
            ]
        )
    )
    arguments = [str(rows) if argument == "rows.json" else argument for argument in command]
    before = contents(tmp_path)

    call_command(
        *arguments,
        "--database",
        "history",
        stdout=io.StringIO(),
        stderr=io.StringIO(),
    )
    connections["history"].close()

    assert contents(tmp_path) == before


def test_dumping_a_store_dumps_nothing(fixture_store: FixtureStore) -> None:
    fixture_store("gaunt_sloth/history.db")
    dumped = io.StringIO()

    call_command("dumpdata", database="history", stdout=dumped)

    assert json.loads(dumped.getvalue()) == []


def test_migrating_a_store_says_once_that_nothing_is_migrated_there(
    fixture_store: FixtureStore,
) -> None:
    fixture_store("gaunt_sloth/history.db")
    told = io.StringIO()

    call_command("migrate", database="history", stdout=told)

    assert told.getvalue().count("history is an agent's store: nothing is migrated there.") == 1
    assert "Applying" not in told.getvalue()


def test_migrating_a_store_quietly_says_nothing(fixture_store: FixtureStore) -> None:
    fixture_store("gaunt_sloth/history.db")
    told = io.StringIO()

    call_command("migrate", database="history", verbosity=0, stdout=told)

    assert told.getvalue() == ""


@pytest.mark.parametrize("alias", ["default", "elsewhere"])
def test_the_plan_of_a_database_that_is_no_store_alone_is_left_as_it_is(
    retention: Retention, alias: str
) -> None:
    retention(STORES={"default": {}, "history": {}})
    plan, told = [("a migration", False)], io.StringIO()

    leave_store_alone(using=alias, plan=plan, verbosity=1, stdout=told)

    assert (plan, told.getvalue()) == ([("a migration", False)], "")


def test_the_database_that_a_test_run_creates_for_a_store_has_no_tables() -> None:
    assert connections["history"].introspection.table_names() == []


def test_migrate_on_a_store_that_is_not_there_creates_no_file(tmp_path: Path) -> None:
    ran = manage(
        "migrate",
        "--database",
        "history",
        store=tmp_path / "none.db",
        ledger=tmp_path / "ledger.db",
    )

    assert ran.status == 1
    assert "history_retention.E009" in ran.err
    assert [path.name for path in tmp_path.iterdir() if path.name == "none.db"] == []


def test_no_migration_is_missing(db: None) -> None:
    call_command("makemigrations", "--check", "--dry-run", stdout=io.StringIO())


def test_the_projects_own_database_migrates_dumps_loads_and_flushes_beside_a_store(
    tmp_path: Path,
) -> None:
    ledger = tmp_path / "ledger.db"
    store = copy_fixture("gaunt_sloth/history.db", tmp_path)
    before = store.read_bytes()
    rows = tmp_path / "rows.json"
    hold = {
        "model": "history_retention.hold",
        "pk": 1,
        "fields": {
            "store": "history",
            "thread_id": "t",
            "reason": "audit",
            "by": None,
            "created_at": "2026-11-30T12:00:00Z",
            "until": None,
        },
    }
    rows.write_text(json.dumps([hold]))

    ran = [
        manage(*arguments, store=store, ledger=ledger)
        for arguments in (
            ["makemigrations", "--check"],
            ["migrate"],
            ["loaddata", str(rows)],
            ["dumpdata", "history_retention"],
            ["flush", "--no-input"],
            ["dumpdata", "history_retention"],
            ["migrate", "history_retention", "zero"],
        )
    ]

    assert [(each.status, each.err) for each in ran] == [(0, "")] * 7
    assert "Applying history_retention.0001_initial... OK" in ran[1].out
    assert json.loads(ran[3].out) == [hold]
    assert json.loads(ran[5].out) == []
    assert store.read_bytes() == before


def test_a_store_that_is_the_projects_own_database_is_migrated_around_the_agents_tables(
    tmp_path: Path,
) -> None:
    shared = copy_fixture("langgraph/lg-sqlite-with-conversations.db", tmp_path)
    (tmp_path / "shared_settings.py").write_text(
        "from project.settings import *\n"
        f"DATABASES = {{'default': {{**DATABASES['default'], 'NAME': {str(shared)!r}}}}}\n"
        "HISTORY_RETENTION = {'STORES': {'default': {}}}\n"
    )
    where = {"DJANGO_SETTINGS_MODULE": "shared_settings", "PYTHONPATH": str(tmp_path)}
    before = sqlite_rows(shared)

    ran = [
        manage(*arguments, store=shared, ledger=tmp_path / "unused.db", env=where)
        for arguments in (
            ["migrate"],
            ["check", "--database", "default", "--fail-level", "WARNING"],
            ["dumpdata"],
            ["migrate", "history_retention", "zero"],
            ["flush", "--no-input"],
        )
    ]

    assert [(each.status, each.err) for each in ran] == [(0, "")] * 5
    assert "Applying history_retention.0001_initial... OK" in ran[0].out
    assert not {row["model"] for row in json.loads(ran[2].out)} & {
        model._meta.label_lower for model in VENDOR
    }
    assert sqlite_rows(shared) == before
