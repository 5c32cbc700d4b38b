"""What tables take in PostgreSQL, and making the space of removed rows usable again."""

from __future__ import annotations

import time

from django.db import Error as DjangoDatabaseError

from ..facts import Space, TableSpace
from ..outcomes import VacuumResult
from .base import Store
from .postgres import PostgresDatabase, sentence_for


class PostgresStore(Store):
    """A store in tables of a PostgreSQL database."""

    vendor = "postgresql"
    vacuums_beside_writers = True

    _database: PostgresDatabase
    _table_names: tuple[str, ...]

    def space(self) -> Space:
        """Return the tables' sizes with indexes and TOAST, and how many rows are live and dead.

        What is free inside is told by no catalogue, so it counts 0.
        """
        rows = self._database.rows(
            "SELECT c.relname, pg_total_relation_size(c.oid), pg_indexes_size(c.oid),"
            " COALESCE(s.n_live_tup, 0), COALESCE(s.n_dead_tup, 0)"
            " FROM unnest(%s::text[]) WITH ORDINALITY AS t (name, place)"
            " JOIN pg_class AS c ON c.oid = to_regclass(t.name)"
            " LEFT JOIN pg_stat_user_tables AS s ON s.relid = c.oid ORDER BY t.place",
            [[self._database.name(table) for table in self._table_names]],
        )
        tables = tuple(
            TableSpace(
                name=name, total_bytes=total, index_bytes=indexes, live_rows=live, dead_rows=dead
            )
            for name, total, indexes, live, dead in rows
        )
        return Space(
            file_bytes=sum(table.total_bytes for table in tables),
            wal_bytes=0,
            free_bytes=0,
            tables=tables,
        )

    def live_bytes(self) -> int:
        """Return what the tables take: nothing here rewrites them."""
        return self.space().file_bytes

    def vacuum_need(self) -> int:
        """Return 0: VACUUM works in place."""
        return 0

    def vacuum_refusal(self) -> str:
        """Return an empty string: it can always run."""
        return ""

    def vacuum_rate(self) -> float | None:
        """Return None: no writer waits for it."""
        return None

    def vacuum(self) -> VacuumResult:
        """Run VACUUM (ANALYZE), beside all readers and writers."""
        started = time.monotonic()
        try:
            for table in self._table_names:
                self._database.run(f"VACUUM (ANALYZE) {self._database.name(table)}")
        except DjangoDatabaseError as error:
            reason = str(sentence_for(self.alias, error))
            return VacuumResult(ran=False, reason=reason, needed_bytes=0)
        return VacuumResult(
            ran=True,
            reason=(
                f"{self.alias}: vacuumed: the space of removed rows will be used again. The file "
                "system gets none of it back; for that, run pg_repack, since VACUUM FULL blocks "
                "agents."
            ),
            needed_bytes=0,
            seconds=time.monotonic() - started,
        )
