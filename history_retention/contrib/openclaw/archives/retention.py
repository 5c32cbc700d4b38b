"""Removing archives by age: what a person asked for, file first, then its row.

Nothing does this by itself. An archive whose file is not made yet never goes, and what lies in
cold storage is no archive but the transcript itself, and is never listed here.
"""

from __future__ import annotations

from collections.abc import Iterable
from datetime import datetime, timedelta

from ....stores.sqlite import SQLiteFile
from .files import ArchiveUnwritable, sync_folder
from .inventory import Holding
from .names import REASONS

ROWS_A_PASS = 256
"""How many rows one pass removes, oldest first, as OpenClaw does."""


def expired(holdings: Iterable[Holding], older_than: timedelta, now: datetime) -> list[Holding]:
    """Choose the archives whose name says that they are older, oldest first; strictly older.

    Pending ones stay, and so do backups of legacy files.
    """
    chosen = [
        holding
        for holding in holdings
        if holding.path is not None
        and holding.name.reason in REASONS
        and now - holding.name.archived_at > older_than
    ]
    chosen.sort(key=lambda holding: (holding.name.archived_at, holding.name.name))
    with_rows = [holding for holding in chosen if holding.has_row][ROWS_A_PASS:]
    return [holding for holding in chosen if holding not in with_rows]


def remove(file: SQLiteFile, holding: Holding) -> bool:
    """Remove an archive's file, and then its row if it is published; False when it was not.

    Raises ArchiveUnwritable when the file cannot be removed; its row then stays.
    """
    if holding.path is None:
        return False
    name = holding.name.name
    if holding.has_row and not file.value(
        "SELECT COALESCE((SELECT published_at IS NOT NULL FROM session_transcript_archives"
        " WHERE archive_name = %s), 0)",
        [name],
    ):
        return False
    try:
        holding.path.unlink(missing_ok=True)
        sync_folder(holding.path.parent)
    except OSError as error:
        raise ArchiveUnwritable(
            f"{holding.path} cannot be removed ({error.strerror}), so it stays; give this user "
            "write access to its folder."
        ) from error
    if holding.has_row:
        with file.removing():
            file.run(
                "DELETE FROM session_transcript_archives"
                " WHERE archive_name = %s AND published_at IS NOT NULL",
                [name],
            )
    return True
