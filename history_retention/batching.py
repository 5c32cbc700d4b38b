"""The ledger's side of a sweep that workers share: taking a batch, noting, and the end of it all.

The ledger is the queue. A message to a worker says no more than "take a batch of this sweep", so
one that comes twice, late or never costs nothing: a batch is open until its threads are dealt
with, and whoever asks gets one that nobody is at work on. Two workers who get the same one, since
the first was taken for dead, do no harm, for each thread is looked at again before it goes.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from datetime import datetime, timedelta

from django.db import transaction
from django.db.models import DurationField, ExpressionWrapper, F, QuerySet, Value
from django.db.models.functions import Coalesce, Greatest, Now

from .facts import Ending
from .models import Batch, Sweep
from .outcomes import Removed
from .processes import is_gone, this_process
from .recording import SIGN_OF_LIFE_SECONDS, ledger, storable
from .sweeping import Swept

SILENCE = timedelta(seconds=60)
"""How long a worker that cannot be looked at may be silent before its batch is taken again."""

LONG_SILENCE = timedelta(hours=1)
"""How long nobody may be at a shared sweep until its messages count as lost: a worker whose store
or ledger is away asks again every ten minutes at least."""

_mine: set[int] = set()
"""The batches that this process is at work on, in whichever thread."""


def take(sweep: Sweep, now: datetime) -> Batch | None:
    """Take an open batch that nobody is at work on; None when there is none."""
    with ledger():
        fresh = sweep.batches.open().filter(owner="").order_by("position")
        while (batch := fresh.first()) is not None:
            if _taken(batch, now):
                return batch
        for batch in sweep.batches.open().exclude(owner="").order_by("position"):
            if _is_abandoned(batch, now) and _taken(batch, now):
                return batch
    return None


def _taken(batch: Batch, now: datetime) -> bool:
    """Put our name on the batch, unless somebody else was faster."""
    same = Batch.objects.filter(pk=batch.pk, owner=batch.owner, noted_at=batch.noted_at)
    if not same.update(owner=this_process(), noted_at=now):
        return False
    _mine.add(batch.pk)
    batch.owner, batch.noted_at = this_process(), now
    return True


def _is_abandoned(batch: Batch, now: datetime) -> bool:
    """Tell whether the batch's owner is gone: provably, or for want of a sign of life."""
    if batch.owner == this_process():
        return batch.pk not in _mine
    if batch.noted_at is None or abs(now - batch.noted_at) > SILENCE:  # or by another clock
        return True
    return is_gone(batch.owner)


class Watch:
    """Says once a second that the batch's owner lives, and hears whether to go on."""

    def __init__(self, batch: Batch, clock: Callable[[], datetime]) -> None:
        self._batch = batch
        self._clock = clock
        self._asked_at = -SIGN_OF_LIFE_SECONDS
        self._is_over = False

    def is_over(self) -> bool:
        """Tell whether the sweep was cancelled or closed, or the batch is somebody else's now."""
        if time.monotonic() - self._asked_at >= SIGN_OF_LIFE_SECONDS:
            self._asked_at = time.monotonic()
            with ledger():
                self._is_over = not (
                    Batch.objects.filter(pk=self._batch.pk, owner=this_process()).update(
                        noted_at=self._clock()
                    )
                    and going_on().filter(pk=self._batch.sweep_id).exists()
                )
        return self._is_over


def going_on() -> QuerySet[Sweep]:
    """Return the shared sweeps that go on."""
    return Sweep.objects.filter(ending=Ending.RUNNING, batch_count__gt=0, cancelled_at=None)


