"""When a vacuum runs by itself, and what one would take."""

from __future__ import annotations

from dataclasses import dataclass

from .facts import Ending, Space, VacuumResult
from .stores.base import Store
from .sweeping import Swept

VACUUM_BYTES_A_SECOND = 100_000_000
"""About what a vacuum rewrites in a second, journal and all, as measured on an ordinary disk."""

QUICK_VACUUM_BYTES = VACUUM_BYTES_A_SECOND // 3
"""Live bytes that a vacuum rewrites in well under a second."""


@dataclass(frozen=True, slots=True, kw_only=True)
class VacuumForecast:
    """What a vacuum would find. ``needed_bytes`` is its peak of extra disk."""

    layout: str
    space: Space
    live_bytes: int
    needed_bytes: int
    refusal: str


def forecast(store: Store) -> VacuumForecast:
    """Tell what a vacuum of the store would need, and why it could not run if so."""
    return VacuumForecast(
        layout=store.layout,
        space=store.space(),
        live_bytes=store.live_bytes(),
        needed_bytes=store.vacuum_need(),
        refusal=store.vacuum_refusal(),
    )


def vacuum_after(store: Store, swept: Swept, wanted: bool | None) -> VacuumResult:
    """Vacuum after a sweep if somebody asked, or if nobody would notice; else say what is free."""
    free, live = store.space().free_bytes, store.live_bytes()
    if wanted is False:
        return not_vacuumed(f"{store.alias}: not vacuumed, as asked; {free:,} bytes are free.")
    if swept.ending is not Ending.DONE:
        return not_vacuumed(
            f"{store.alias}: not vacuumed, since not all was removed; {free:,} bytes are free."
        )
    if not free or (wanted is None and not swept.removed.thread_count):
        return not_vacuumed(f"{store.alias}: not vacuumed; nothing was freed.")
    if wanted or live <= QUICK_VACUUM_BYTES:
        return store.vacuum()
    return not_vacuumed(
        f"{store.alias}: not vacuumed: history_vacuum would give {free:,} bytes back, needs up to "
        f"{store.vacuum_need():,} bytes of free disk and blocks writers for about "
        f"{max(1, live // VACUUM_BYTES_A_SECOND)} s."
    )


def not_vacuumed(reason: str) -> VacuumResult:
    """Say why no vacuum ran."""
    return VacuumResult(ran=False, reason=reason, needed_bytes=0)
