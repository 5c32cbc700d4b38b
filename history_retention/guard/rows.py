"""The ledger's leases, over a connection that is open for as long as a write takes."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from django.db import connections, router

from ..models import Lease
from ..models.leases import LeaseQuerySet
from ..processes import this_process


@contextmanager
def ledger_of_leases() -> Iterator[LeaseQuerySet | None]:
    """Open the ledger; None when it is in this process's memory, where nobody else would look."""
    alias = router.db_for_write(Lease)
    connection: Any = connections[alias]
    if connection.vendor == "sqlite" and connection.is_in_memory_db():
        yield None
        return
    try:
        yield Lease.objects.using(alias)
    finally:
        connection.close()


def name_of_owner(term: int) -> str:
    """Return what no other owner is called: this process, and how often it began anew."""
    return f"{term} {this_process()}"[:255]
