"""What the three ways of ``history_vacuum`` say before they begin."""

from __future__ import annotations

from ...vacuuming import RateSource, VacuumForecast
from ._space_text import space_line
from ._text import size

RATE_WORDS = {
    RateSource.EARLIER: "as its last vacuums ran",
    RateSource.TRIAL: "as a trial ran just now",
}


def vacuum_lines(database: str, forecast: VacuumForecast) -> list[str]:
    """Say what a vacuum would give back and what it takes."""
    return [space_line(database, forecast.space), f"{database}: a vacuum {_cost(forecast)}"]


def incremental_lines(database: str, forecast: VacuumForecast, box_seconds: float) -> list[str]:
    """Say that the free space goes back in steps, if it can."""
    if forecast.steps_refusal:
        return [space_line(database, forecast.space)]
    return [
        space_line(database, forecast.space),
        f"{database}: gives that back in steps of about {box_seconds * 1000:g} ms, between which "
        "writers go on",
    ]


def enabling_lines(database: str, forecast: VacuumForecast) -> list[str]:
    """Say what changes in the vendor's file, if it must, and what the vacuum for it takes."""
    if forecast.enabling_refusal:
        return [space_line(database, forecast.space)]
    return [
        space_line(database, forecast.space),
        f"{database}: sets auto_vacuum = INCREMENTAL in the header of the vendor's own file, for "
        "good: every program that writes to it then keeps a map of its pages, about one page in "
        "800, and rows and schema stay as they are",
        f"{database}: that takes a vacuum of the whole file, which {_cost(forecast)}",
    ]


def _cost(forecast: VacuumForecast) -> str:
    if forecast.space.tables:
        return "lets the space of removed rows be used again, beside all readers and writers"
    cost = (
        f"needs up to {size(forecast.needed_bytes)} of free disk and blocks writers for "
        f"{forecast.wait}"
    )
    if forecast.rate_source not in RATE_WORDS:
        return cost
    rate = size(round(forecast.bytes_per_second))
    return f"{cost} (at {rate} a second, {RATE_WORDS[forecast.rate_source]})"
