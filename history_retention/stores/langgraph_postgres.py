"""Layout ``langgraph_postgres``: the tables of LangGraph's PostgreSQL savers, in any version.

Three tables hold a thread: checkpoints, the writes of its steps, and the blobs that checkpoints
of one thread share. The shallow saver keeps one checkpoint a thread and namespace, whose id
stands in its JSON. ``checkpoint_migrations`` and ``store`` are never touched.

A thread that somebody is writing is left alone. Rows that are locked are skipped, and so is a
thread to which a transaction that was open already adds a row: before a removal is committed,
the writers that were at work beside it are waited for, shortly, and what they wrote is looked at.
While one of them does not end, nobody can tell which threads it writes to, so none is removed.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager
from dataclasses import replace
from datetime import datetime
from hashlib import blake2b
from itertools import islice
from typing import Self

from ..conf import StoreOptions
from ..exceptions import StoreUnreadable
from ..facts import Awaiting, NamedThread, PlannedThread, SkipReason, StoredThread
from . import postgres
from .base import Progress, Tables, parts
from .instants import instant_of_id
from .namers import NamedStore, Namer, namer_of
from .postgres import PostgresDatabase
from .postgres_naming import PostgresConversations
from .postgres_rows import Counts, StateTable, all_counts, counts_of
from .postgres_space import PostgresStore
from .postgres_states import awaited, odd_instants, own_instants
from .postgres_writers import Writers, written_meanwhile

CHECKPOINTS = {"thread_id", "checkpoint_ns", "checkpoint", "metadata"}
WRITES = {"thread_id", "checkpoint_ns", "checkpoint_id", "task_id", "idx", "channel", "blob"}
BLOBS = {"thread_id", "checkpoint_ns", "channel", "blob"}
ROWS_A_LOOKUP = 5_000
THREADS_AT_ONCE = 200
"""Threads that are removed, or whose odd rows are asked for, in one statement."""

PATIENCE_SECONDS = 10.0
"""How long a sweep goes on asking when somebody else has what it needs."""


class LangGraphPostgresStore(NamedStore, PostgresStore):
    """``checkpoints``, ``checkpoint_writes`` and ``checkpoint_blobs``."""

    layout = "langgraph_postgres"
    rows_a_check = 2_500
    threads_a_removal = THREADS_AT_ONCE
    bytes_a_removal = 64 * 1024 * 1024  # a second or so, far from the end of a statement's time
    sweeps_side_by_side = True

    def __init__(
        self,
        database: PostgresDatabase,
        tables: Tables,
        namer: Namer,
    ) -> None:
        super().__init__(namer)
        self.alias = database.alias
        self._database = database
        is_shallow = "checkpoint_id" not in tables["checkpoints"]
        self._checkpoints = StateTable(
            name="checkpoints",
            checkpoint_id="(checkpoint->>'id')" if is_shallow else "checkpoint_id",
            payload=("checkpoint", "metadata"),
        )
        self._writes = StateTable(
            name="checkpoint_writes", checkpoint_id="checkpoint_id", payload=("blob",)
        )
        self._blobs = StateTable(name="checkpoint_blobs", checkpoint_id="", payload=("blob",))
        self._tables = (self._checkpoints, self._writes, self._blobs)
        self._table_names = tuple(table.name for table in self._tables)
        self._writers = Writers(database, self._table_names)

    @classmethod
    def recognises(cls, tables: Tables) -> bool:
        """Tell by the three state tables."""
        return (
            CHECKPOINTS <= set(tables.get("checkpoints", ()))
            and WRITES <= set(tables.get("checkpoint_writes", ()))
            and BLOBS <= set(tables.get("checkpoint_blobs", ()))
        )

    @classmethod
    def over(
        cls,
        database: PostgresDatabase,
        tables: dict[str, tuple[str, ...]],
        options: StoreOptions,
    ) -> Self:
        """Return the store, named by the configured models or by a table beside its own."""
        namer = namer_of(
            database.alias, tables, options, lambda: PostgresConversations(database, tables)
        )
        return cls(database, tables, namer)

    def only_one(self, work: str, *, shared: bool = False) -> AbstractContextManager[None]:
        """Hold an advisory lock of the database, against every host."""
        return postgres.only_one(self.alias, work, self._database.schema, shared=shared)

    def measured_threads(self, progress: Progress) -> Iterator[NamedThread]:
        """Stream every thread with its stored bytes."""
        return self._source.joined(self._all_threads(self._tables, progress, weigh=True))

    def indexed_threads(
        self, progress: Progress, settled_before: datetime | None = None
    ) -> Iterator[NamedThread]:
        """Stream every thread without bytes, from what the primary keys hold."""
        tables = (self._checkpoints, self._writes)
        threads = self._all_threads(tables, progress, weigh=False)
        return self._source.joined(threads, settled_before)

    def weighed(self, threads: Sequence[NamedThread]) -> Iterator[NamedThread]:
        """Return the threads still there, with bytes, their own time and what they await."""
        reads = self._database.reads
        for part in parts(threads, lambda thread: thread.stored, ROWS_A_LOOKUP):
            thread_ids = [thread.stored.thread_id for thread in part]
            counts = counts_of(reads, self._tables, thread_ids)
            stored = {each.thread_id: each for each in self._stored(list(counts.items()))}
            newest = {
                thread_id: found[0].newest_id
                for thread_id, found in counts.items()
                if found[0] is not None and found[0].newest_id is not None
            }
            own = own_instants(reads, self._checkpoints, newest)
            waiting = awaited(reads, self._checkpoints, self._writes, thread_ids)
            for thread in part:
                told = stored.get(thread.stored.thread_id)
                if told is not None:
                    yield replace(thread, stored=_updated(told, own, waiting))

    @property
    def patience_seconds(self) -> float:
        """Return how long a sweep asks again."""
        return PATIENCE_SECONDS

    @contextmanager
    def removing(self) -> Iterator[None]:
        """Commit what nobody was writing to meanwhile."""
        with self._database.removing():
            self._writers.begin()
            yield
            self._writers.settle()

    def rechecked(
        self, threads: Sequence[PlannedThread], naming_mark: int
    ) -> Mapping[str, SkipReason]:
        """Compare rows and conversations with what the plan saw; a locked row is another one."""
        changed = self._source.changed(threads, naming_mark)
        thread_ids = [thread.thread_id for thread in threads]
        tables = (self._checkpoints, self._writes)
        counts = counts_of(self._database, tables, thread_ids, lock=True)
        for thread in threads:
            if _fingerprint(counts[thread.thread_id]) != thread.fingerprint:
                changed[thread.thread_id] = SkipReason.ACTIVE
        unseen = [thread_id for thread_id, found in counts.items() if not any(found)]
        if unseen:  # gone, or all of its rows are locked
            there = counts_of(self._database, tables, unseen, weigh=False)
            gone = [thread_id for thread_id, found in there.items() if not any(found)]
            changed.update(dict.fromkeys(gone, SkipReason.GONE))
        return changed

    def remove(self, threads: Sequence[PlannedThread]) -> None:
        """Delete the threads' rows from all three tables.

        Raises, so that all is rolled back, when other rows changed than those that were just
        counted: StoreBusy for more, which an agent has added since, and StoreUnreadable for
        fewer, since those were locked: a trigger or a rule is at work there. StoreTimedOut when it
        takes longer than a statement may, WriterAtWork beside somebody who may be writing here.
        """
        self._writers.await_unending()
        thread_ids = [thread.thread_id for thread in threads]
        self._delete(self._blobs, thread_ids, None)
        self._delete(self._writes, thread_ids, sum(thread.write_count for thread in threads))
        self._delete(
            self._checkpoints, thread_ids, sum(thread.checkpoint_count for thread in threads)
        )
        self._writers.removed(thread_ids)

    def _delete(self, table: StateTable, thread_ids: list[str], count: int | None) -> None:
        changed = self._database.run(
            f"DELETE FROM {self._database.name(table.name)} WHERE thread_id = ANY(%s)",
            [thread_ids],
        )
        if count is not None and changed > count:
            raise written_meanwhile(self.alias)
        if count is not None and changed < count:
            raise StoreUnreadable(
                f"{self.alias}: deleting {count:,} rows of {len(thread_ids):,} threads from "
                f"{table.name} changed {changed:,} rows, so it was undone and nothing more was "
                "done. Look for a trigger, a rule or a row-level security policy on that table."
            )

    def _all_threads(
        self, tables: Sequence[StateTable], progress: Progress, *, weigh: bool
    ) -> Iterator[StoredThread]:
        counts = all_counts(self._database.reads, tables, weigh=weigh)
        done = 0
        while batch := list(islice(counts, THREADS_AT_ONCE)):
            yield from self._stored(batch)
            done += len(batch)
            progress("measuring" if weigh else "choosing", done, 0)

    def _stored(self, threads: Sequence[tuple[str, Counts]]) -> Iterator[StoredThread]:
        """Date the threads that are there, by what the database that was read says."""
        reads = self._database.reads
        odd = [
            thread_id
            for thread_id, counts in threads
            if any(count.odd for count in counts if count)
        ]
        instants = odd_instants(reads, self._checkpoints, self._writes, odd) if odd else {}
        for thread_id, counts in threads:
            if any(counts):
                yield _stored(thread_id, counts, instants.get(thread_id, []))


def _stored(thread_id: str, counts: Counts, odd: Sequence[datetime | None]) -> StoredThread:
    checkpoints, writes = counts[:2]
    ids = [
        each
        for count in counts
        if count is not None
        for each in {count.oldest_id, count.newest_id}
        if each is not None
    ]
    instants = [*map(instant_of_id, ids), *odd]
    told = [instant for instant in instants if instant is not None]
    is_known = bool(told) and len(told) == len(instants)
    return StoredThread(
        thread_id=thread_id,
        checkpoint_count=checkpoints.rows if checkpoints else 0,
        write_count=writes.rows if writes else 0,
        byte_count=sum(count.byte_count for count in counts if count),
        first_activity=min(told, default=None),
        last_activity=max(told) if is_known else None,
        fingerprint=_fingerprint(counts),
    )


def _updated(
    stored: StoredThread, own: Mapping[str, datetime], waiting: Mapping[str, Awaiting]
) -> StoredThread:
    last, said = stored.last_activity, own.get(stored.thread_id)
    return replace(
        stored,
        last_activity=max(last, said) if last and said else last,
        awaiting=waiting.get(stored.thread_id, Awaiting.NOTHING),
    )


def _fingerprint(counts: Counts) -> bytes:
    """Return what changes when a row of checkpoints or writes comes, goes or is written anew.

    Nothing in it is a server's own (no row version, no place), so that a replica tells the same.
    A blob never comes without a checkpoint that refers to it.
    """
    told = [
        (count.rows, count.newest_id, count.byte_count, count.odd) if count else None
        for count in counts[:2]
    ]
    return blake2b(repr(told).encode(), digest_size=8).digest()
