"""Archives that are rows before they are files: inserted in the deleting transaction, published.

Since version 19 the row in ``session_transcript_archives`` is what counts, and the file is derived
from it. A row without ``published_at`` is pending: its file is made by the next publication, by
OpenClaw's own or by ours.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from datetime import datetime
from hashlib import sha256
from pathlib import Path

from ....exceptions import HistoryRetentionError, StoreUnreadable
from ....stores.sqlite import SQLiteFile, encoded
from .compression import can_compress, compressed, decompressed_bytes
from .files import Archive, ArchiveUnwritable, content_of, create, joined, sync_folder
from .names import name_of

PENDING_A_PASS = 4
"""How many archives of earlier removals one publication makes up for, as OpenClaw does."""

_IDENTITY, _ZSTD = "identity", "zstd"


@dataclass(frozen=True, slots=True, kw_only=True)
class Published:
    """What one publication did: names of the files that are there, and of those still pending."""

    names: tuple[str, ...]
    pending: tuple[str, ...]


def insert(
    file: SQLiteFile, folder: Path, session_id: str, key: str, generation: str, reason: str,
    at: datetime, lines: Callable[[], Iterable[bytes]],
) -> Archive | None:  # fmt: skip
    """Insert the archive of a session inside the caller's transaction; None without a line.

    An archive of the same session and generation is taken instead if it holds the same; raises
    StoreUnreadable if it does not. ``path`` is where its file will be.
    """
    content = content_of(lines())
    if not content.event_count:
        return None
    known = file.rows(
        "SELECT archive_name, encoding, archive_blob FROM session_transcript_archives"
        " WHERE session_id = CAST(%s AS TEXT) AND generation = %s",
        [encoded(session_id), generation],
    )
    if known:
        name, encoding, data = known[0]
        if content_of(_lines(encoding, data)) != content:
            raise StoreUnreadable(
                f"{file.alias}: session {session_id} was archived before, as {name}, and holds "
                "something else now, so it was not removed. Look at both with openclaw_sessions."
            )
    else:
        is_compressed = can_compress()
        chunks = joined(lines())
        data = b"".join(compressed(chunks) if is_compressed else chunks)
        name = name_of(session_id, reason, at, generation=generation, compressed=is_compressed)
        file.run(
            "INSERT INTO session_transcript_archives (session_id, generation, session_key, reason,"
            " encoding, archive_blob, archive_sha256, archive_name, created_at)"
            " VALUES (CAST(%s AS TEXT), %s, CAST(%s AS TEXT), %s, %s, %s, %s, %s, %s)",
            [
                encoded(session_id),
                generation,
                encoded(key),
                reason,
                _ZSTD if is_compressed else _IDENTITY,
                data,
                sha256(data).hexdigest(),
                name,
                milliseconds(at),
            ],
        )
    return Archive(
        session_id=session_id,
        path=folder / name,
        reason=reason,
        event_count=content.event_count,
        byte_count=len(data),
    )


def publish(file: SQLiteFile, folder: Path, at: datetime, fresh: Sequence[str] = ()) -> Published:
    """Make the files of pending archives: those named, and a few that an earlier one left.

    Each is one short transaction of its own. Never raises for what the disk refuses: such an
    archive stays pending, with the reason in its row.
    """
    pending = [
        name
        for (name,) in file.rows(
            "SELECT archive_name FROM session_transcript_archives WHERE published_at IS NULL"
            " ORDER BY created_at, session_id, generation"
        )
    ]
    earlier = [name for name in pending if name not in fresh][:PENDING_A_PASS]
    names = [name for name in pending if name in fresh or name in earlier]
    done = [name for name in names if _publish_one(file, folder, name, at)]
    return Published(names=tuple(done), pending=tuple(name for name in pending if name not in done))


def pending_count(file: SQLiteFile) -> int:
    """Return how many archives have no file yet."""
    return int(
        file.value("SELECT COUNT(*) FROM session_transcript_archives WHERE published_at IS NULL")
    )


def milliseconds(at: datetime) -> int:
    """Return the instant as OpenClaw keeps it."""
    return round(at.timestamp() * 1000)


def _publish_one(file: SQLiteFile, folder: Path, name: str, at: datetime) -> bool:
    rows = file.rows(
        "SELECT archive_blob, archive_sha256 FROM session_transcript_archives"
        " WHERE archive_name = %s AND published_at IS NULL",
        [name],
    )
    if not rows:  # somebody else published it meanwhile
        return True
    data, digest = rows[0]
    try:
        _require_whole(name, data, digest)
        path = folder / name
        if path.exists():
            sync_folder(folder)
        else:
            create(path, [data])
        _require_whole(name, path.read_bytes(), digest)
    except (HistoryRetentionError, OSError) as error:
        _note(file, name, at, str(error))
        return False
    _note(file, name, at, None)
    return True


def _require_whole(name: str, data: bytes, digest: str) -> None:
    if sha256(data).hexdigest() != digest:
        raise ArchiveUnwritable(f"{name} does not hold what its row says")


def _note(file: SQLiteFile, name: str, at: datetime, error: str | None) -> None:
    with file.removing():
        file.run(
            "UPDATE session_transcript_archives SET publish_attempts = publish_attempts + 1,"
            " last_publish_attempt_at = %s, last_publish_error = %s,"
            " published_at = CASE WHEN %s THEN %s END WHERE archive_name = %s",
            [milliseconds(at), error, error is None, milliseconds(at), name],
        )


def _lines(encoding: str, data: bytes) -> Iterator[bytes]:
    whole = decompressed_bytes(data) if encoding == _ZSTD else data
    yield from whole.removesuffix(b"\n").split(b"\n")
