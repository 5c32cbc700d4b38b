"""What the tests of faults have at hand: a ledger that other processes can open, a short wait."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
from django.db import connections


@pytest.fixture
def name_store(
    point_at: Callable[[Path], Path], monkeypatch: pytest.MonkeyPatch
) -> Callable[..., None]:
    """Give alias "history" any NAME at all, and options such as a short ``timeout``."""

    def name(value: object, **options: object) -> None:
        point_at(Path("replaced below"))
        monkeypatch.setitem(connections.databases["history"], "NAME", value)
        monkeypatch.setitem(connections.databases["history"], "OPTIONS", options)
        connections["history"] = connections.create_connection("history")

    return name
