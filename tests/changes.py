"""What may happen to a thread between its plan and its turn, in a store on any database."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from datetime import timedelta

import pytest

from history_retention import services
from history_retention.facts import Ending, Plan, SkipReason
from history_retention.models import Hold
from history_retention.outcomes import SkippedThread
from history_retention.policy import Bounds
from history_retention.services import Trigger

from .store_files import NOW, ThreadRows

NAMES = ("changed", "still")
"""The threads of such a store, each idle for forty days and named by one conversation."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Agent:
    """Somebody else at work on the store; ``rewrite`` is SQL that writes a row of a thread anew."""

    run: Callable[[str], None]
    add: Callable[[Iterable[ThreadRows]], None]
    rows_of: Callable[[str], list[object]]
    tables: tuple[str, ...]
    rewrite: str


Change = Callable[[Agent], None]


def planned() -> Plan:
    """Plan to prune everything idle for thirty days."""
    return services.plan_prune("history", Bounds(older_than_days=30), now=NOW)


def new_checkpoint(agent: Agent) -> None:
    agent.add([ThreadRows(thread_id="changed", age=timedelta(0), writes=0)])


def new_write(agent: Agent) -> None:
    agent.add([ThreadRows(thread_id="changed", age=timedelta(0), checkpoints=0)])


def row_in_another_namespace(agent: Agent) -> None:
    age = timedelta(days=50)
    agent.add([ThreadRows(thread_id="changed", age=age, namespace="sub:1", writes=0)])


def rewritten_row(agent: Agent) -> None:
    agent.run(agent.rewrite)


def lost_row(agent: Agent) -> None:
    agent.run(
        "DELETE FROM checkpoints WHERE thread_id = 'changed' AND checkpoint_id ="
        " (SELECT MIN(checkpoint_id) FROM checkpoints WHERE thread_id = 'changed')"
    )


def new_turn(agent: Agent) -> None:
    agent.run(
        "INSERT INTO sessions (ts, conversation_id) SELECT '2026-11-30T11:59:00Z', id"
        " FROM conversations WHERE thread_id = 'changed'"
    )


def new_conversation(agent: Agent) -> None:
    agent.run(
        "INSERT INTO conversations (started_ts, thread_id)"
        " VALUES ('2026-09-01T12:00:00Z', 'changed')"
    )


def lost_conversation(agent: Agent) -> None:
    agent.run("UPDATE conversations SET thread_id = NULL WHERE thread_id = 'changed'")


def new_hold(_agent: Agent) -> None:
    Hold.objects.create(store="history", thread_id="changed", reason="an audit")


def removed_thread(agent: Agent) -> None:
    for table in agent.tables:
        agent.run(f"DELETE FROM {table} WHERE thread_id = 'changed'")


every_change = pytest.mark.parametrize(
    ("change", "reason"),
    [
        (new_checkpoint, SkipReason.ACTIVE),
        (new_write, SkipReason.ACTIVE),
        (row_in_another_namespace, SkipReason.ACTIVE),
        (rewritten_row, SkipReason.ACTIVE),
        (lost_row, SkipReason.ACTIVE),
        (new_turn, SkipReason.ACTIVE),
        (new_conversation, SkipReason.NAMED),
        (lost_conversation, SkipReason.NAMED),
        (new_hold, SkipReason.HELD),
        (removed_thread, SkipReason.GONE),
    ],
    ids=lambda value: getattr(value, "__name__", str(value)),
)


def require_that_only_the_other_goes(agent: Agent, change: Change, reason: SkipReason) -> None:
    """Change one of the two threads after they were planned, and remove both as planned."""
    plan = planned()
    change(agent)
    changed_rows = agent.rows_of("changed")

    outcome = services.execute(plan, trigger=Trigger.CODE, vacuum=False)

    assert {thread.thread_id for thread in plan.prunable} == set(NAMES)
    assert outcome.skipped == (SkippedThread(thread_id="changed", reason=reason),)
    assert (outcome.ending, outcome.removed.thread_count) == (Ending.DONE, 1)
    assert agent.rows_of("changed") == changed_rows
    assert agent.rows_of("still") == []
