"""Which threads may go, and why the others stay: arithmetic over frozen values.

Nothing here reads a clock, a setting or a database. ``now`` is a parameter, every instant is an
aware datetime in UTC, every size is in bytes. The rules are those of the project's design:

* automatic removal (reclaim) takes only threads that no conversation names, still for the grace;
* prune takes threads somebody could resume, and only inside bounds a person gave;
* an unknown age is kept, whatever the bounds.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from math import inf

from .exceptions import UsageError
from .facts import FOREVER, Conversation, KeepReason, KeptThread, NamedThread, Naming, State
from .ranking import Rank, is_below_floor, offer, rank

LONGEST_AGE_DAYS = 36_500
"""A hundred years; a longer ``--older-than`` is a slip of the keyboard."""

_PROTECTED_STATES = {KeepReason.HELD: State.HELD, KeepReason.LEASED: State.LEASED}

MOST_WITNESSES = 20
"""Named threads that a plan notes: some of their conversations will outlive them."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Bounds:
    """What a person allowed a prune to take. Every bound that is given must be satisfied.

    ``older_than_days``: activity strictly before ``now`` minus that many times 24 hours.
    ``keep_last``: the N most recently active matching threads stay. ``everything``: the word
    for no age and no number. ``command`` and ``project`` narrow, but are no bound by
    themselves. ``thread_ids``: exactly these threads, chosen one by one.
    ``skip_unfinished`` leaves threads that wait for an answer or have steps to do.
    """

    older_than_days: int | None = None
    keep_last: int | None = None
    everything: bool = False
    command: str | None = None
    project: str | None = None
    thread_ids: frozenset[str] | None = None
    skip_unfinished: bool = False

    def __post_init__(self) -> None:
        """Refuse what is missing, impossible or contradictory, with UsageError."""
        days = self.older_than_days
        numeric = days is not None or self.keep_last is not None
        if not (numeric or self.everything or self.thread_ids is not None):
            raise UsageError(
                "Nothing was removed: a prune needs a bound. "
                "Pass --older-than DAYS, --keep-last N, or --all for everything."
            )
        if numeric and self.everything:
            raise UsageError(
                "--all means no bound, so it cannot stand beside --older-than or --keep-last: "
                "pass one or the other."
            )
        for flag, value, highest in (
            (f"--older-than takes whole days from 1 to {LONGEST_AGE_DAYS}", days, LONGEST_AGE_DAYS),
            ("--keep-last takes a whole number from 1", self.keep_last, inf),
        ):
            if value is not None and not (type(value) is int and 1 <= value <= highest):
                raise UsageError(f"{flag}, not {value!r}; for everything pass --all.")

    def matches(self, conversation: Conversation) -> bool:
        """Tell whether the conversation has the command and project asked for."""
        return self.command in (None, conversation.command) and self.project in (
            None,
            conversation.project,
        )

    def old_enough(self, activity: datetime | None, now: datetime) -> bool:
        """Tell whether the activity satisfies the age bound; an unknown one never does."""
        if self.older_than_days is None:
            return True
        return activity is not None and activity < now - timedelta(days=self.older_than_days)


@dataclass(frozen=True, slots=True, kw_only=True)
class Rules:
    """All that a choice depends on beside the threads themselves.

    ``protected`` maps thread ids to why somebody keeps them. ``reclaim`` asks for the unresumable
    threads that were still for ``grace``, minus ``excluded``; ``orphan_writes`` narrows that to
    threads without a single checkpoint.
    """

    now: datetime
    grace: timedelta
    naming: Naming
    bounds: Bounds | None = None
    reclaim: bool = True
    orphan_writes: bool = False
    excluded: frozenset[str] = frozenset()
    protected: Mapping[str, KeepReason] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class Choice:
    """What one pass decided; ``prunable`` is ordered newest activity first.

    ``witnesses`` are some of the ``thread_count`` threads that a conversation names, if any is.
    """

    prunable: list[NamedThread]
    reclaimable: list[NamedThread]
    kept: list[KeptThread]
    thread_count: int
    witnesses: tuple[str, ...]
    unmatched_exclusions: frozenset[str]


def is_still(activity: datetime | None, rules: Rules) -> bool:
    """Tell whether the activity is known and at least the grace window ago."""
    return activity is not None and activity <= rules.now - rules.grace


def state_of(thread: NamedThread, rules: Rules) -> State:
    """Tell what can be done with the thread now."""
    protection = rules.protected.get(thread.stored.thread_id)
    if protection in _PROTECTED_STATES:
        return _PROTECTED_STATES[protection]
    if thread.last_activity is None:
        return State.UNKNOWN_AGE
    if rules.naming is Naming.BROKEN:
        return State.UNTOLD
    if thread.conversations or rules.naming is Naming.ABSENT or protection is not None:
        return State.RESUMABLE
    return State.UNRESUMABLE if is_still(thread.last_activity, rules) else State.GRACE


def settled_activity(rules: Rules) -> datetime | None:
    """Return an instant before which a conversation's activity need not be told any closer.

    None when it has to be, where threads are ranked by it; FOREVER when it does not matter.
    """
    bounds = rules.bounds
    if bounds is not None and bounds.keep_last is not None:
        return None
    if bounds is None or bounds.older_than_days is None:
        return FOREVER
    return rules.now - timedelta(days=bounds.older_than_days)


