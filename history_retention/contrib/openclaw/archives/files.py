"""Archived transcripts as files: written durably, read back, verified, listed.

A file is complete and on disk before its name exists, so a crash at any instant leaves either no
archive or a whole one. Nothing is ever overwritten.
"""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from datetime import datetime
from hashlib import sha256
from pathlib import Path
from typing import BinaryIO
from uuid import uuid4

from ....exceptions import HistoryRetentionError
from .compression import CHUNK_BYTES, can_compress, compressed, decompressed
from .names import ArchiveName, name_of, read_name, stem_of

PRIVATE = 0o600


class ArchiveUnreadable(HistoryRetentionError):
    """An archive is damaged, cut off, or not what its name says."""


class ArchiveUnwritable(HistoryRetentionError):
    """An archive could not be written, so what it was to hold stays where it is."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Archive:
    """One archived transcript. ``byte_count`` is the size of the file, compressed or not."""

    session_id: str
    path: Path
    reason: str
    event_count: int
    byte_count: int


@dataclass(frozen=True, slots=True, kw_only=True)
class ListedArchive:
    """A file in the archive folder whose name says that it is an archive."""

    path: Path
    name: ArchiveName
    byte_count: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Content:
    """What an archive holds: its lines, their bytes and digest, and whose header comes first."""

    event_count: int
    byte_count: int
    digest: str
    header_id: str | None


def folder_beside(database: Path) -> Path:
    """Return where the archives of a database lie: OpenClaw's ``sessions`` folder, or beside it."""
    folder = database.parent
    return folder.parent / "sessions" if folder.name == "agent" else folder


def write(
    folder: Path, session_id: str, reason: str, at: datetime, lines: Callable[[], Iterable[bytes]],
    *, generation: str = "",
) -> Archive | None:  # fmt: skip
    """Write the lines of a session's transcript; durable on return. None when there are none.

    ``lines`` gives them anew each time it is called. An archive of the session that holds the
    same for the same reason is taken instead. Raises ArchiveUnwritable.
    """
    content = content_of(lines())
    if not content.event_count:
        return None
    path = _same_archive(folder, session_id, reason, content)
    if path is None:
        is_compressed = can_compress()
        name = name_of(session_id, reason, at, generation=generation, compressed=is_compressed)
        path = folder / name
        chunks = joined(lines())
        create(path, compressed(chunks) if is_compressed else chunks)
    return Archive(
        session_id=session_id,
        path=path,
        reason=reason,
        event_count=content.event_count,
        byte_count=path.stat().st_size,
    )


def create(path: Path, chunks: Iterable[bytes]) -> None:
    """Create a file that is whole and on disk before it has this name.

    Raises ArchiveUnwritable, also when the name is taken.
    """
    folder = path.parent
    stage = folder / f".{path.name[:80]}.{uuid4()}.tmp"
    try:
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        try:
            with os.fdopen(
                os.open(stage, os.O_WRONLY | os.O_CREAT | os.O_EXCL, PRIVATE), "wb"
            ) as file:
                for chunk in chunks:
                    file.write(chunk)
                file.flush()
                os.fsync(file.fileno())
            os.link(stage, path)
        finally:
            stage.unlink(missing_ok=True)
        sync_folder(folder)
    except OSError as error:
        raise ArchiveUnwritable(
            f"{path} cannot be written ({error.strerror or error}), and a transcript is archived "
            "before it goes, so it stays. Free some space there or give this user write access."
        ) from error


def sync_folder(folder: Path) -> None:
    """Bring the names in a folder to disk."""
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def lines_of(path: Path) -> Iterator[bytes]:
    """Stream the lines of an archive, plain or compressed, each without its line break.

    Raises ArchiveUnreadable, at the latest at the end of a file that is cut off.
    """
    with _as_sentence(path), path.open("rb") as file:
        rest = b""
        for chunk in _chunks(file, path):
            *lines, rest = (rest + chunk).split(b"\n")
            yield from lines
        if rest:
            raise ValueError("its last line has no end")


