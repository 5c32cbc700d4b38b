"""The ledger's threads: writing those that a measuring found other than they were.

They also spare the next measuring the threads that have no new row.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import closing
from datetime import datetime
from itertools import islice
from typing import Any

from .facts import StoredThread
from .models import Measurement, Thread
from .readouts import ReadThread
from .recording import ledger, storable
from .stores.scratch import Scratch

ROWS_A_WRITE = 500
_FIELDS = [field.name for field in Thread._meta.concrete_fields if not field.primary_key]
_WIDTHS = {"command": 255, "project": 1024}

Values = tuple[Any, ...]
"""A row of ``Thread`` without its key, in the order of ``_FIELDS``."""


class Memory:
    """What the ledger knows of one store's threads."""

    def __init__(self, database: str) -> None:
        self._database = database
        self._rows: dict[str, Values] = {}

    def marks(self) -> dict[str, Any]:
        """Return what the last measuring noted of the store's rows; empty when there is none."""
        newest = self._newest()
        return newest.marks if newest else {}

    def holds_later(self, now: datetime) -> bool:
        """Tell whether a measuring as of a later instant than ``now`` is kept."""
        newest = self._newest()
        return newest is not None and newest.measured_at > now

    def _newest(self) -> Measurement | None:
        with ledger():
            return Measurement.objects.filter(store=self._database).first()

    def count(self) -> int:
        """Return how many threads are known."""
        with ledger():
            return Thread.objects.filter(store=self._database).count()

    def stored(self, thread_ids: Sequence[str]) -> Mapping[str, StoredThread]:
        """Return the state of those threads that are known, as it was when last measured."""
        digests = {Thread.digest_of(self._database, each): each for each in thread_ids}
        self._rows = self._looked_up(digests)
        return {
            digests[digest]: _stored(digests[digest], row) for digest, row in self._rows.items()
        }

    def save(self, threads: Iterable[ReadThread]) -> None:
        """Replace what is known by these threads, a few hundred rows at a time."""
        threads = iter(threads)
        with closing(Scratch("CREATE TABLE seen (digest TEXT)")) as scratch:
            seen = 0
            while batch := list(islice(threads, ROWS_A_WRITE)):  # what the store refuses is its own
                found = {
                    Thread.digest_of(self._database, thread.thread_id): thread for thread in batch
                }
                scratch.put("INSERT INTO seen VALUES (?)", ((digest,) for digest in found))
                seen += len(found)
                self._write(found)
            if self.count() != seen:
                self._forget_others(scratch)

    def _write(self, found: Mapping[str, ReadThread]) -> None:
        unknown = [digest for digest in found if digest not in self._rows]
        known = self._rows | self._looked_up(unknown)
        rows = ((digest, _values(self._database, thread)) for digest, thread in found.items())
        changed = [
            Thread(digest=digest, **dict(zip(_FIELDS, values, strict=True)))
            for digest, values in rows
            if known.get(digest) != values
        ]
        with ledger():
            Thread.objects.bulk_create(
                changed, update_conflicts=True, unique_fields=["digest"], update_fields=_FIELDS
            )

    def _looked_up(self, digests: Collection[str]) -> dict[str, Values]:
        with ledger():
            rows = Thread.objects.filter(digest__in=digests).values_list("digest", *_FIELDS)
            return {row[0]: row[1:] for row in rows.order_by()}

    def _forget_others(self, scratch: Scratch) -> None:
        """Drop the rows of threads that were not seen; both sides come in order of the key."""
        seen = (digest for (digest,) in scratch.rows("SELECT digest FROM seen ORDER BY digest"))
        newest = next(seen, "")
        for page in self._pages():
            gone = []
            for digest in page:
                while newest and newest < digest:
                    newest = next(seen, "")
                if newest != digest:
                    gone.append(digest)
            with ledger():
                Thread.objects.filter(digest__in=gone).delete()

    def _pages(self) -> Iterator[list[str]]:
        after = ""
        rows = Thread.objects.filter(store=self._database).order_by("digest")
        while True:
            with ledger():
                digests = rows.filter(digest__gt=after).values_list("digest", flat=True)
                page = list(digests[:ROWS_A_WRITE])
            if not page:
                return
            yield page
            after = page[-1]


def _values(database: str, thread: ReadThread) -> Values:
    values: dict[str, Any] = {
        name: getattr(thread, name) for name in ReadThread.__slots__ if name != "thread_id"
    }
    values |= {
        "store": database,
        "thread_id": thread.thread_id,
        "label": storable(thread.label),
        "conversation_ids": list(thread.conversation_ids),
    }
    values |= {name: storable(getattr(thread, name))[:width] for name, width in _WIDTHS.items()}
    return tuple(values[name] for name in _FIELDS)


def _stored(thread_id: str, row: Values) -> StoredThread:
    values = dict(zip(_FIELDS, row, strict=True))
    return StoredThread(
        thread_id=thread_id,
        checkpoint_count=values["checkpoint_count"],
        write_count=values["write_count"],
        byte_count=values["byte_count"],
        first_activity=values["first_activity"],
        last_activity=values["stored_activity"],
        fingerprint=b"",
    )
