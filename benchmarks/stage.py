"""Where measurements happen: a folder, a store in it, and the alias that points there."""

from __future__ import annotations

import os
import shutil
import sqlite3
from collections.abc import Iterator
from contextlib import closing, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from django.conf import settings
from django.db import connections
from django.test.utils import override_settings

JournalMode = Literal["delete", "wal"]
ALIAS = "history"


@dataclass(frozen=True, slots=True, kw_only=True)
class Stage:
    """One store, written once, and how often to repeat what is timed.

    ``store`` is a file that reading measurements share; what changes it works on a copy.
    """

    folder: Path
    size: str
    store: Path
    rounds: int

    @contextmanager
    def copied(self, journal_mode: JournalMode = "delete") -> Iterator[Path]:
        """Point the alias at a copy of the store, on disk and not only in memory."""
        copy = self.folder / f"copy-{journal_mode}.db"
        shutil.copyfile(self.store, copy)
        with closing(sqlite3.connect(copy)) as connection:
            connection.execute(f"PRAGMA journal_mode = {journal_mode}")
        with copy.open("rb") as file:
            os.fsync(file.fileno())
        point_at(copy)
        try:
            yield copy
        finally:
            point_at(self.store)
            remove(copy)


def point_at(path: Path) -> None:
    """Let the alias mean this file."""
    connections[ALIAS].close()
    connections[ALIAS].settings_dict["NAME"] = str(path)


def remove(path: Path) -> None:
    """Remove a SQLite file and its logs."""
    for suffix in ("", "-wal", "-shm", "-journal"):
        path.with_name(path.name + suffix).unlink(missing_ok=True)


def paced(*, box_seconds: float, gap_seconds: float) -> override_settings:
    """Sweep at another pace than the project's."""
    ours = settings.HISTORY_RETENTION
    pace = {"BOX_SECONDS": box_seconds, "GAP_SECONDS": gap_seconds}
    return override_settings(HISTORY_RETENTION={**ours, **pace})