def leading(thread: NamedThread) -> Conversation | None:
    """Return the most recently active of the conversations, which speaks for the thread."""
    return max(
        thread.conversations,
        key=lambda conversation: conversation.last_activity or FOREVER,
        default=None,
    )


def choose(threads: Iterable[NamedThread], rules: Rules) -> Choice:
    """Divide the threads into those that may go and those that the bounds alone would take.

    Reads the stream once and remembers only threads that some bound would take.
    """
    reclaimable: list[NamedThread] = []
    candidates: list[NamedThread] = []
    kept: list[KeptThread] = []
    newest: list[Rank] = []
    witnesses: list[str] = []
    thread_count = 0
    unmatched = set(rules.excluded)
    for thread in threads:
        thread_count += 1
        if thread.conversations and len(witnesses) < MOST_WITNESSES:
            witnesses.append(thread.stored.thread_id)
        unmatched.discard(thread.stored.thread_id)
        if _is_orphan(thread, rules):
            _choose_orphan(thread, rules, reclaimable, kept)
        elif rules.bounds is not None and _is_addressed(thread, rules, rules.bounds):
            if rules.bounds.keep_last is not None and _all_match(thread, rules.bounds):
                offer(newest, rank(thread), rules.bounds.keep_last)
            if _is_candidate(thread, rules.bounds, rules.now):
                candidates.append(thread)
    prunable: list[NamedThread] = []
    if rules.bounds is not None:
        floor = newest[0] if newest else None
        for thread in candidates:
            _choose_addressed(thread, rules, rules.bounds, floor, prunable, kept)
    prunable.sort(key=rank, reverse=True)
    return Choice(
        prunable=prunable,
        reclaimable=reclaimable,
        kept=kept,
        thread_count=thread_count,
        witnesses=tuple(witnesses),
        unmatched_exclusions=frozenset(unmatched),
    )


def _is_orphan(thread: NamedThread, rules: Rules) -> bool:
    """Tell whether the thread is one that reclaim looks at."""
    if thread.conversations or not rules.reclaim:
        return False
    if rules.orphan_writes:
        return thread.stored.checkpoint_count == 0
    return rules.naming is Naming.KNOWN


def _choose_orphan(
    thread: NamedThread, rules: Rules, reclaimable: list[NamedThread], kept: list[KeptThread]
) -> None:
    thread_id = thread.stored.thread_id
    if thread_id in rules.excluded:
        return
    if thread.last_activity is None:
        kept.append(KeptThread(thread_id=thread_id, reason=KeepReason.UNKNOWN_AGE))
    elif is_still(thread.last_activity, rules):
        protection = rules.protected.get(thread_id)
        if protection is not None:
            kept.append(KeptThread(thread_id=thread_id, reason=protection))
        else:
            reclaimable.append(thread)


def _is_addressed(thread: NamedThread, rules: Rules, bounds: Bounds) -> bool:
    """Tell whether a prune looks at the thread: somebody can resume it, or it was chosen."""
    if rules.naming is Naming.BROKEN:
        return False
    if bounds.thread_ids is not None:
        return thread.stored.thread_id in bounds.thread_ids
    return bool(thread.conversations) or rules.naming is Naming.ABSENT


def _names(thread: NamedThread) -> tuple[Conversation, ...]:
    """List what the bounds are asked of; a thread without conversations speaks for itself."""
    return thread.conversations or (
        Conversation(
            conversation_id=thread.stored.thread_id, last_activity=thread.stored.last_activity
        ),
    )


def _all_match(thread: NamedThread, bounds: Bounds) -> bool:
    return all(bounds.matches(conversation) for conversation in _names(thread))


def _is_candidate(thread: NamedThread, bounds: Bounds, now: datetime) -> bool:
    """Tell whether the bounds but for ``keep_last`` take one of the thread's conversations."""
    if thread.last_activity is None:
        return _all_match(thread, bounds)
    names = _names(thread)
    if len(names) == 1 and not bounds.old_enough(thread.last_activity, now):
        return False
    return any(
        bounds.matches(conversation) and bounds.old_enough(conversation.last_activity, now)
        for conversation in names
    )


def _choose_addressed(
    thread: NamedThread,
    rules: Rules,
    bounds: Bounds,
    floor: Rank | None,
    prunable: list[NamedThread],
    kept: list[KeptThread],
) -> None:
    thread_id = thread.stored.thread_id
    if thread.last_activity is None:
        kept.append(KeptThread(thread_id=thread_id, reason=KeepReason.UNKNOWN_AGE))
        return
    names = _names(thread)
    taken = [
        conversation
        for conversation in names
        if bounds.matches(conversation)
        and bounds.old_enough(conversation.last_activity, rules.now)
        and is_below_floor(floor, conversation.last_activity, thread_id)
    ]
    if not taken:
        return
    is_below = is_below_floor(floor, thread.last_activity, thread_id)
    if len(taken) < len(names) or (len(names) > 1 and not is_below):
        kept.append(KeptThread(thread_id=thread_id, reason=KeepReason.NAMED_BY_KEPT_CONVERSATION))
    elif is_below and bounds.old_enough(thread.last_activity, rules.now):
        if thread_id in rules.protected:
            kept.append(KeptThread(thread_id=thread_id, reason=rules.protected[thread_id]))
        elif state_of(thread, rules) is State.GRACE:
            kept.append(KeptThread(thread_id=thread_id, reason=KeepReason.LIVE))
        else:
            prunable.append(thread)
