"""The totals above the list of threads, from the newest measurement of each store."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from django.utils.timesince import timesince

from ..conf import get_settings
from ..models import Measurement, Sweep
from ..stores import LAYOUTS


@dataclass(frozen=True, slots=True, kw_only=True)
class StoreTotals:
    """A store's newest measurement, None before the first, and whether a sweep came after it.

    A store that is no longer in the settings keeps its measurements and cannot be measured.
    """

    store: str
    measurement: Measurement | None
    is_outdated: bool
    is_configured: bool

    @property
    def ago(self) -> str:
        """Say how long ago the measurement was, as "3 hours"."""
        return timesince(self.measurement.measured_at, depth=1) if self.measurement else ""

    @property
    def is_on_server(self) -> bool:
        """Tell whether the bytes measured are those of tables, and none is a file's."""
        layout = LAYOUTS.get(self.measurement.layout) if self.measurement else None
        return layout is not None and layout.vendor != "sqlite"


def totals_of(stores: Iterable[str]) -> list[StoreTotals]:
    """Return the totals of the stores, in their order."""
    return [_totals(store) for store in stores]


def _totals(store: str) -> StoreTotals:
    measurement = Measurement.objects.filter(store=store).first()
    return StoreTotals(
        store=store,
        measurement=measurement,
        is_outdated=measurement is not None
        and Sweep.objects.filter(store=store, started_at__gt=measurement.measured_at).exists(),
        is_configured=store in get_settings().stores,
    )
