from __future__ import annotations

from dataclasses import dataclass

import pytest

from history_retention.stores.base import THREADS_A_PART, parts


@dataclass(frozen=True)
class Counted:
    checkpoint_count: int
    write_count: int = 0


@pytest.mark.parametrize(
    ("sizes", "cut"),
    [
        ([], []),
        ([4], [[4]]),
        ([99], [[99]]),
        ([4, 6], [[4, 6]]),
        ([4, 6, 1], [[4, 6], [1]]),
        ([1, 99, 1], [[1], [99], [1]]),
        ([0] * (THREADS_A_PART + 1), [[0] * THREADS_A_PART, [0]]),
    ],
)
def test_a_part_ends_before_the_thread_with_which_it_had_too_many_rows(
    sizes: list[int], cut: list[list[int]]
) -> None:
    found = parts(sizes, lambda size: Counted(size - size // 2, size // 2), 10)

    assert [list(part) for part in found] == cut
