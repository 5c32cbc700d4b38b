"""No test leaves a thread open, or a heartbeat behind."""

from __future__ import annotations

import gc
from collections.abc import Iterator

import pytest

from history_retention.guard.heartbeat import heartbeat
from history_retention.guard.in_use import in_use


@pytest.fixture(autouse=True)
def _nothing_left_open(db: None) -> Iterator[None]:
    """Look after each test whether savers that are gone have let go of their threads."""
    yield
    gc.collect()
    assert in_use.thread_ids("history") == []
    heartbeat.stop()
