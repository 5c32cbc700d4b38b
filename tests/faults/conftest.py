"""What the tests of faults have at hand: a ledger that other processes can open, a short wait."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
from django.db import connections

from ..commands import manage


@pytest.fixture(scope="session")
def migrated_ledger(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A ledger as ``migrate`` makes it; copied by whoever writes to it."""
    path = tmp_path_factory.mktemp("ledger") / "ledger.sqlite3"
    ran = manage("migrate", "-v0", store=path.with_name("absent.db"), ledger=path)
    assert (ran.status, ran.err) == (0, "")
    return path


@pytest.fixture
def ledger(migrated_ledger: Path, tmp_path: Path) -> Path:
    """A ledger of this test's own."""
    copy = tmp_path / "ledger.sqlite3"
    copy.write_bytes(migrated_ledger.read_bytes())
    return copy


@pytest.fixture
def name_store(
    point_at: Callable[[Path], Path], monkeypatch: pytest.MonkeyPatch
) -> Callable[..., None]:
    """Give alias "history" any NAME at all, and options such as a short ``timeout``."""

    def name(value: object, **options: object) -> None:
        point_at(Path("replaced below"))
        monkeypatch.setitem(connections.databases["history"], "NAME", value)
        monkeypatch.setitem(connections.databases["history"], "OPTIONS", options)
        connections["history"] = connections.create_connection("history")

    return name
