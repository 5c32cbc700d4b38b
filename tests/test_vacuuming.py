"""When a vacuum is worth the wait of the writers, and how long that is said to be."""

from __future__ import annotations

import sqlite3
from collections.abc import Callable
from contextlib import closing
from pathlib import Path

import pytest

from history_retention import services
from history_retention.facts import Ending
from history_retention.models import Sweep
from history_retention.outcomes import Outcome
from history_retention.services import Trigger
from history_retention.vacuuming import QUICK_VACUUM_BYTES, RateSource

from .conftest import WriteStore
from .store_files import NOW, ConversationRow, ThreadRows

Retention = Callable[..., None]
KEPT = ConversationRow(thread_id="kept")
STORE = [ThreadRows(thread_id="kept", size=800_000), ThreadRows(thread_id="gone", size=400_000)]
"""A third of it goes."""


def vacuumed_before(
    seconds: float = 1_000, rewritten: int = 10_000_000, store: str = "history", **fields: object
) -> None:
    """Record a vacuum of the store; by default one so slow that the next is noticed."""
    values = {
        "kind": Sweep.Kind.VACUUM, "layout": "gaunt_sloth", "trigger": Trigger.COMMAND,
        "as_of": NOW, "started_at": NOW, "finished_at": NOW, "ending": Ending.DONE,
        "vacuumed": True, "file_bytes_before": rewritten + 1, "file_bytes_after": rewritten,
    }  # fmt: skip
    Sweep.objects.create(store=store, vacuum_seconds=seconds, **(values | fields))


def reclaim(vacuum: bool | None = None) -> Outcome:
    plan = services.plan_reclaim("history", now=NOW)
    return services.execute(plan, trigger=Trigger.CODE, vacuum=vacuum)


def vacuum(*, force: bool = False) -> Outcome:
    return services.vacuum("history", now=NOW, trigger=Trigger.CODE, force=force)


@pytest.fixture
def slow(written_store: WriteStore) -> Path:
    """A store of which a third is free and whose earlier vacuums took long."""
    path = written_store(STORE, [KEPT])
    reclaim(vacuum=False)
    vacuumed_before()
    return path


def test_a_file_with_less_free_than_the_ratio_is_left_and_that_is_said(
    slow: Path, retention: Retention
) -> None:
    retention(VACUUM_FREE_RATIO=0.5, VACUUM_FREE_BYTES=0)
    before = slow.read_bytes()

    outcome = vacuum()

    free = outcome.space_before.free_bytes
    assert (outcome.ending, outcome.vacuum.ran) == (Ending.DONE, False)
    assert outcome.vacuum.reason == (
        f"history: not vacuumed: {free:,} bytes are free inside the file, less than 50 % of the "
        "file (VACUUM_FREE_RATIO), and agents fill them again; history_vacuum --force vacuums all "
        "the same."
    )
    assert slow.read_bytes() == before
    assert Sweep.objects.first().vacuum_reason == outcome.vacuum.reason  # type: ignore[union-attr]


def test_a_file_with_fewer_free_bytes_than_the_setting_is_left_and_that_is_said(
    slow: Path, retention: Retention
) -> None:
    retention(VACUUM_FREE_RATIO=0.3, VACUUM_FREE_BYTES=1_000_000)

    outcome = vacuum()

    assert (outcome.ending, outcome.vacuum.ran) == (Ending.DONE, False)
    assert "less than 1,000,000 (VACUUM_FREE_BYTES)" in outcome.vacuum.reason


def test_a_file_with_as_much_free_as_both_settings_ask_for_is_vacuumed(
    slow: Path, retention: Retention
) -> None:
    space = services.vacuum_forecast("history").space
    retention(
        VACUUM_FREE_RATIO=space.free_bytes / space.file_bytes, VACUUM_FREE_BYTES=space.free_bytes
    )

    assert vacuum().vacuum.ran


def test_by_default_less_than_64_mb_is_not_worth_a_wait(slow: Path) -> None:
    assert "less than 67,108,864 (VACUUM_FREE_BYTES)" in vacuum().vacuum.reason
    assert vacuum(force=True).vacuum.ran


def test_a_vacuum_that_nobody_would_notice_needs_no_worth(
    written_store: WriteStore, retention: Retention
) -> None:
    written_store(STORE, [KEPT])
    reclaim(vacuum=False)
    retention(VACUUM_FREE_RATIO=1)

    assert vacuum().vacuum.ran


