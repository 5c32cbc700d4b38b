"""When a vacuum is worth its while, when it runs by itself, and what one would take."""

from __future__ import annotations

from contextlib import suppress
from dataclasses import dataclass
from enum import StrEnum

from django.db.models import F

from . import recording
from .conf import get_settings
from .exceptions import LedgerMissing
from .facts import Ending, Space
from .models import Sweep
from .outcomes import VacuumResult
from .stores.base import StepwiseStore, Store
from .sweeping import Swept

QUICK_SECONDS = 1 / 3
"""What is well under a second: nobody notices a vacuum that takes no longer."""

ORDINARY_BYTES_A_SECOND = 100_000_000
"""About what a vacuum rewrites in a second on an ordinary disk, where nothing was measured."""

QUICK_VACUUM_BYTES = int(ORDINARY_BYTES_A_SECOND * QUICK_SECONDS)
"""Live bytes that an ordinary disk rewrites in well under a second."""

TELLING_BYTES = 8 * 1024 * 1024
"""A vacuum of less tells of the disk's latency rather than of its speed."""

VACUUMS_THAT_TELL = 5
"""How many of the last vacuums tell how fast the next one is."""


class RateSource(StrEnum):
    """How it is known how fast a vacuum of a store is."""

    EARLIER = "earlier_vacuums"
    TRIAL = "trial"
    """Of a scratch database on the same machine, just now."""
    ORDINARY = "ordinary_disk"
    """Not measured: the store is too small for it to matter, or there is no room for a trial."""


@dataclass(frozen=True, slots=True, kw_only=True)
class VacuumForecast:
    """What a vacuum would find. ``needed_bytes`` is its peak of extra disk.

    ``refusal`` says why it could not run, ``unworthy`` why it is not worth the wait of the
    writers, ``steps_refusal`` why space cannot be given back in steps, and ``enabling_refusal``
    why that needs no enabling; each is empty when nothing is in the way.
    """

    layout: str
    space: Space
    live_bytes: int
    needed_bytes: int
    bytes_per_second: float
    rate_source: RateSource
    refusal: str
    unworthy: str
    steps_refusal: str
    enabling_refusal: str

    @property
    def blocked_seconds(self) -> float:
        """Return about how long writers would wait."""
        return self.live_bytes / self.bytes_per_second

    @property
    def is_quick(self) -> bool:
        """Tell whether it takes well under a second. A trial alone is no ground to say so."""
        return _is_quick(self.live_bytes, self.bytes_per_second, self.rate_source)

    @property
    def wait(self) -> str:
        """Say how long writers would wait. A trial is of a small file, and so of the least."""
        if self.is_quick:
            return "well under a second"
        more = " or more" if self.rate_source is RateSource.TRIAL else ""
        return f"about {max(1, round(self.blocked_seconds)):,} s{more}"


def forecast(store: Store) -> VacuumForecast:
    """Tell what a vacuum of the store would need and cost, and why it could or should not run."""
    space, live = store.space(), store.live_bytes()
    rate, source = _rate(store, live)
    steps, enabling = step_refusals(store)
    return VacuumForecast(
        layout=store.layout,
        space=space,
        live_bytes=live,
        needed_bytes=store.vacuum_need(),
        bytes_per_second=rate,
        rate_source=source,
        refusal=store.vacuum_refusal(),
        unworthy=""
        if store.vacuums_beside_writers or _is_quick(live, rate, source)
        else _unworthy(store.alias, space),
        steps_refusal=steps,
        enabling_refusal=enabling,
    )


def vacuum_after(store: Store, swept: Swept, wanted: bool | None) -> VacuumResult:
    """Vacuum after a sweep if somebody asked, or if nobody would notice; else say what is free."""
    if store.vacuums_beside_writers:
        return _vacuum_beside_writers(store, swept, wanted)
    free = store.space().free_bytes
    if wanted is False:
        return not_vacuumed(f"{store.alias}: not vacuumed, as asked; {free:,} bytes are free.")
    if swept.ending is not Ending.DONE:
        return not_vacuumed(
            f"{store.alias}: not vacuumed, since not all was removed; {free:,} bytes are free."
        )
    if not free or (wanted is None and not swept.removed.thread_count):
        return not_vacuumed(f"{store.alias}: not vacuumed; nothing was freed.")
    found = None if wanted else forecast(store)
    if found is None or found.is_quick:
        return store.vacuum()
    return not_vacuumed(_offer(store.alias, found))


