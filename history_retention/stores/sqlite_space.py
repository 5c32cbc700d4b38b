"""What a store takes as a SQLite file, and the two ways of giving its free pages back.

A vacuum rewrites the file and blocks every writer for as long as that takes. A file whose header
says ``auto_vacuum = INCREMENTAL`` also gives pages back one by one, in transactions as short as
one likes. That header is the vendor's: ``enable_steps`` alone changes it, for whoever asked.
"""

from __future__ import annotations

import os
import sqlite3
import tempfile
import time
from contextlib import AbstractContextManager, closing
from dataclasses import replace
from pathlib import Path

from django.db import Error as DjangoDatabaseError

from .. import locks
from ..facts import Space
from ..outcomes import VacuumResult
from .base import KEPT_LOG, StepwiseStore
from .paths import size_of, temporary_folder
from .sqlite import SQLiteFile, opened, sentence_for

VACUUM_MARGIN = 1.1
"""How much more free disk than computed a vacuum must find."""

TRIAL_BYTES = 16 * 1024 * 1024
"""How much a trial rewrites: enough to tell the disk from the overhead, over in an instant."""

_VACUUM_COPIES = 2
_FULL, _INCREMENTAL = 1, 2  # https://www.sqlite.org/pragma.html#pragma_auto_vacuum