def test_a_sweep_that_asked_for_a_vacuum_gets_one_however_little_it_is_worth(slow: Path) -> None:
    assert reclaim(vacuum=True).vacuum.ran


def test_a_sweep_leaves_a_store_whose_vacuums_take_long(
    written_store: WriteStore, retention: Retention
) -> None:
    path = written_store(STORE, [KEPT])
    vacuumed_before()
    retention(VACUUM_FREE_RATIO=0.1, VACUUM_FREE_BYTES=1)
    size = path.stat().st_size

    outcome = reclaim()

    free = outcome.space_after.free_bytes
    assert outcome.removed.thread_count == 1
    assert outcome.vacuum.reason == (
        f"history: not vacuumed: history_vacuum would give {free:,} bytes back, needs up to "
        f"{2 * (size - free):,} bytes of free disk and blocks writers for about "
        f"{round((size - free) / 10_000)} s."
    )


def test_a_sweep_that_freed_little_says_so(written_store: WriteStore) -> None:
    written_store(STORE, [KEPT])
    vacuumed_before()

    assert "less than 67,108,864 (VACUUM_FREE_BYTES)" in reclaim().vacuum.reason


def test_a_sweep_names_the_steps_where_the_file_allows_them(written_store: WriteStore) -> None:
    path = written_store(STORE, [KEPT])
    with closing(sqlite3.connect(path, isolation_level=None)) as agent:
        agent.execute("PRAGMA auto_vacuum = INCREMENTAL")
        agent.execute("VACUUM")
    vacuumed_before()

    outcome = reclaim()

    free = outcome.space_after.free_bytes
    assert outcome.vacuum.reason == (
        f"history: not vacuumed: history_vacuum --incremental would give {free:,} bytes back "
        "without blocking writers."
    )


def test_the_speed_is_that_of_the_store_s_own_last_vacuums(written_store: WriteStore) -> None:
    path = written_store(STORE, [KEPT])
    for _ in range(5):
        vacuumed_before(seconds=2, rewritten=80_000_000)
    vacuumed_before(seconds=10, rewritten=320_000_000)
    vacuumed_before(seconds=0.001, rewritten=80_000_000, store="other")
    vacuumed_before(seconds=9, rewritten=1_000_000)  # too small to tell
    vacuumed_before(seconds=9, rewritten=80_000_000, file_bytes_before=80_000_000)  # log kept

    forecast = services.vacuum_forecast("history")

    assert (forecast.rate_source, forecast.bytes_per_second) == (
        RateSource.EARLIER,
        (4 * 80_000_000 + 320_000_000) / (4 * 2 + 10),
    )
    assert forecast.blocked_seconds == path.stat().st_size / forecast.bytes_per_second


def test_a_vacuum_leaves_its_speed_for_the_next(written_store: WriteStore) -> None:
    threads = [ThreadRows(thread_id="kept", size=9_000_000), STORE[1]]
    path = written_store(threads, [KEPT])

    outcome = reclaim()
    forecast = services.vacuum_forecast("history")

    assert outcome.vacuum.seconds is not None
    assert Sweep.objects.get().vacuum_seconds == outcome.vacuum.seconds > 0
    assert (forecast.rate_source, forecast.bytes_per_second) == (
        RateSource.EARLIER,
        path.stat().st_size / outcome.vacuum.seconds,
    )


def test_a_small_store_that_was_never_vacuumed_is_taken_for_quick(
    written_store: WriteStore,
) -> None:
    written_store(STORE, [KEPT])

    forecast = services.vacuum_forecast("history")

    assert (forecast.rate_source, forecast.is_quick) == (RateSource.ORDINARY, True)
    assert forecast.wait == "well under a second"


def test_a_large_store_that_was_never_vacuumed_is_told_by_a_trial_and_not_taken_for_quick(
    written_store: WriteStore,
) -> None:
    path = written_store([ThreadRows(thread_id="kept")], [KEPT])
    with closing(sqlite3.connect(path)) as agent, agent:
        agent.execute("UPDATE checkpoints SET checkpoint = zeroblob(?)", [QUICK_VACUUM_BYTES])

    forecast = services.vacuum_forecast("history")

    assert (forecast.rate_source, forecast.is_quick) == (RateSource.TRIAL, False)
    assert forecast.bytes_per_second > 0
    assert forecast.wait.startswith("about ")
    assert forecast.wait.endswith(" s or more")
    assert not Sweep.objects.exists()
