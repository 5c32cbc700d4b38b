"""What must be so before a sweep is put on record: it is alone, and so is its transaction."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from datetime import datetime, timedelta

from django.db import router, transaction

from .exceptions import SweepRunning, UsageError
from .facts import Ending
from .models import Sweep
from .processes import is_gone

LONGEST_SILENCE = timedelta(hours=6)
"""After which a sweep of a process that nobody here can see counts as ended. Only a vacuum or one
enormous thread takes that long, and then its own last note puts the row right."""


@contextmanager
def outermost() -> Iterator[None]:
    """Write at once, or refuse: inside a transaction the record could still be rolled back."""
    with ExitStack() as stack:
        try:
            stack.enter_context(transaction.atomic(using=router.db_for_write(Sweep), durable=True))
        except RuntimeError as error:
            raise UsageError(
                "A sweep was started inside a transaction of the ledger's database, which could "
                "take back the record of what it removed; nothing was removed. Start it outside "
                "of atomic()."
            ) from error
        yield


def require_no_shared_sweep_beside(own: Sweep) -> None:
    """Raise SweepRunning while workers are at another sweep of the same store."""
    shared = Sweep.objects.filter(store=own.store, ending=Ending.RUNNING, batch_count__gt=0)
    if (sweep := shared.exclude(pk=own.pk).first()) is not None:
        raise SweepRunning(
            f"{own.store}: workers are at sweep {sweep.pk} of this store, so this one left without "
            f"doing anything; wait for it, or run `python manage.py history_sweeps --cancel "
            f"{sweep.pk}`."
        )


def left_behind(database: str, now: datetime) -> list[int]:
    """Return the records of the store whose process ended before it could close them."""
    running = Sweep.objects.filter(store=database, ending=Ending.RUNNING, batch_count=0)
    return [
        pk
        for pk, process, noted_at in running.values_list("pk", "process", "noted_at")
        if is_gone(process) or noted_at < now - LONGEST_SILENCE
    ]
