"""Django's own commands on a store in PostgreSQL: they leave every table as it was."""

from __future__ import annotations

import io
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import psycopg
import pytest
from django.core.management import call_command
from django.db import connections, router

from ..test_routers import COMMANDS
from .stores import NAMING_TABLES, rows_of
from .test_sweeping import run_sql

pytestmark = pytest.mark.django_db(databases=["default", "history"])


def catalogue(url: str) -> list[tuple[Any, ...]]:
    """Return every table, index and sequence outside the server's own schemas."""
    with psycopg.connect(url) as connection:
        return connection.execute(
            "SELECT relnamespace::regnamespace::text, relname, relkind FROM pg_class"
            " WHERE relnamespace::regnamespace::text !~ '^pg_|^information_schema$' ORDER BY 1, 2"
        ).fetchall()


@pytest.mark.parametrize("command", COMMANDS, ids=" ".join)
def test_djangos_commands_leave_every_table_and_row_as_it_was(
    fixture_database: Callable[[str], str], tmp_path: Path, command: list[str]
) -> None:
    url = fixture_database("lg-postgres-inserts.sql.gz")
    run_sql(url, NAMING_TABLES, "INSERT INTO conversations (thread_id) VALUES ('chat-400d')")
    rows = tmp_path / "rows.json"
    rows.write_text(
        json.dumps(
            [
                {"model": "history_retention.conversation", "pk": 99, "fields": {}},
                {"model": "auth.group", "pk": 99, "fields": {"name": "x", "permissions": []}},
            ]
        )
    )
    arguments = [str(rows) if argument == "rows.json" else argument for argument in command]
    before = rows_of(url), catalogue(url)

    out = io.StringIO()
    call_command(*arguments, "--database", "history", stdout=out, stderr=io.StringIO())
    connections["history"].close()

    assert (rows_of(url), catalogue(url)) == before
    assert "chat-400d" not in out.getvalue()


def test_a_replica_takes_no_migration_either(retention: Callable[..., None]) -> None:
    retention(STORES={"history": {"READ_DATABASE": "replica"}})

    assert router.allow_migrate("replica", "auth") is False
    retention(STORES={"history": {}})
    assert router.allow_migrate("replica", "auth") is not False
