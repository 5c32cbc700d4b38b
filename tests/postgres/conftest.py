"""Databases on a PostgreSQL server, each of one test alone, and the alias that points there."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any
from uuid import uuid4

import dj_database_url
import psycopg
import pytest
from django.db import connections

from . import stores
from .server import in_database, server_url

Create = Callable[..., str]


@pytest.fixture(scope="session")
def server(request: pytest.FixtureRequest) -> str:
    """The URL of the server's own database."""
    run: str = getattr(request.config, "workerinput", {}).get("testrunuid", uuid4().hex)
    return server_url(run)


@pytest.fixture
def create(server: str, record_property: Callable[[str, object], None]) -> Iterator[Create]:
    """Create databases: ``create()``, or with a clause of CREATE DATABASE; dropped afterwards."""
    with psycopg.connect(server, autocommit=True) as connection:
        version = connection.info.server_version
        record_property("backend", f"postgresql {version // 10_000}.{version % 10_000}")
        names: list[str] = []

        def created(clause: str = "") -> str:
            name = f"history_test_{uuid4().hex}"
            connection.execute(f"CREATE DATABASE {name} {clause}")
            names.append(name)
            return in_database(server, name)

        yield created
        for name in names:
            connection.execute(f"DROP DATABASE {name} WITH (FORCE)")


@pytest.fixture
def point_at(db: None, monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[..., str]]:
    """Point alias "history" at a database; ``options`` are settings that libpq takes."""
    before = connections["history"]

    def point(url: str, options: str = "") -> str:
        parsed: dict[str, Any] = dict(dj_database_url.parse(url))
        libpq = {**parsed.get("OPTIONS", {}), **({"options": options} if options else {})}
        database = {**connections.databases["history"], **parsed, "OPTIONS": libpq}
        monkeypatch.setitem(connections.databases, "history", database)
        connections["history"] = connections.create_connection("history")
        return url

    yield point
    connections["history"].close()
    connections["history"] = before


@pytest.fixture
def database(create: Create, point_at: Callable[..., str]) -> str:
    """A database with the vendor's tables and no rows, which "history" points at; its URL."""
    url = create()
    stores.set_up(url)
    return point_at(url)


@pytest.fixture
def fixture_database(create: Create, point_at: Callable[..., str]) -> Callable[[str], str]:
    """Restore a dump of the vendor's, named as in "lg-postgres-shallow.sql"; its URL."""

    def restored(name: str) -> str:
        url = create()
        stores.restore(url, name)
        return point_at(url)

    return restored
