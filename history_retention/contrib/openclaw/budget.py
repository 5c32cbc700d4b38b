"""What a disk budget asks for: which archives, sessions and entries go first. Pure arithmetic.

Age A counts what is stored, and lets the longest idle entries go. Age B counts what lies on disk,
and lets go, tier by tier, published archives, then sessions that no entry needs, then entries that
an earlier cap archived in place. OpenClaw itself deletes the archives that the same pass has just
made, and the entries of the last tier without any; here the transcript of whatever goes stays
archived, and no archive of the same pass is touched.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from enum import StrEnum

HIGH_WATER_SHARE = 0.8
"""How full a store may be after a pass that found it above its budget."""


class Tier(StrEnum):
    """What kind of thing goes."""

    ARCHIVE = "archive"
    SESSION = "session"
    ENTRY = "entry"


@dataclass(frozen=True, slots=True, kw_only=True)
class Victim:
    """Something that may go: the name of an archive, the id of a session, the key of an entry."""

    tier: Tier
    name: str
    byte_count: int


@dataclass(frozen=True, slots=True, kw_only=True)
class BudgetPlan:
    """What a store takes, what it may, and what would go for that; sizes in bytes."""

    total_bytes: int
    max_bytes: int | None
    high_water_bytes: int
    victims: tuple[Victim, ...]

    @property
    def is_over(self) -> bool:
        """Tell whether the store takes more than it may."""
        return self.max_bytes is not None and self.total_bytes > self.max_bytes

    def of(self, tier: Tier) -> tuple[str, ...]:
        """Return the names of what goes of one kind."""
        return tuple(victim.name for victim in self.victims if victim.tier is tier)


def plan_budget(
    total_bytes: int,
    candidates: Iterable[Victim],
    *,
    max_bytes: int | None,
    high_water_bytes: int | None = None,
) -> BudgetPlan:
    """Take candidates in their order until the store is down to its high water.

    Without a budget, or within it, nothing goes. The high water is 80 % of the budget by default,
    and never above it.
    """
    most = total_bytes if max_bytes is None else max_bytes
    high_water = round(most * HIGH_WATER_SHARE) if high_water_bytes is None else high_water_bytes
    high_water = min(high_water, most)
    victims: Sequence[Victim] = ()
    if max_bytes is not None and total_bytes > max_bytes:
        victims = tuple(_until(total_bytes - high_water, candidates))
    return BudgetPlan(
        total_bytes=total_bytes,
        max_bytes=max_bytes,
        high_water_bytes=high_water,
        victims=tuple(victims),
    )


def _until(excess: int, candidates: Iterable[Victim]) -> Iterator[Victim]:
    for victim in candidates:
        if excess <= 0:
            return
        yield victim
        excess -= victim.byte_count
