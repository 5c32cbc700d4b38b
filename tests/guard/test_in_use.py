"""The threads that are open in this process: who has them, and what changed."""

from __future__ import annotations

import asyncio
import gc
import sys
import threading
from concurrent.futures import ThreadPoolExecutor
from datetime import timedelta

import pytest

from history_retention import recording
from history_retention.exceptions import UsageError
from history_retention.facts import KeepReason
from history_retention.guard import in_use as module
from history_retention.guard import lease
from history_retention.guard.in_use import InUse, in_use
from history_retention.models import Hold

from ..store_files import NOW

A, B = ("history", "a"), ("history", "b")


def test_a_lease_lasts_as_long_as_its_block_and_nested_ones_as_long_as_the_outermost() -> None:
    with lease("t"):
        with lease("t", using="history"), lease("other"):
            assert sorted(in_use.thread_ids("history")) == ["other", "t"]
        assert in_use.thread_ids("history") == ["t"]

    assert in_use.thread_ids("history") == []


def test_a_lease_ends_with_the_error_that_ends_its_block() -> None:
    with pytest.raises(ZeroDivisionError), lease("t"):
        _ = 1 // 0

    assert in_use.thread_ids("history") == []


def test_leases_of_one_loop_overlap_as_their_tasks_do() -> None:
    async def task(ready: asyncio.Event, end: asyncio.Event) -> None:
        with lease("t"):
            ready.set()
            await end.wait()

    async def overlapping() -> list[list[str]]:
        readies, ends = ([asyncio.Event(), asyncio.Event()] for _ in range(2))
        found = []
        async with asyncio.TaskGroup() as tasks:
            for ready, end in zip(readies, ends, strict=True):
                tasks.create_task(task(ready, end))
            for ready in readies:
                await ready.wait()
            for end in ends:
                found.append(in_use.thread_ids("history"))
                end.set()
                await asyncio.sleep(0)
        return found

    assert asyncio.run(overlapping()) == [["t"], ["t"]]
    assert in_use.thread_ids("history") == []


def test_a_store_that_is_not_in_the_settings_is_refused_before_the_block() -> None:
    with pytest.raises(UsageError, match="'elsewhere' is no store"), lease("t", "elsewhere"):
        pytest.fail("the block ran")


def test_what_is_open_in_this_process_is_leased_with_nothing_in_the_ledger() -> None:
    Hold.objects.create(store="history", thread_id="held", reason="audit")
    with lease("t"), lease("held"):
        assert recording.protections("history", NOW) == {
            "t": KeepReason.LEASED,
            "held": KeepReason.HELD,
        }
        assert recording.protections("default", NOW) == {}

    assert recording.protections("history", NOW) == {"held": KeepReason.HELD}


def test_changes_are_told_once_and_what_was_taken_back_is_none() -> None:
    uses = InUse()
    uses.begin(*A)
    uses.begin(*A)
    uses.begin(*B)
    assert uses.changes() == ({A, B}, set(), 2)
    assert uses.changes() == (set(), set(), 2)

    uses.end(*A)
    assert uses.changes() == (set(), set(), 2)
    uses.end(*A)
    uses.begin(*A)
    assert uses.changes() == (set(), set(), 2)
    uses.end(*A)
    uses.begin("history", "c")
    uses.end("history", "c")

    assert uses.changes() == (set(), {A}, 1)


def test_news_is_what_the_ledger_has_to_be_told_and_nothing_else() -> None:
    uses = InUse()
    uses.begin(*A)
    assert uses.news.is_set()
    uses.news.clear()

    uses.begin(*A)
    uses.end(*A)
    assert not uses.news.is_set()
    uses.end(*A)

    assert uses.changes() == (set(), set(), 0)


def test_starting_over_tells_all_that_is_open_and_forgets_what_was_closed() -> None:
    uses = InUse()
    uses.begin(*A)
    uses.begin(*B)
    uses.changes()
    uses.end(*B)

    uses.start_over()

    assert uses.changes() == ({A}, set(), 1)


def test_a_thread_is_idle_from_its_last_use_on() -> None:
    uses = InUse()
    opened = uses.opened("history", timedelta(seconds=10))
    for thread_id, at in (("a", 0.0), ("b", 4.0), ("a", 9.0), ("c", 14.0)):
        opened.touch(thread_id, clock=iter([at]).__next__)
    assert list(opened.touched_at) == ["b", "a", "c"]

    opened.touch("c", clock=lambda: 14.5)
    assert list(opened.touched_at) == ["a", "c"]
    opened.touch("d", clock=lambda: 19.0)

    assert list(opened.touched_at) == ["a", "c", "d"]


def test_threads_that_turn_idle_while_nothing_is_used_are_let_go_when_somebody_asks() -> None:
    uses = InUse()
    opened = uses.opened("history", timedelta(microseconds=1))
    opened.touch("a")

    assert uses.thread_ids("history") == []
    assert uses.changes() == (set(), set(), 0)


def test_the_threads_of_a_collected_saver_are_let_go_even_in_a_cycle() -> None:
    uses = InUse()
    opened = uses.opened("history", None)
    opened.touch("a")
    opened.touch("b")
    cycle = [opened]
    cycle.append(cycle)  # type: ignore[arg-type]
    uses.begin(*B)
    uses.changes()

    del opened, cycle
    gc.collect()

    assert uses.thread_ids("history") == ["b"]
    assert uses.changes() == (set(), {A}, 1)


def test_a_collector_that_runs_while_the_lock_is_held_waits_for_nothing() -> None:
    uses = InUse()
    opened = uses.opened("history", None)
    opened.touch("a")

    with uses._lock:
        del opened
        gc.collect()

    assert uses.thread_ids("history") == []


def test_memory_is_bounded_by_letting_go_what_was_used_longest_ago(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(module, "MOST_THREADS", 3)
    uses = InUse()
    opened = uses.opened("history", None)

    told = [opened.touch(thread_id) for thread_id in ("a", "b", "c", "a", "d", "e")]

    assert told == [True, True, True, True, False, False]
    assert uses.thread_ids("history") == ["a", "d", "e"]
    assert uses.changes()[2] == 3


def test_ten_thousand_open_threads_take_no_250_bytes_each_beside_their_ids() -> None:
    uses = InUse()
    opened = uses.opened("history", None)
    for number in range(10_000):
        opened.touch(f"{number:036}")

    sizes = map(sys.getsizeof, (opened.touched_at, uses._counts, uses._opened))
    assert sum(sizes) < 10_000 * 250


def test_threads_that_open_and_close_at_once_leave_nothing_behind() -> None:
    barrier = threading.Barrier(8)

    def work(worker: int) -> None:
        barrier.wait()
        for number in range(2_000):
            with lease(f"{number % 7}"), lease(f"own {worker}"):
                pass

    with ThreadPoolExecutor(8) as pool:
        list(pool.map(work, range(8)))

    assert in_use.thread_ids("history") == []
    assert not in_use._counts
