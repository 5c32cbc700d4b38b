"""An agent's file of either age, under the alias ``history``."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from .agents import AGES, copy_agent


@pytest.fixture(params=AGES)
def age(request: pytest.FixtureRequest) -> str:
    """The schema of the file: ``v8`` is of age A, ``v23`` of age B."""
    return str(request.param)


@pytest.fixture
def agent(age: str, tmp_path: Path, point_at: Callable[[Path], Path]) -> Path:
    """A copy of the vendor's file with families."""
    return point_at(copy_agent(age, tmp_path))
