"""Giving free space back in boxes: what a vacuum does in one go, without keeping a writer out."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from .boxes import Boxes, Pace
from .exceptions import HistoryRetentionError
from .facts import Ending
from .stores.base import StepwiseStore


@dataclass(slots=True, kw_only=True)
class Freed:
    """What the steps have given back so far; grows by a commit at a time."""

    byte_count: int = 0
    steps: int = 0
    ending: Ending = Ending.RUNNING
    error: str = ""


def free_in_steps(
    store: StepwiseStore,
    free_bytes: int,
    freed: Freed,
    *,
    pace: Pace,
    stop: Callable[[], bool],
    committed: Callable[[], None],
) -> None:
    """Give back the bytes that were free at the start, or what agents left of them.

    Every commit is told to ``committed``. Does not raise for what the store refuses:
    ``freed.error`` is the sentence.
    """
    boxes = Boxes(store, pace, stop)
    step = 0

    def work(deadline: float) -> None:
        nonlocal step
        step = store.free_some(deadline)

    try:
        while freed.byte_count < free_bytes:
            if stop():
                freed.ending = Ending.INTERRUPTED
                return
            if not boxes.run(work):
                continue
            if not step:
                break
            freed.byte_count += step
            freed.steps += 1
            committed()
            if freed.byte_count < free_bytes:
                boxes.rest(step)
    except HistoryRetentionError as error:
        freed.ending = Ending.PARTIAL if freed.byte_count else Ending.FAILED
        freed.error = str(error)
    else:
        freed.ending = Ending.DONE