def verify(path: Path) -> Content:
    """Read a whole archive: every line is JSON, and a header is that of the session of the name.

    Raises ArchiveUnreadable.
    """
    with _as_sentence(path):
        content = content_of(_checked(lines_of(path)))
        if not content.event_count:
            raise ValueError("it holds nothing")
    name = read_name(path.name)
    if name and content.header_id is not None and stem_of(content.header_id) != name.stem:
        raise ArchiveUnreadable(
            f"{path} begins with the header of another session than its name says; keep it, and "
            "look for the file that it was mixed up with."
        )
    return content


def listed(folder: Path) -> Iterator[ListedArchive]:
    """List the archives of a folder by name; empty when there is no such folder.

    Raises ArchiveUnreadable when the folder cannot be looked into.
    """
    try:
        for path in sorted(folder.iterdir()):
            name = read_name(path.name)
            if name is not None and path.is_file():
                yield ListedArchive(path=path, name=name, byte_count=path.stat().st_size)
    except FileNotFoundError:
        return
    except OSError as error:
        raise ArchiveUnreadable(
            f"{folder} cannot be looked into for archives ({error.strerror}), so nothing more was "
            "done. Let this user read and write that folder, or remove what is in its place."
        ) from error


def joined(lines: Iterable[bytes]) -> Iterator[bytes]:
    """Return the lines as the chunks of a file, each with its line break."""
    held: list[bytes] = []
    size = 0
    for line in lines:
        held += (line, b"\n")
        size += len(line)
        if size >= CHUNK_BYTES:
            yield b"".join(held)
            held, size = [], 0
    yield b"".join(held)


def content_of(lines: Iterable[bytes]) -> Content:
    """Count and digest the lines of a transcript."""
    event_count = byte_count = 0
    digest = sha256()
    header_id = None
    for line in lines:
        if not event_count:
            header_id = _header_id(line)
        event_count += 1
        byte_count += len(line) + 1
        digest.update(line)
        digest.update(b"\n")
    return Content(
        event_count=event_count,
        byte_count=byte_count,
        digest=digest.hexdigest(),
        header_id=header_id,
    )


def _same_archive(folder: Path, session_id: str, reason: str, content: Content) -> Path | None:
    """Return an archive that an earlier attempt left behind, if it holds just this."""
    stem = stem_of(session_id)
    for archive in listed(folder):
        if (archive.name.stem, archive.name.reason, archive.name.topic) != (stem, reason, ""):
            continue
        with suppress(HistoryRetentionError):
            if content_of(lines_of(archive.path)) == content:
                return archive.path
    return None


def _checked(lines: Iterable[bytes]) -> Iterator[bytes]:
    for number, line in enumerate(lines, 1):
        try:
            json.loads(line)
        except (ValueError, RecursionError) as error:
            raise ValueError(f"line {number:,} is no JSON") from error
        yield line


def _chunks(file: BinaryIO, path: Path) -> Iterator[bytes]:
    if path.suffix == ".zst":
        yield from decompressed(file)
        return
    while chunk := file.read(CHUNK_BYTES):
        yield chunk


def _header_id(line: bytes) -> str | None:
    try:
        header = json.loads(line)
    except (ValueError, RecursionError):
        return None
    if isinstance(header, dict) and header.get("type") == "session":
        session_id = header.get("id")
        return session_id if isinstance(session_id, str) else None
    return None


@contextmanager
def _as_sentence(path: Path) -> Iterator[None]:
    """Turn what is wrong with an archive into a sentence that names it."""
    try:
        yield
    except (OSError, ValueError) as error:
        what = getattr(error, "strerror", None) or error
        raise ArchiveUnreadable(
            f"{path} cannot be read as an archive ({what}); restore it from a backup, or keep it "
            "and let nobody rely on it."
        ) from error
