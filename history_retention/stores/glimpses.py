"""A first look at every thread, from the key indexes: enough to tell which cannot be old enough.

To compare each id with the pattern of a version-6 UUID takes ten times as long as to read it. So a
thread is dated here by the last of its ids alone. It was active then, or later: what its other ids
tell can only make it younger, or its age unknown. Whoever is chosen is looked at once more,
row by row, before it is planned; so nothing is missed, and nothing is taken too early.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Sequence
from heapq import merge
from itertools import groupby
from operator import itemgetter

from ..facts import StoredThread
from .instants import instant_of_id
from .scans import StateTable, newest_by_key
from .sqlite import SQLiteFile, is_plain, text_of

Newest = str | bytes | None
"""The last id of a thread in a table; None if the thread's own id is no text."""


def glimpsed(
    file: SQLiteFile,
    tables: Sequence[StateTable],
    exact: Callable[[str], StoredThread],
    advanced: Callable[[int], None],
) -> Iterator[StoredThread]:
    """Stream the threads of two tables, checkpoints and writes, in thread id order.

    ``exact`` is asked for a thread whose last id tells no time; ``advanced`` is told how many
    threads were looked at. They have neither bytes, nor a first activity, nor a fingerprint.
    """

    def rows(position: int) -> Iterator[tuple[bytes, int, int, Newest]]:
        for raw, count, newest in newest_by_key(file, tables[position]):
            yield raw, position, count, newest

    in_order = merge(rows(0), rows(1), key=itemgetter(0, 1))
    for done, (raw, items) in enumerate(groupby(in_order, key=itemgetter(0))):
        counts = [0, 0]
        newest: set[Newest] = set()
        for _, position, count, last in items:
            counts[position] += count
            newest.add(last)
        advanced(done)
        yield _glimpse(text_of(raw), counts, newest, exact)


def _glimpse(
    thread_id: str,
    counts: Sequence[int],
    newest: Collection[Newest],
    exact: Callable[[str], StoredThread],
) -> StoredThread:
    last = None
    if None not in newest and is_plain(thread_id):
        instants = [instant_of_id(each) for each in newest if isinstance(each, str)]
        told = [instant for instant in instants if instant is not None]
        if len(told) < len(newest):
            return exact(thread_id)
        last = max(told)
    return StoredThread(
        thread_id=thread_id,
        checkpoint_count=counts[0],
        write_count=counts[1],
        byte_count=None,
        first_activity=None,
        last_activity=last,
        fingerprint=b"",
    )
