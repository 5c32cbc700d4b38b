from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta

import pytest

from history_retention import services
from history_retention.facts import Plan, Tally
from history_retention.planning import recorded_bounds
from history_retention.policy import Bounds

from .conftest import WriteStore
from .store_files import NOW, ConversationRow, ThreadRows

PLANS: list[tuple[Callable[[], Plan], dict[str, object]]] = [
    (
        lambda: services.plan_prune(
            "history", Bounds(older_than_days=30, keep_last=2, command="chat"), now=NOW, limit=5
        ),
        {
            "older_than_days": 30,
            "keep_last": 2,
            "command": "chat",
            "limit": 5,
            "grace_hours": 24.0,
        },
    ),
    (
        lambda: services.plan_prune(
            "history", Bounds(everything=True, project="/srv/app"), now=NOW, reclaim=False
        ),
        {"all": True, "project": "/srv/app"},
    ),
    (
        lambda: services.plan_prune(
            "history", Bounds(thread_ids=frozenset({"a", "b", "c"})), now=NOW, reclaim=False
        ),
        {"selected": 3},
    ),
    (lambda: services.plan_reclaim("history", now=NOW), {"grace_hours": 24.0}),
    (
        lambda: services.plan_reclaim(
            "history",
            now=NOW,
            grace=timedelta(minutes=90),
            force=True,
            exclude=["b", "a"],
            orphan_writes=True,
        ),
        {"grace_hours": 1.5, "excluded": ["a", "b"], "orphan_writes": True},
    ),
]


@pytest.mark.parametrize(("planned", "bounds"), PLANS)
def test_the_record_tells_all_that_was_asked_for(
    written_store: WriteStore, planned: Callable[[], Plan], bounds: dict[str, object]
) -> None:
    written_store([ThreadRows(thread_id="a")], [ConversationRow(thread_id="a")])

    assert recorded_bounds(planned()) == bounds


def test_a_plan_adds_up_what_would_go(written_store: WriteStore) -> None:
    written_store(
        [ThreadRows(thread_id=name, size=size) for name, size in (("a", 300), ("b", 500))],
        [ConversationRow(thread_id="a")],
    )

    plan = services.plan_prune("history", Bounds(everything=True), now=NOW)

    assert [thread.thread_id for thread in plan.threads] == ["a", "b"]
    assert plan.planned == Tally(
        thread_count=2, byte_count=sum(thread.byte_count for thread in plan.threads)
    )


def test_an_exclusion_that_is_no_thread_is_told(written_store: WriteStore) -> None:
    written_store([ThreadRows(thread_id="a"), ThreadRows(thread_id="b")])

    plan = services.plan_reclaim("history", now=NOW, exclude=["zz", "b", "aa"])

    assert plan.unmatched_exclusions == ("aa", "zz")
    assert [thread.thread_id for thread in plan.reclaimable] == ["a"]


@pytest.mark.parametrize("count", [199, 200, 201, 401])
def test_every_chosen_thread_is_weighed_however_many_there_are(
    written_store: WriteStore, count: int
) -> None:
    written_store([ThreadRows(thread_id=f"t{n:03}", writes=0, size=300) for n in range(count)])

    plan = services.plan_reclaim("history", now=NOW)

    assert [thread.thread_id for thread in plan.reclaimable] == [f"t{n:03}" for n in range(count)]
    assert {thread.byte_count for thread in plan.reclaimable} == {
        300 + len('{"source": "loop", "step": 0, "parents": {}}')
    }
