"""A store that workers share, and a broker that keeps what it is given."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from history_retention import workers
from project.celery import app

from ..conftest import WriteStore
from ..store_files import ThreadRows


@pytest.fixture(autouse=True)
def sent(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """Keep what would go to the broker: the sweep of each message."""
    messages: list[int] = []
    monkeypatch.setattr(app, "send_task", lambda _n, *, args, **_o: messages.append(args[0]))
    return messages


@pytest.fixture
def store(
    written_store: WriteStore, retention: Callable[..., None], monkeypatch: pytest.MonkeyPatch
) -> Path:
    """Six unresumable threads, which make two batches of three, swept one by one."""
    retention(BOX_SECONDS=0, GAP_SECONDS=0)
    monkeypatch.setattr(workers, "ROWS_A_BATCH", 6)
    return written_store([ThreadRows(thread_id=f"t{number}") for number in range(6)])