def _vacuum_beside_writers(store: Store, swept: Swept, wanted: bool | None) -> VacuumResult:
    if wanted is False:
        return not_vacuumed(f"{store.alias}: not vacuumed, as asked.")
    if not wanted and not swept.removed.thread_count:
        return not_vacuumed(f"{store.alias}: not vacuumed; nothing was freed.")
    return store.vacuum()


def _offer(alias: str, found: VacuumForecast) -> str:
    """Say what would give the free space back, and at what cost."""
    free = found.space.free_bytes
    if not found.steps_refusal:
        return (
            f"{alias}: not vacuumed: history_vacuum --incremental would give {free:,} bytes back "
            "without blocking writers."
        )
    return found.unworthy or (
        f"{alias}: not vacuumed: history_vacuum would give {free:,} bytes back, needs up to "
        f"{found.needed_bytes:,} bytes of free disk and blocks writers for {found.wait}."
    )


def step_refusals(store: Store) -> tuple[str, str]:
    """Say why space cannot be given back in steps, and why that needs no enabling."""
    if isinstance(store, StepwiseStore):
        return store.steps_refusal(), store.enabling_refusal()
    refusal = f"{store.alias}: layout {store.layout} has no other vacuum than history_vacuum."
    return refusal, refusal


def not_vacuumed(reason: str) -> VacuumResult:
    """Say why no vacuum ran."""
    return VacuumResult(ran=False, reason=reason, needed_bytes=0)


def _rate(store: Store, live_bytes: int) -> tuple[float, RateSource]:
    """Return bytes a second: as this store was vacuumed before, else as a trial tells."""
    with suppress(LedgerMissing):
        earlier = _earlier_rate(store.alias)
        if earlier is not None:
            return earlier, RateSource.EARLIER
    trial = store.vacuum_rate() if live_bytes > QUICK_VACUUM_BYTES else None
    if trial is not None:
        return trial, RateSource.TRIAL
    return ORDINARY_BYTES_A_SECOND, RateSource.ORDINARY


def _earlier_rate(database: str) -> float | None:
    """Return how many bytes a second the store's last vacuums rewrote; None if nothing tells.

    A file that did not shrink kept its log, and its size says nothing of what was rewritten.
    """
    with recording.ledger():
        last = list(
            Sweep.objects.filter(
                store=database,
                vacuum_seconds__gt=0,
                file_bytes_after__gte=TELLING_BYTES,
                file_bytes_after__lt=F("file_bytes_before"),
            )[:VACUUMS_THAT_TELL]
        )
    seconds = sum(sweep.vacuum_seconds or 0 for sweep in last)
    return sum(sweep.file_bytes_after or 0 for sweep in last) / seconds if last else None


def _is_quick(live_bytes: int, rate: float, source: RateSource) -> bool:
    return live_bytes <= QUICK_SECONDS * rate and source is not RateSource.TRIAL


def _unworthy(alias: str, space: Space) -> str:
    """Say which setting is not reached by what is free, or return an empty string."""
    settings = get_settings()
    least = settings.vacuum_free_ratio * space.file_bytes
    if space.free_bytes < least:
        bound = f"{settings.vacuum_free_ratio * 100:g} % of the file (VACUUM_FREE_RATIO)"
    elif space.free_bytes < settings.vacuum_free_bytes:
        bound = f"{settings.vacuum_free_bytes:,} (VACUUM_FREE_BYTES)"
    else:
        return ""
    return (
        f"{alias}: not vacuumed: {space.free_bytes:,} bytes are free inside the file, less than "
        f"{bound}, and agents fill them again; history_vacuum --force vacuums all the same."
    )
