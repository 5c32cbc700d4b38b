"""A measurement's result: ours beside something else, the goal for their ratio, and its line."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

Unit = Literal["s", "pages", "bytes"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Goal:
    """The bounds inside which a ratio should be."""

    at_most: float
    at_least: float = 0.0

    def __str__(self) -> str:
        if self.at_least:
            return f"{self.at_least:g}-{self.at_most:g}"
        return f"<= {self.at_most:g}"

    def is_met(self, ratio: float) -> bool:
        """Tell whether the ratio, as it is printed, lies inside."""
        return self.at_least <= round(ratio, 3) <= self.at_most


@dataclass(frozen=True, slots=True, kw_only=True)
class Comparison:
    """Ours and the other, both in ``unit``; without a goal it only informs.

    ``peak_bytes`` is the resident memory of the process that did our part, at its peak, where it
    was not the one that prints. ``note`` says what else was seen.
    """

    name: str
    ours: float
    against: str
    against_value: float
    unit: Unit = "s"
    goal: Goal | None = None
    note: str = ""
    peak_bytes: int = 0

    @property
    def ratio(self) -> float:
        """Return ours divided by the other."""
        return self.ours / self.against_value

    @property
    def verdict(self) -> str:
        """Say whether the goal is met."""
        if self.goal is None:
            return ""
        return "met" if self.goal.is_met(self.ratio) else "not met"

    def line(self, store: str, peak_bytes: int) -> dict[str, object]:
        """Return what is printed; the keys end in ``_s`` for every unit, and ``unit`` tells it."""
        return {
            "name": self.name,
            "store": store,
            "ours_s": round(self.ours, 4),
            "against": self.against,
            "against_s": round(self.against_value, 4),
            "ratio": round(self.ratio, 3),
            "peak_mb": round((self.peak_bytes or peak_bytes) / 2**20, 1),
            "unit": self.unit,
            "goal": str(self.goal) if self.goal else "",
            "verdict": self.verdict,
            "note": self.note,
        }


def table(lines: list[dict[str, object]]) -> str:
    """Return the lines as a table of Markdown, the goals and whether they are met at its end."""
    head = ("measurement", "store", "ours", "against", "ratio", "goal", "")
    rows = [
        (
            str(line["name"]),
            str(line["store"]),
            _amount(line["ours_s"], line["unit"]),
            f"{line['against']}: {_amount(line['against_s'], line['unit'])}",
            f"{line['ratio']}",
            str(line["goal"]),
            str(line["verdict"]) + (f" ({line['note']})" if line["note"] else ""),
        )
        for line in lines
    ]
    return "\n".join(f"| {' | '.join(row)} |" for row in (head, ("---",) * len(head), *rows))


def _amount(value: object, unit: object) -> str:
    if not isinstance(value, float | int):
        raise TypeError(value)
    if unit == "s":
        return f"{value * 1000:,.0f} ms" if value < 10 else f"{value:,.1f} s"
    if unit == "bytes":
        return f"{value / 10**6:,.1f} MB"
    return f"{value:,.0f}"
