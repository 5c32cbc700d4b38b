"""What an agent's file holds, entry by entry: sizes, families, and what protects each."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from .ages import B
from .catalogue import Catalogue
from .database import AgentDatabase
from .entries import Entry
from .families import UnreadableFamily, family
from .protection import Protection, protection
from .sizes import Size


@dataclass(frozen=True, slots=True, kw_only=True)
class ListedEntry:
    """One entry. ``size`` is of the sessions that are counted to it, ``family_size`` of its family.

    ``session_ids`` are those of the family, and of every window that the entry owns. A session
    that several entries need is in each family, and is counted to one of them.
    """

    entry: Entry
    session_ids: tuple[str, ...]
    size: Size
    family_size: Size
    protection: Protection | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Listing:
    """All entries, in the order of their keys, and the sessions that no entry needs."""

    entries: tuple[ListedEntry, ...]
    unneeded_ids: tuple[str, ...]
    unneeded: Size


def told_ids(entry: Entry, database: AgentDatabase) -> tuple[str, ...]:
    """Return the ids of an entry's family as far as they can be told."""
    try:
        return tuple(dict.fromkeys([entry.current_id, *family(entry, database.age)]))
    except UnreadableFamily:
        return (entry.current_id,)


def counted_ids(
    entries: Mapping[str, Entry], owned: Mapping[str, Sequence[str]], database: AgentDatabase
) -> dict[str, set[str]]:
    """Return the sessions that are counted to each entry, each to one.

    That is the one that its window belongs to, or else the first, in order, that needs it.
    """
    counted: dict[str, set[str]] = defaultdict(set)
    seen: set[str] = set()
    for key, session_ids in owned.items():
        if key in entries:
            counted[key].update(session_ids)
            seen.update(session_ids)
    for entry in entries.values():
        new = set(told_ids(entry, database)) - seen
        counted[entry.key] |= new
        seen |= new
    return counted


def listing_of(database: AgentDatabase, catalogue: Catalogue, sizes: Mapping[str, Size]) -> Listing:
    """Describe every entry, given the size of every session that has a row."""
    entries = catalogue.entries()
    owned = database.transcripts.owned()
    counted = counted_ids(entries, owned, database)
    there = {session_id for ids in owned.values() for session_id in ids}
    unneeded = sorted(there - {each for ids in counted.values() for each in ids})

    def total(session_ids: Iterable[str]) -> Size:
        return sum((sizes.get(each, Size()) for each in session_ids), Size())

    listed = []
    for entry in entries.values():
        family_ids = told_ids(entry, database)
        more = [each for each in owned.get(entry.key, ()) if each not in family_ids]
        listed.append(
            ListedEntry(
                entry=entry,
                session_ids=(*family_ids, *more),
                size=total(counted[entry.key]),
                family_size=total(family_ids),
                protection=protection(entry, B),
            )
        )
    return Listing(entries=tuple(listed), unneeded_ids=tuple(unneeded), unneeded=total(unneeded))
