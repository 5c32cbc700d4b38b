"""All archives of an agent: files in the folder, and rows of the database that have no file yet."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from hashlib import sha256
from pathlib import Path

from ....stores.sqlite import SQLiteFile
from .files import ArchiveUnreadable, Content, listed, verify
from .names import ArchiveName, read_name


@dataclass(frozen=True, slots=True, kw_only=True)
class Holding:
    """One archive. ``path`` is None when it is pending: a row whose file is not made yet.

    ``has_row`` says that the database holds it too, and then that copy is the one that counts.
    """

    name: ArchiveName
    path: Path | None
    byte_count: int
    has_row: bool


def inventory(file: SQLiteFile, folder: Path, *, keeps_archives: bool) -> list[Holding]:
    """List the archives, newest first; a row whose name is no archive's is left out."""
    rows = dict(_rows(file)) if keeps_archives else {}
    holdings = []
    for archive in listed(folder):
        has_row = rows.pop(archive.name.name, None) is not None
        holdings.append(
            Holding(
                name=archive.name, path=archive.path, byte_count=archive.byte_count, has_row=has_row
            )
        )
    for name, byte_count in rows.items():
        told = read_name(name)
        if told is not None:
            holdings.append(Holding(name=told, path=None, byte_count=byte_count, has_row=True))
    holdings.sort(key=lambda holding: (holding.name.archived_at, holding.name.name), reverse=True)
    return holdings


def verified(file: SQLiteFile, holding: Holding) -> Content | None:
    """Read a whole archive, and compare it with its row; None for one that has no file.

    Raises ArchiveUnreadable.
    """
    if holding.path is None:
        return None
    content = verify(holding.path)
    if holding.has_row:
        digest = file.value(
            "SELECT archive_sha256 FROM session_transcript_archives WHERE archive_name = %s",
            [holding.name.name],
        )
        if digest != sha256(holding.path.read_bytes()).hexdigest():
            raise ArchiveUnreadable(
                f"{holding.path} is not what the database archived under this name; delete the "
                "file, and the next removal makes it anew from the database."
            )
    return content


def _rows(file: SQLiteFile) -> Iterator[tuple[str, int]]:
    yield from file.rows(
        "SELECT archive_name, LENGTH(archive_blob) FROM session_transcript_archives"
    )