class SQLiteStore(StepwiseStore):
    """A store in a SQLite file, whose one write lock everybody waits for."""

    vendor = "sqlite"
    sweeps_side_by_side = False
    _file: SQLiteFile

    def only_one(self, work: str, *, shared: bool = False) -> AbstractContextManager[None]:
        """Hold the lock of the file's path, for whoever means this file on this machine."""
        return locks.only_one(work, self.alias, str(self._file.path or self.alias), shared=shared)

    @property
    def patience_seconds(self) -> float:
        """Return the alias's timeout."""
        return self._file.patience_seconds

    def removing(self) -> AbstractContextManager[None]:
        """Hold the file's write lock from the start of the transaction."""
        return self._file.removing()

    def space(self) -> Space:
        """Return the sizes of the file, of its write-ahead log and of its free pages."""
        path = self._file.path
        page = self._page_bytes()
        size = self._file.value("PRAGMA page_count") * page
        return Space(
            file_bytes=size_of(path) if path else size,
            wal_bytes=size_of(Path(f"{path}-wal")) if path else 0,
            free_bytes=self._file.value("PRAGMA freelist_count") * page,
        )

    def live_bytes(self) -> int:
        """Return the size of the pages in use."""
        used = self._file.value("PRAGMA page_count") - self._file.value("PRAGMA freelist_count")
        return int(used * self._page_bytes())

    def vacuum_need(self) -> int:
        """Return the bytes of free disk that a vacuum takes at its peak, wherever they lie.

        SQLite writes one copy of the live pages in its folder for temporary files and one
        beside the database (journal or WAL).
        """
        return _VACUUM_COPIES * self.live_bytes()

    def vacuum_refusal(self) -> str:
        """Say why a vacuum would not have the disk it needs, or return an empty string."""
        path = self._file.path
        if path is None:
            return ""
        folders = [path.parent, temporary_folder()]
        if folders[0].stat().st_dev == folders[1].stat().st_dev:
            del folders[1:]
        need = int(self.vacuum_need() / len(folders) * VACUUM_MARGIN)
        for folder in folders:
            usage = os.statvfs(folder)
            free = usage.f_bavail * usage.f_frsize
            if free < need:
                return (
                    f"{self.alias}: not vacuumed: it needs {need:,} bytes free in {folder} and "
                    f"{free:,} are; free some space there and run history_vacuum again."
                )
        return ""

    def vacuum_rate(self) -> float | None:
        """Vacuum a scratch database where SQLite keeps temporary files; return bytes a second.

        None when there is no room for it. It is as large as the store at most, and gone after.
        """
        size = min(TRIAL_BYTES, self.live_bytes())
        journal_mode = self._file.value("PRAGMA journal_mode")
        try:
            with (
                tempfile.TemporaryDirectory(dir=temporary_folder()) as folder,
                closing(sqlite3.connect(Path(folder, "trial.db"), isolation_level=None)) as trial,
            ):
                trial.execute(f"PRAGMA journal_mode = {journal_mode}")
                trial.execute("CREATE TABLE trial (bytes BLOB)")
                trial.execute(
                    "WITH RECURSIVE row (number) AS (VALUES (1) UNION ALL"
                    " SELECT number + 1 FROM row WHERE number < ?)"
                    " INSERT INTO trial SELECT zeroblob(16384) FROM row",
                    [max(1, size // 16384)],
                )
                started = time.monotonic()
                trial.execute("VACUUM")
                seconds = time.monotonic() - started
                rewritten = size_of(Path(folder, "trial.db"))
        except (OSError, sqlite3.OperationalError):
            return None
        return rewritten / seconds if seconds > 0 else None

    def vacuum(self) -> VacuumResult:
        """Rewrite the file without its free pages and truncate its write-ahead log."""
        need = self.vacuum_need()
        refusal = self.vacuum_refusal()
        if refusal:
            return VacuumResult(ran=False, reason=refusal, needed_bytes=need)
        started = time.monotonic()
        try:
            self._file.run("VACUUM")
        except DjangoDatabaseError as error:
            reason = str(sentence_for(self.alias, self._file.path, error))
            return VacuumResult(ran=False, reason=reason, needed_bytes=need)
        seconds = time.monotonic() - started
        busy = self.truncate_log()
        return VacuumResult(
            ran=True,
            reason=f"{self.alias}: vacuumed{KEPT_LOG if busy else ''}.",
            needed_bytes=need,
            wal_busy=busy,
            seconds=seconds,
        )

    def truncate_log(self) -> bool | None:
        """Empty the write-ahead log; True when another kept it busy, None where there is none.

        Its pages are copied beside the writers first: TRUNCATE holds them up for what is left
        to copy, and for as long as it waits for a reader.
        """
        if not self._file.is_write_ahead():
            return None
        self._file.rows("PRAGMA wal_checkpoint(PASSIVE)")
        with self._file.waiting_shortly():
            return bool(self._file.rows("PRAGMA wal_checkpoint(TRUNCATE)")[0][0])

    def steps_refusal(self) -> str:
        """Say how the file would have to be for steps, unless it is."""
        if _auto_vacuum(self._file) in (_FULL, _INCREMENTAL):
            return ""
        return (
            f"{self.alias}: not vacuumed: this file was made without auto_vacuum = INCREMENTAL, so "
            "it cannot give space back in steps; history_vacuum --enable-incremental allows it "
            "once and for all, in a maintenance window."
        )

    def free_some(self, deadline: float) -> int:
        """Inside ``removing``: move free pages to the end and cut them off, one at a time.

        Python 3.11 steps a pragma that returns no columns once, so that a larger number than one
        frees one page too.
        """
        before = self._file.value("PRAGMA freelist_count")
        for _ in range(before):
            self._file.run("PRAGMA incremental_vacuum(1)")
            if time.monotonic() >= deadline:
                break
        return int((before - self._file.value("PRAGMA freelist_count")) * self._page_bytes())

    def enabling_refusal(self) -> str:
        """Say that the file gives space back by itself or in steps already, if it does."""
        mode = _auto_vacuum(self._file)
        if mode == _INCREMENTAL:
            return f"{self.alias}: auto_vacuum is INCREMENTAL already; nothing was changed."
        if mode == _FULL:
            return (
                f"{self.alias}: auto_vacuum is FULL, so the file gives its free space back with "
                "every commit; nothing was changed."
            )
        return ""

    def enable_steps(self) -> VacuumResult:
        """Set auto_vacuum in the file's header by a vacuum, and open the file anew to see it."""
        self._file.run("PRAGMA auto_vacuum = INCREMENTAL")
        result = self.vacuum()
        if not result.ran:
            return result
        with opened(self.alias) as file:
            mode = _auto_vacuum(file)
        if mode != _INCREMENTAL:
            reason = (
                f"{self.alias}: vacuumed, but auto_vacuum is not INCREMENTAL after it: another "
                "process vacuumed the file meanwhile; run this again when nobody else does."
            )
            return replace(result, ran=False, reason=reason)
        words = KEPT_LOG if result.wal_busy else ""
        return replace(
            result,
            reason=f"{self.alias}: vacuumed{words}. auto_vacuum is INCREMENTAL now: from here on "
            "history_vacuum --incremental gives space back without blocking a writer.",
        )

    def _page_bytes(self) -> int:
        return int(self._file.value("PRAGMA page_size"))


def _auto_vacuum(file: SQLiteFile) -> int:
    return int(file.value("PRAGMA auto_vacuum"))
