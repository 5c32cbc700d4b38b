"""What tables take in PostgreSQL, and making the space of removed rows usable again."""

from __future__ import annotations

import time
from collections.abc import Sequence

from django.db import Error as DjangoDatabaseError

from ..facts import Space, TableSpace
from ..outcomes import VacuumResult
from .postgres import PostgresDatabase, sentence_for


def space_of(database: PostgresDatabase, tables: Sequence[str]) -> Space:
    """Return the tables' sizes with indexes and TOAST, and how many rows are live and dead.

    What is free inside is told by no catalogue, so it counts 0.
    """
    rows = database.rows(
        "SELECT c.relname, pg_total_relation_size(c.oid), pg_indexes_size(c.oid),"
        " COALESCE(s.n_live_tup, 0), COALESCE(s.n_dead_tup, 0)"
        " FROM unnest(%s::text[]) WITH ORDINALITY AS t (name, place)"
        " JOIN pg_class AS c ON c.oid = to_regclass(t.name)"
        " LEFT JOIN pg_stat_user_tables AS s ON s.relid = c.oid ORDER BY t.place",
        [[database.name(table) for table in tables]],
    )
    found = tuple(
        TableSpace(
            name=name, total_bytes=total, index_bytes=indexes, live_rows=live, dead_rows=dead
        )
        for name, total, indexes, live, dead in rows
    )
    return Space(
        file_bytes=sum(table.total_bytes for table in found),
        wal_bytes=0,
        free_bytes=0,
        tables=found,
    )


def vacuumed(database: PostgresDatabase, tables: Sequence[str]) -> VacuumResult:
    """Run VACUUM (ANALYZE) on the tables, which blocks neither readers nor writers."""
    started = time.monotonic()
    try:
        for table in tables:
            database.run(f"VACUUM (ANALYZE) {database.name(table)}")
    except DjangoDatabaseError as error:
        reason = str(sentence_for(database.alias, error))
        return VacuumResult(ran=False, reason=reason, needed_bytes=0)
    return VacuumResult(
        ran=True,
        reason=(
            f"{database.alias}: vacuumed: the space of removed rows will be used again. The file "
            "system gets none of it back; for that, run pg_repack, since VACUUM FULL blocks agents."
        ),
        needed_bytes=0,
        seconds=time.monotonic() - started,
    )