class Progress:
    """Brings the batch and the sweep up to date after a commit, by what that commit added."""

    def __init__(self, batch: Batch, clock: Callable[[], datetime]) -> None:
        self._batch = batch
        self._clock = clock
        self._removed = Removed()
        self._skipped = 0
        self._started_with = batch.dealt_with

    def note(self, swept: Swept) -> None:
        """Note what was committed since the last time.

        A batch only ever goes forward: who was taken for dead may have come further by now than
        whoever took it over.
        """
        now, before = swept.removed, self._removed
        skipped = len(swept.skipped)
        if (now, skipped) == (before, self._skipped):
            return
        with ledger(), transaction.atomic(using=Batch.objects.db):
            Batch.objects.filter(pk=self._batch.pk).update(
                dealt_with=Greatest(
                    F("dealt_with"), Value(self._started_with + now.thread_count + skipped)
                ),
                noted_at=self._clock(),
            )
            Sweep.objects.filter(pk=self._batch.sweep_id).update(
                removed_threads=F("removed_threads") + now.thread_count - before.thread_count,
                removed_checkpoints=F("removed_checkpoints")
                + now.checkpoint_count
                - before.checkpoint_count,
                removed_writes=F("removed_writes") + now.write_count - before.write_count,
                removed_bytes=F("removed_bytes") + now.byte_count - before.byte_count,
                skipped_threads=F("skipped_threads") + skipped - self._skipped,
            )
        self._removed, self._skipped = now, skipped


def release(batch: Batch, error: str = "") -> None:
    """Let go of the batch; an error keeps others from taking it again."""
    _mine.discard(batch.pk)
    with ledger():
        mine = Batch.objects.filter(pk=batch.pk, owner=this_process())
        mine.update(owner="", error=storable(error))


def tell(batch: Batch, refusal: str) -> None:
    """Put on record why threads of the batch were left whole; the first such sentence stays."""
    with ledger():
        Sweep.objects.filter(pk=batch.sweep_id, error="").update(error=storable(refusal))


def throttled(sweep: Sweep, bytes_per_second: int) -> Callable[[int], float]:
    """Return what holds all workers of the sweep together to so many bytes a second.

    The clock is that of the ledger's database, which is one for all hosts.
    """
    free_at = Greatest(Coalesce(F("paced_until"), Now()), Now())
    left = ExpressionWrapper(F("paced_until") - Now(), output_field=DurationField())

    def wait(byte_count: int) -> float:
        mine = Sweep.objects.filter(pk=sweep.pk)
        with ledger():
            mine.update(paced_until=free_at + timedelta(seconds=byte_count / bytes_per_second))
            until = mine.values_list(left, flat=True).first()
        return max(0.0, until.total_seconds()) if until else 0.0

    return wait


def silent(store: str, now: datetime) -> QuerySet[Sweep]:
    """Return the shared sweep of the store that nobody was at for long, unless it was resumed."""
    since = now - LONG_SILENCE
    return (
        going_on()
        .filter(store=store, resumed_at=None, started_at__lt=since)
        .exclude(batches__noted_at__gte=since)
    )


def claim_resume(sweep: Sweep, now: datetime) -> bool:
    """Note that the sweep is told of again, unless somebody else was faster."""
    unclaimed = Sweep.objects.filter(pk=sweep.pk, resumed_at=None)
    return bool(unclaimed.update(resumed_at=now))


def give_up_resume(sweep: Sweep) -> None:
    """Leave the telling to whoever comes next."""
    with ledger():
        Sweep.objects.filter(pk=sweep.pk).update(resumed_at=None)


def ended(sweep: Sweep, now: datetime) -> Ending | None:
    """Close the sweep if nothing of it is left to do; None when it goes on or is closed by now."""
    with ledger():
        try:
            sweep.refresh_from_db()
        except Sweep.DoesNotExist:
            return None
        left = sweep.batches.open()
        if sweep.cancelled_at is not None:
            at_work = [each for each in left.exclude(owner="") if not _is_abandoned(each, now)]
            if at_work:
                return None
        elif left.exists():
            return None
        told = sweep.batches.exclude(error="").values_list("error", flat=True).first()
        error = told or sweep.error
        if error:
            ending = Ending.PARTIAL if sweep.removed_threads else Ending.FAILED
        else:
            ending = Ending.INTERRUPTED if left.exists() else Ending.DONE
        won = Sweep.objects.filter(pk=sweep.pk, ending=Ending.RUNNING).update(
            ending=ending, error=error, finished_at=now
        )
        return ending if won else None
