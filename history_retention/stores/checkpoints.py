"""What the SQLite layouts of LangGraph's savers share: checkpoints, writes, and their times.

A thread is its rows in two tables, in every namespace. Its age is that of its newest row; a row
whose id tells no time is dated by what its checkpoint says of itself, and a row that tells no
time at all makes the thread's age unknown.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from datetime import datetime
from hashlib import blake2b
from heapq import merge
from itertools import groupby
from operator import itemgetter
from typing import Any, ClassVar

from ..exceptions import LayoutUnknown, StoreUnreadable
from ..facts import (
    Awaiting,
    NamedThread,
    PlannedThread,
    SkipReason,
    StoredThread,
)
from . import increments
from .base import Memory, Progress, parts
from .dating import Dating
from .glimpses import glimpsed
from .namers import NamedStore, Namer
from .row_scan import weights
from .scans import (
    Count,
    StateTable,
    counts_by_key,
    counts_of_threads,
    require_row_numbers,
    writes_tables,
)
from .sqlite import SQLiteFile, encoded, sort_key, text_of
from .sqlite_space import SQLiteStore
from .unfinished import interrupted

CHECKPOINTS = StateTable(name="checkpoints", payload=("checkpoint", "metadata"))
ROWS_A_LOOKUP = 2_000
"""Rows looked up by key in one statement, or those of one thread that has more."""


class CheckpointStore(NamedStore, SQLiteStore):
    """A SQLite file with the tables of one of LangGraph's savers."""

    rows_a_check = 500
    threads_a_removal = 1
    writes_table: ClassVar[str]

    def __init__(
        self,
        file: SQLiteFile,
        namer: Namer,
    ) -> None:
        super().__init__(namer)
        self.alias = file.alias
        self._file = file
        self._writes = StateTable(
            name=self.writes_table,
            payload=("value",),
            key=(*CHECKPOINTS.key, "task_id", "idx"),
        )
        self._tables = (CHECKPOINTS, self._writes)
        self._dating = Dating(file, self.writes_table)
        others = set(writes_tables(file.tables())) - {self.writes_table}
        if others:
            raise LayoutUnknown(
                f"{self.alias}: beside {self.writes_table} there is the table {min(others)} with "
                "writes of another layout, so a thread would be removed in part; nothing was "
                "touched. Keep the two agents' stores in two files."
            )
        for table in self._tables:
            require_row_numbers(file, table.name)
            if file.key_columns(table.name)[:3] != [
                ("thread_id", "BINARY"),
                ("checkpoint_ns", "BINARY"),
                ("checkpoint_id", "BINARY"),
            ]:
                raise LayoutUnknown(
                    f"{self.alias}: the primary key of {table.name} is not the one that "
                    "LangGraph's savers create, so nothing here was touched."
                )

    def measured_threads(self, progress: Progress) -> Iterator[NamedThread]:
        """Stream every thread with its bytes, from one pass over the rows."""

        def stored() -> Iterator[StoredThread]:
            for weight in weights(
                self._file, *self._tables, lambda done, all_: progress("measuring", done, all_)
            ):
                thread_id = text_of(weight.thread_id)
                first, last = self._dating.span(
                    thread_id, weight.oldest_id, weight.newest_id, odd=weight.odd > 0
                )
                yield StoredThread(
                    thread_id=thread_id,
                    checkpoint_count=weight.checkpoints,
                    write_count=weight.writes,
                    byte_count=weight.byte_count,
                    first_activity=first,
                    last_activity=last,
                    fingerprint=b"",
                )

        return self._source.joined(stored())

    def row_marks(self) -> increments.Marks:
        """Note the newest row of each table."""
        return increments.marks_of(self._file, self._tables)

    def remeasured_threads(
        self, progress: Progress, marks: Mapping[str, Any], memory: Memory
    ) -> Iterator[NamedThread] | None:
        """Weigh the threads with other rows than when the marks were made, and recall the rest."""
        touched = increments.touched(self._file, self._tables, marks, memory.count())
        if touched is None:
            return None
        return self._source.joined(
            increments.recalled(self._file, self._tables, touched, memory, self._weighed, progress)
        )

    def indexed_threads(
        self, progress: Progress, settled_before: datetime | None = None
    ) -> Iterator[NamedThread]:
        """Stream every thread without bytes, from the primary-key indexes."""
        if settled_before is None:
            return self._source.joined(self._indexed(progress))
        threads = glimpsed(
            self._file, self._tables, self._exact, lambda done: progress("choosing", done, 0)
        )
        return self._source.joined(threads, settled_before)

    def _indexed(self, progress: Progress) -> Iterator[StoredThread]:
        """Stream every thread with its exact age, which takes a look at every id."""

        def counts(position: int) -> Iterator[tuple[bytes, int, Count]]:
            for count in counts_by_key(self._file, self._tables[position]):
                yield sort_key(count.thread_id), position, count

        in_order = merge(counts(0), counts(1), key=itemgetter(0, 1))
        for done, (_, items) in enumerate(groupby(in_order, key=itemgetter(0))):
            found = {position: count for _, position, count in items}
            progress("choosing", done, 0)
            yield self._stored(found.get(0), found.get(1), weighed=False)

    def _exact(self, thread_id: str) -> StoredThread:
        """Look at every row of one thread."""
        checkpoints, writes = self._counts([thread_id], weigh=False)[thread_id]
        return self._stored(checkpoints, writes, weighed=False)

    def weighed(self, threads: Sequence[NamedThread]) -> Iterator[NamedThread]:
        """Return the threads still there, with bytes, their own time and what they await."""
        for part in parts(threads, lambda thread: thread.stored, ROWS_A_LOOKUP):
            thread_ids = [thread.stored.thread_id for thread in part]
            counts = self._counts(thread_ids, weigh=True)
            awaited = interrupted(self._file, self.writes_table, thread_ids)
            for thread in part:
                checkpoints, writes = counts[thread.stored.thread_id]
                if checkpoints is None and writes is None:
                    continue
                stored = self._stored(checkpoints, writes, weighed=True)
                if checkpoints and checkpoints.newest_id and stored.last_activity:
                    own = self._dating.own_instant(checkpoints.thread_id, checkpoints.newest_id)
                    if own is not None and own > stored.last_activity:
                        stored = replace(stored, last_activity=own)
                if stored.thread_id in awaited:
                    stored = replace(stored, awaiting=Awaiting.INTERRUPT)
                yield replace(thread, stored=stored)

    def rechecked(
        self, threads: Sequence[PlannedThread], naming_mark: int
    ) -> Mapping[str, SkipReason]:
        """Compare rows and conversations with what the plan saw."""
        changed = self._source.changed(threads, naming_mark)
        counts = self._counts([thread.thread_id for thread in threads], weigh=False)
        for thread in threads:
            checkpoints, writes = counts[thread.thread_id]
            if checkpoints is None and writes is None:
                changed[thread.thread_id] = SkipReason.GONE
            elif _fingerprint(checkpoints, writes) != thread.fingerprint:
                changed[thread.thread_id] = SkipReason.ACTIVE
        return changed

    def remove(self, threads: Sequence[PlannedThread]) -> None:
        """Delete the threads' rows from both tables.

        Raises StoreUnreadable, so that all is rolled back, when other rows changed than those
        that were just counted: a trigger that ignores a delete would leave part of the thread,
        and one that answers it, or a foreign key that cascades, takes what no plan has shown.
        """
        for thread in threads:
            self._remove(thread, self._writes.name, thread.write_count)
            self._remove(thread, CHECKPOINTS.name, thread.checkpoint_count)

    def _remove(self, thread: PlannedThread, table: str, count: int) -> None:
        changed = self._file.run(
            f"DELETE FROM {table} WHERE thread_id = CAST(%s AS TEXT)", [encoded(thread.thread_id)]
        )
        if changed != count:
            raise StoreUnreadable(
                f"{self.alias}: deleting {count:,} rows of a thread from {table} changed "
                f"{changed:,} rows, so it was undone and nothing more was done. Look for a "
                "trigger or a cascading foreign key on that table."
            )

    def _counts(
        self, thread_ids: list[str], *, weigh: bool
    ) -> dict[str, tuple[Count | None, Count | None]]:
        """Look up the threads' rows in both tables."""
        checkpoints, writes = (
            counts_of_threads(self._file, table, thread_ids, weigh=weigh) for table in self._tables
        )
        return {
            thread_id: (checkpoints.get(thread_id), writes.get(thread_id))
            for thread_id in thread_ids
        }

    def _weighed(self, threads: Sequence[increments.ThreadRows]) -> Iterator[StoredThread]:
        """Look up the threads that are still there, with their bytes."""
        for part in parts(threads, lambda thread: thread, ROWS_A_LOOKUP):
            counts = self._counts([thread.thread_id for thread in part], weigh=True)
            for checkpoints, writes in counts.values():
                if checkpoints is not None or writes is not None:
                    yield self._stored(checkpoints, writes, weighed=True)

    def _stored(
        self, checkpoints: Count | None, writes: Count | None, *, weighed: bool
    ) -> StoredThread:
        counts = [count for count in (checkpoints, writes) if count is not None]
        first, last = self._dating.span(
            counts[0].thread_id,
            min((count.oldest_id for count in counts if count.oldest_id), default=None),
            max((count.newest_id for count in counts if count.newest_id), default=None),
            odd=any(count.odd for count in counts),
        )
        return StoredThread(
            thread_id=counts[0].thread_id,
            checkpoint_count=checkpoints.rows if checkpoints else 0,
            write_count=writes.rows if writes else 0,
            byte_count=sum(count.byte_count for count in counts) if weighed else None,
            first_activity=first,
            last_activity=last,
            fingerprint=_fingerprint(checkpoints, writes),
        )


def _fingerprint(checkpoints: Count | None, writes: Count | None) -> bytes:
    """Return what changes when the thread gains, loses or replaces a row.

    A replaced row gets a new rowid, so counts, newest ids and newest rowids are enough. A plan
    holds one for each of its threads, so they are digested.
    """
    told = [
        (count.rows, count.newest_id, count.newest_rowid) if count else None
        for count in (checkpoints, writes)
    ]
    return blake2b(repr(told).encode(), digest_size=8).digest()
