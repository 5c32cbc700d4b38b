"""What every test has at hand: store files, the alias that points at them, a clock."""

from __future__ import annotations

import sqlite3
import subprocess
import sys
from collections import Counter
from collections.abc import Callable, Iterator
from datetime import timedelta
from pathlib import Path
from typing import Any, Protocol

import pytest
import time_machine
from django.db import connections
from pytest_django import Settings

from .commands import manage
from .store_files import FIXTURES, NOW, copy_fixture, write_store

NAMES_ITSELF = "from history_retention.processes import this_process; print(this_process())"
"""What a process runs to say its name."""


class WriteStore(Protocol):
    """``write_store`` of ``store_files`` without the path."""

    def __call__(self, *args: Any, **kwargs: Any) -> Path: ...


@pytest.fixture(scope="session")
def fixtures() -> Path:
    """The folder of the vendors' own stores; copy before opening one."""
    return FIXTURES


@pytest.fixture(scope="session", autouse=True)
def _no_store(tmp_path_factory: pytest.TempPathFactory) -> None:
    """Point the alias at a file that is not there, so that no test meets anyone's own store."""
    absent = tmp_path_factory.mktemp("nowhere") / "absent.db"
    connections.databases["history"].update(
        {"ENGINE": "django.db.backends.sqlite3", "NAME": str(absent)}
    )


@pytest.fixture
def point_at(db: None, monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[[Path], Path]]:
    """Point alias "history" at a file, in every thread of this process.

    The connection is a new one, outside the test's transaction: nothing of the test holds a lock
    on the file.
    """
    before = connections["history"]

    def point(path: Path) -> Path:
        monkeypatch.setitem(connections.databases["history"], "NAME", str(path))
        connections["history"].close()
        connections["history"] = connections.create_connection("history")
        return path

    yield point
    connections["history"].close()
    connections["history"] = before


@pytest.fixture
def add_store(db: None) -> Iterator[Callable[[str, Path], None]]:
    """Give a file an alias of its own for this test: ``add_store("other", path)``."""
    named = []

    def name(alias: str, path: Path) -> None:
        connections.databases[alias] = {**connections.databases["history"], "NAME": str(path)}
        connections[alias] = connections.create_connection(alias)
        named.append(alias)

    yield name
    for alias in named:
        connections[alias].close()
        del connections[alias], connections.databases[alias]


@pytest.fixture
def fixture_store(point_at: Callable[[Path], Path], tmp_path: Path) -> Callable[[str], Path]:
    """Copy a fixture, named as in "gaunt_sloth/history.db", and point "history" at the copy."""
    return lambda name: point_at(copy_fixture(name, tmp_path))


@pytest.fixture
def written_store(point_at: Callable[[Path], Path], tmp_path: Path) -> WriteStore:
    """Write a small store, as ``write_store`` does, and point "history" at it."""
    return lambda *args, **kwargs: point_at(write_store(tmp_path / "store.db", *args, **kwargs))


@pytest.fixture
def retention(settings: Settings) -> Callable[..., None]:
    """Change options of ``HISTORY_RETENTION`` for this test: ``retention(GRACE=...)``."""

    def change(**options: object) -> None:
        settings.HISTORY_RETENTION = {**settings.HISTORY_RETENTION, **options}

    return change


@pytest.fixture(scope="session")
def ended_process() -> str:
    """The name, as the ledger has it, of a process that ran on this host and ended."""
    return subprocess.run(
        [sys.executable, "-c", NAMES_ITSELF], capture_output=True, text=True, check=True
    ).stdout.strip()


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
def frozen_clock() -> Iterator[time_machine.Traveller]:
    """Stop the clock ten minutes after ``NOW``, so that a real run may say ``--as-of NOW``."""
    with time_machine.travel(NOW + timedelta(minutes=10), tick=False) as traveller:
        yield traveller


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """Say which backends ran, and how many tests."""
    reports = [
        report
        for outcome in ("passed", "failed", "xfailed", "xpassed")
        for report in terminalreporter.stats.get(outcome, ())
    ]
    usual = f"sqlite {sqlite3.sqlite_version}"
    ran = Counter(dict(report.user_properties).get("backend", usual) for report in reports)
    told = ", ".join(f"{backend} ({count} tests)" for backend, count in ran.items())
    terminalreporter.write_line(f"backends: {told or 'none'}")
