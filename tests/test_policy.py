from __future__ import annotations

import tracemalloc
from datetime import UTC, datetime, timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from history_retention.exceptions import UsageError
from history_retention.facts import (
    NEVER,
    Conversation,
    KeepReason,
    KeptThread,
    NamedThread,
    Naming,
    State,
    StoredThread,
)
from history_retention.policy import Bounds, Choice, Rules, choose, leading, state_of
from history_retention.ranking import rank

NOW = datetime(2026, 11, 30, 12, tzinfo=UTC)
GRACE = timedelta(hours=24)
MICROSECOND = timedelta(microseconds=1)


def days(number: float) -> timedelta:
    return timedelta(days=number)


def ago(age: timedelta | None) -> datetime | None:
    return None if age is None else NOW - age


def conversation(
    number: int, age: timedelta | None, command: str = "chat", project: str = "/srv/app"
) -> Conversation:
    return Conversation(
        conversation_id=number, last_activity=ago(age), command=command, project=project
    )


def thread(
    thread_id: str,
    age: timedelta | None,
    *conversations: Conversation,
    checkpoints: int = 1,
) -> NamedThread:
    return NamedThread(
        stored=StoredThread(
            thread_id=thread_id,
            checkpoint_count=checkpoints,
            write_count=1,
            byte_count=None,
            first_activity=None,
            last_activity=ago(age),
            fingerprint=b"",
        ),
        conversations=conversations,
    )


def named(thread_id: str, age: timedelta | None) -> NamedThread:
    """A thread that one conversation of the same age names."""
    return thread(thread_id, age, conversation(ord(thread_id[0]), age))


def rules(
    bounds: Bounds | None = None,
    *,
    naming: Naming = Naming.KNOWN,
    reclaim: bool = True,
    orphan_writes: bool = False,
    excluded: frozenset[str] = frozenset(),
    protected: dict[str, KeepReason] | None = None,
) -> Rules:
    return Rules(
        now=NOW,
        grace=GRACE,
        naming=naming,
        bounds=bounds,
        reclaim=reclaim,
        orphan_writes=orphan_writes,
        excluded=excluded,
        protected=protected or {},
    )


def ids(threads: list[NamedThread]) -> list[str]:
    return [item.stored.thread_id for item in threads]


def kept(choice: Choice) -> dict[str, KeepReason]:
    return {item.thread_id: item.reason for item in choice.kept}


ALL = Bounds(everything=True)
MONTH = Bounds(older_than_days=30)


def test_a_prune_without_a_bound_is_refused() -> None:
    with pytest.raises(UsageError, match="a prune needs a bound"):
        Bounds()


def test_a_command_and_a_project_are_no_bound() -> None:
    with pytest.raises(UsageError, match="a prune needs a bound"):
        Bounds(command="chat", project="/srv/app")


@pytest.mark.parametrize("number", [0, -1, 36_501])
def test_an_impossible_age_is_refused(number: int) -> None:
    with pytest.raises(UsageError, match=rf"--older-than .* not {number}; .*--all"):
        Bounds(older_than_days=number)


@pytest.mark.parametrize("number", [0, -7])
def test_an_impossible_number_of_threads_is_refused(number: int) -> None:
    with pytest.raises(UsageError, match=rf"--keep-last .* not {number}; .*--all"):
        Bounds(keep_last=number)


@pytest.mark.parametrize(
    "bound", [{"older_than_days": 1}, {"keep_last": 1}, {"older_than_days": 2, "keep_last": 2}]
)
def test_everything_beside_a_number_is_refused(bound: dict[str, int]) -> None:
    with pytest.raises(UsageError, match="--all means no bound"):
        Bounds(everything=True, **bound)  # type: ignore[arg-type]


@pytest.mark.parametrize("number", [1, 36_500])
def test_an_age_from_a_day_to_a_hundred_years_is_a_bound(number: int) -> None:
    assert Bounds(older_than_days=number).older_than_days == number


def test_an_empty_selection_of_threads_takes_nothing() -> None:
    choice = choose([named("a", days(90))], rules(Bounds(thread_ids=frozenset())))

    assert (choice.prunable, choice.kept) == ([], [])


@pytest.mark.parametrize(
    ("age", "goes"),
    [(days(30), False), (days(30) + MICROSECOND, True), (days(30) - MICROSECOND, False)],
)
def test_older_than_takes_what_was_active_strictly_before_the_cut(
    age: timedelta, goes: bool
) -> None:
    choice = choose([named("a", age)], rules(MONTH))

    assert ids(choice.prunable) == (["a"] if goes else [])
    assert choice.kept == []


def test_a_day_is_twenty_four_hours_of_one_instant_line() -> None:
    choice = choose(
        [named("a", timedelta(hours=24, microseconds=1)), named("b", timedelta(hours=24))],
        rules(Bounds(older_than_days=1)),
    )

    assert ids(choice.prunable) == ["a"]


def test_state_newer_than_its_conversation_saves_the_thread() -> None:
    choice = choose([thread("a", days(5), conversation(1, days(40)))], rules(MONTH))

    assert (choice.prunable, choice.kept) == ([], [])


def test_threads_that_no_bound_takes_are_not_remembered() -> None:
    threads = (thread(f"{n:05}", days(5), conversation(n, days(40))) for n in range(20_000))

    tracemalloc.start()
    try:
        choice = choose(threads, rules(Bounds(older_than_days=30, keep_last=10)))
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()

    assert (choice.prunable, choice.kept) == ([], [])
    assert peak < 200_000


def test_a_turn_newer_than_the_state_saves_the_thread() -> None:
    choice = choose([thread("a", days(40), conversation(1, days(5)))], rules(MONTH))

    assert (choice.prunable, choice.kept) == ([], [])


def test_a_conversation_without_an_activity_field_leaves_the_age_to_the_thread() -> None:
    undated = Conversation(conversation_id=1, last_activity=NEVER)

    choice = choose([thread("a", days(31), undated), thread("b", days(29), undated)], rules(MONTH))

    assert ids(choice.prunable) == ["a"]


@pytest.mark.parametrize("bounds", [ALL, MONTH, Bounds(keep_last=1)])
@pytest.mark.parametrize(
    "unknown",
    [
        thread("u", None, conversation(1, days(400))),
        thread("u", days(400), conversation(1, None)),
        thread("u", days(400), conversation(1, days(400)), conversation(2, None)),
    ],
    ids=["its state", "its conversation", "one of its conversations"],
)
def test_an_unknown_age_is_kept_and_said_whatever_the_bounds(
    bounds: Bounds, unknown: NamedThread
) -> None:
    choice = choose([unknown, named("n", days(1))], rules(bounds))

    assert "u" not in ids(choice.prunable)
    assert kept(choice)["u"] is KeepReason.UNKNOWN_AGE


def test_an_unknown_age_of_an_unnamed_thread_is_kept_by_reclaim_and_said() -> None:
    choice = choose([thread("u", None)], rules())

    assert (choice.reclaimable, kept(choice)) == ([], {"u": KeepReason.UNKNOWN_AGE})


def test_an_unknown_age_of_another_command_is_not_reported() -> None:
    other = thread("u", None, conversation(1, days(400), command="code"))

    choice = choose([other], rules(Bounds(everything=True, command="chat")))

    assert (choice.prunable, choice.kept) == ([], [])


def test_an_unknown_age_takes_one_of_the_last_places() -> None:
    threads = [named("a", days(1)), named("b", days(2)), named("u", None)]

    choice = choose(threads, rules(Bounds(keep_last=2)))

    assert ids(choice.prunable) == ["b"]


def test_keep_last_keeps_the_most_recently_active() -> None:
    threads = [named(name, days(age)) for name, age in zip("abcde", (5, 1, 4, 2, 3), strict=True)]

    choice = choose(threads, rules(Bounds(keep_last=2)))

    assert ids(choice.prunable) == ["e", "c", "a"]


def test_keep_last_counts_only_resumable_threads() -> None:
    threads = [thread("x", days(2)), thread("y", days(3)), named("a", days(4)), named("b", days(5))]

    choice = choose(threads, rules(Bounds(keep_last=1)))

    assert ids(choice.prunable) == ["b"]
    assert ids(choice.reclaimable) == ["x", "y"]


def test_keep_last_counts_only_threads_of_the_command() -> None:
    threads = [
        thread("a", days(1), conversation(1, days(1), command="code")),
        thread("b", days(2), conversation(2, days(2))),
        thread("c", days(3), conversation(3, days(3))),
    ]

    choice = choose(threads, rules(Bounds(keep_last=1, command="chat")))

    assert ids(choice.prunable) == ["c"]


def test_more_places_than_threads_keep_them_all() -> None:
    choice = choose([named("a", days(400)), named("b", days(500))], rules(Bounds(keep_last=3)))

    assert choice.prunable == []


def test_equal_activity_is_ordered_by_id_and_never_keeps_more_than_asked() -> None:
    threads = [named(name, days(9)) for name in "abc"]

    choice = choose(threads, rules(Bounds(keep_last=1)))

    assert ids(choice.prunable) == ["b", "a"]


def test_both_bounds_must_be_satisfied() -> None:
    threads = [
        named("a", days(40)),
        named("b", days(50)),
        named("c", days(60)),
        named("d", days(1)),
    ]

    choice = choose(threads, rules(Bounds(older_than_days=45, keep_last=3)))

    assert ids(choice.prunable) == ["c"]


def test_a_thread_of_an_old_and_a_recent_conversation_stays_and_is_said() -> None:
    shared = thread("s", days(1), conversation(1, days(40)), conversation(2, days(1)))

    choice = choose([shared], rules(MONTH))

    assert (choice.prunable, kept(choice)) == ([], {"s": KeepReason.NAMED_BY_KEPT_CONVERSATION})


def test_a_thread_goes_when_all_its_conversations_are_old() -> None:
    shared = thread("s", days(40), conversation(1, days(40)), conversation(2, days(31)))

    choice = choose([shared], rules(MONTH))

    assert (ids(choice.prunable), choice.kept) == (["s"], [])


def test_young_state_saves_a_thread_whose_conversations_are_all_old() -> None:
    shared = thread("s", days(5), conversation(1, days(40)), conversation(2, days(31)))

    choice = choose([shared], rules(MONTH))

    assert (choice.prunable, choice.kept) == ([], [])


def test_a_thread_of_two_commands_stays_when_one_is_asked_for() -> None:
    shared = thread(
        "s", days(40), conversation(1, days(40)), conversation(2, days(40), command="code")
    )

    choice = choose([shared], rules(Bounds(older_than_days=30, command="code")))

    assert (choice.prunable, kept(choice)) == ([], {"s": KeepReason.NAMED_BY_KEPT_CONVERSATION})


def test_a_shared_thread_among_the_last_stays_for_its_recent_conversation() -> None:
    shared = thread("s", days(1), conversation(1, days(40)), conversation(2, days(1)))

    choice = choose([shared, named("a", days(5))], rules(Bounds(keep_last=1)))

    assert ids(choice.prunable) == ["a"]
    assert kept(choice) == {"s": KeepReason.NAMED_BY_KEPT_CONVERSATION}


def test_the_most_recently_active_conversation_speaks_for_the_thread() -> None:
    shared = thread("s", days(1), conversation(1, days(40)), conversation(2, days(1)))

    first = leading(shared)

    assert first is not None
    assert first.conversation_id == 2


def test_command_and_project_narrow_together() -> None:
    threads = [
        thread("a", days(40), conversation(1, days(40), "code", "/srv/a")),
        thread("b", days(40), conversation(2, days(40), "code", "/srv/b")),
        thread("c", days(40), conversation(3, days(40), "chat", "/srv/a")),
    ]

    choice = choose(threads, rules(Bounds(everything=True, command="code", project="/srv/a")))

    assert (ids(choice.prunable), choice.kept) == (["a"], [])


def test_a_command_asked_for_takes_no_thread_that_has_none() -> None:
    choice = choose(
        [thread("a", days(40))],
        rules(Bounds(everything=True, command="chat"), naming=Naming.ABSENT),
    )

    assert choice.prunable == []


@pytest.mark.parametrize("reason", [KeepReason.HELD, KeepReason.LEASED, KeepReason.PROTECTED])
def test_a_protected_thread_is_neither_pruned_nor_reclaimed_and_is_said(
    reason: KeepReason,
) -> None:
    protected = {"a": reason, "o": reason}

    choice = choose([named("a", days(40)), thread("o", days(40))], rules(ALL, protected=protected))

    assert (choice.prunable, choice.reclaimable) == ([], [])
    assert kept(choice) == protected


def test_a_hold_on_a_thread_that_no_bound_takes_is_not_reported() -> None:
    choice = choose(
        [named("a", days(4)), thread("o", timedelta(hours=2))],
        rules(MONTH, protected={"a": KeepReason.HELD, "o": KeepReason.HELD}),
    )

    assert (choice.prunable, choice.reclaimable, choice.kept) == ([], [], [])


def test_an_exclusion_is_neither_reclaimed_nor_reported() -> None:
    choice = choose(
        [thread("a", days(40)), thread("b", days(40))], rules(excluded=frozenset({"a", "zz"}))
    )

    assert (ids(choice.reclaimable), choice.kept) == (["b"], [])


@pytest.mark.parametrize(
    ("age", "goes"), [(GRACE, True), (GRACE - MICROSECOND, False), (GRACE + MICROSECOND, True)]
)
def test_reclaim_takes_what_was_still_for_at_least_the_grace_window(
    age: timedelta, goes: bool
) -> None:
    choice = choose([thread("a", age)], rules())

    assert ids(choice.reclaimable) == (["a"] if goes else [])
    assert choice.kept == []


@pytest.mark.parametrize("naming", [Naming.ABSENT, Naming.BROKEN])
def test_reclaim_takes_nothing_where_nobody_tells_who_names_threads(naming: Naming) -> None:
    choice = choose([thread("a", days(400))], rules(naming=naming))

    assert (choice.reclaimable, choice.kept) == ([], [])


@pytest.mark.parametrize("naming", list(Naming))
def test_orphan_writes_take_threads_without_a_checkpoint_and_need_no_naming(
    naming: Naming,
) -> None:
    threads = [thread("w", days(2), checkpoints=0), thread("c", days(2), checkpoints=1)]

    choice = choose(threads, rules(naming=naming, orphan_writes=True))

    assert ids(choice.reclaimable) == ["w"]


def test_orphan_writes_wait_for_the_grace_window() -> None:
    choice = choose([thread("w", timedelta(seconds=9), checkpoints=0)], rules(orphan_writes=True))

    assert choice.reclaimable == []


def test_orphan_writes_leave_a_named_thread() -> None:
    waiting = thread("w", days(2), conversation(1, days(2)), checkpoints=0)

    choice = choose([waiting], rules(orphan_writes=True))

    assert choice.reclaimable == []


def test_a_prune_without_reclaim_takes_no_unresumable_thread() -> None:
    choice = choose([thread("o", days(400)), named("a", days(400))], rules(ALL, reclaim=False))

    assert (ids(choice.prunable), choice.reclaimable) == (["a"], [])


def test_where_threads_stand_for_themselves_a_prune_goes_by_their_own_activity() -> None:
    threads = [thread("a", days(40)), thread("b", days(20))]

    choice = choose(threads, rules(MONTH, naming=Naming.ABSENT))

    assert (ids(choice.prunable), choice.reclaimable) == (["a"], [])


@pytest.mark.parametrize("bounds", [ALL, MONTH, Bounds(thread_ids=frozenset({"a"}))])
def test_where_the_naming_table_is_missing_nothing_is_pruned(bounds: Bounds) -> None:
    choice = choose([thread("a", days(400))], rules(bounds, naming=Naming.BROKEN))

    assert (choice.prunable, choice.reclaimable) == ([], [])


def test_a_selection_takes_exactly_the_selected_threads() -> None:
    threads = [named("a", days(1)), named("b", days(400)), thread("o", days(400))]

    choice = choose(threads, rules(Bounds(thread_ids=frozenset({"a", "o"})), reclaim=False))

    assert (ids(choice.prunable), choice.kept) == (["a", "o"], [])


def test_a_selected_unresumable_thread_in_its_grace_window_is_live_and_stays() -> None:
    bounds = Bounds(thread_ids=frozenset({"o"}))

    choice = choose([thread("o", timedelta(hours=23))], rules(bounds, reclaim=False))

    assert (choice.prunable, kept(choice)) == ([], {"o": KeepReason.LIVE})


@pytest.mark.parametrize(
    ("item", "naming", "protected", "state"),
    [
        (named("a", days(1)), Naming.KNOWN, {}, State.RESUMABLE),
        (thread("a", days(2)), Naming.KNOWN, {}, State.UNRESUMABLE),
        (thread("a", timedelta(hours=2)), Naming.KNOWN, {}, State.GRACE),
        (thread("a", None), Naming.KNOWN, {}, State.UNKNOWN_AGE),
        (named("a", None), Naming.KNOWN, {}, State.UNKNOWN_AGE),
        (thread("a", days(2)), Naming.ABSENT, {}, State.RESUMABLE),
        (thread("a", days(2)), Naming.BROKEN, {}, State.UNTOLD),
        (named("a", days(1)), Naming.KNOWN, {"a": KeepReason.HELD}, State.HELD),
        (thread("a", None), Naming.KNOWN, {"a": KeepReason.LEASED}, State.LEASED),
        (named("a", days(1)), Naming.KNOWN, {"a": KeepReason.PROTECTED}, State.RESUMABLE),
        (thread("a", days(2)), Naming.KNOWN, {"a": KeepReason.PROTECTED}, State.RESUMABLE),
        (thread("a", None), Naming.KNOWN, {"a": KeepReason.PROTECTED}, State.UNKNOWN_AGE),
    ],
)
def test_a_thread_is_in_the_first_state_that_fits(
    item: NamedThread, naming: Naming, protected: dict[str, KeepReason], state: State
) -> None:
    assert state_of(item, rules(naming=naming, protected=protected)) is state


AGES = st.one_of(
    st.none(),
    st.integers(0, 100).map(days),
    st.integers(-2, 2).map(lambda step: days(30) + step * MICROSECOND),
    st.integers(-2, 2).map(lambda step: GRACE + step * MICROSECOND),
)
COMMANDS = st.sampled_from(["chat", "code"])


@st.composite
def stores(draw: st.DrawFn) -> list[NamedThread]:
    """Up to nine threads, each named by up to three conversations of any age."""
    found = []
    number = 0
    for name in "abcdefghi"[: draw(st.integers(0, 9))]:
        conversations = []
        for _ in range(draw(st.integers(0, 3))):
            number += 1
            conversations.append(conversation(number, draw(AGES), draw(COMMANDS)))
        found.append(thread(name, draw(AGES), *conversations, checkpoints=draw(st.integers(0, 2))))
    return found


BOUNDS = st.one_of(
    st.just(ALL),
    st.builds(
        Bounds,
        older_than_days=st.sampled_from([1, 10, 29, 30, 31, 90]),
        keep_last=st.one_of(st.none(), st.integers(1, 5)),
        command=st.one_of(st.none(), COMMANDS),
    ),
    st.builds(Bounds, keep_last=st.integers(1, 5), command=st.one_of(st.none(), COMMANDS)),
    st.builds(Bounds, thread_ids=st.frozensets(st.sampled_from("abcdefghi"))),
)
PROTECTED = st.dictionaries(
    st.sampled_from("abcdefghi"), st.sampled_from([KeepReason.HELD, KeepReason.LEASED]), max_size=3
)
RULES = st.builds(
    rules,
    BOUNDS,
    naming=st.sampled_from(Naming),
    reclaim=st.booleans(),
    orphan_writes=st.booleans(),
    excluded=st.frozensets(st.sampled_from("abcdefghi"), max_size=2),
    protected=PROTECTED,
)


def gone(choice: Choice) -> set[str]:
    return {*ids(choice.prunable), *ids(choice.reclaimable)}


@given(stores(), RULES)
def test_nothing_protected_or_of_unknown_age_ever_goes(
    threads: list[NamedThread], given_rules: Rules
) -> None:
    choice = choose(threads, given_rules)

    unknown = {item.stored.thread_id for item in threads if item.last_activity is None}
    assert gone(choice) & (unknown | set(given_rules.protected)) == set()


@given(stores(), RULES)
def test_a_thread_is_in_one_list_at_most(threads: list[NamedThread], given_rules: Rules) -> None:
    choice = choose(threads, given_rules)

    listed = [*ids(choice.prunable), *ids(choice.reclaimable), *(k.thread_id for k in choice.kept)]
    assert len(listed) == len(set(listed))


@given(stores(), RULES)
def test_reclaim_never_takes_what_a_conversation_names_or_what_is_in_grace(
    threads: list[NamedThread], given_rules: Rules
) -> None:
    choice = choose(threads, given_rules)

    for item in choice.reclaimable:
        assert item.conversations == ()
        assert item.last_activity is not None
        assert item.last_activity <= NOW - GRACE
        assert item.stored.thread_id not in given_rules.excluded


@given(stores(), RULES)
def test_every_conversation_of_a_pruned_thread_satisfies_the_bounds(
    threads: list[NamedThread], given_rules: Rules
) -> None:
    choice = choose(threads, given_rules)

    bounds = given_rules.bounds
    assert bounds is not None
    for item in choice.prunable:
        assert bounds.old_enough(item.last_activity, NOW)
        for each in item.conversations:
            assert bounds.matches(each)
            assert bounds.old_enough(each.last_activity, NOW)


@given(stores(), st.integers(1, 9))
def test_keep_last_takes_all_but_the_newest(threads: list[NamedThread], number: int) -> None:
    choice = choose(threads, rules(Bounds(keep_last=number)))

    resumable = sorted((item for item in threads if item.conversations), key=rank, reverse=True)
    dated = {item.stored.thread_id for item in resumable[number:] if item.last_activity}
    assert set(ids(choice.prunable)) == dated


@given(stores(), RULES)
def test_prunable_is_ordered_newest_activity_first(
    threads: list[NamedThread], given_rules: Rules
) -> None:
    choice = choose(threads, given_rules)

    activity = [item.last_activity for item in choice.prunable]
    assert activity == sorted(activity, key=lambda at: at or NEVER, reverse=True)


@given(stores(), st.integers(1, 60), st.integers(0, 60), st.integers(1, 5), st.integers(0, 5))
def test_a_stricter_bound_takes_a_subset(
    threads: list[NamedThread], age: int, older: int, last: int, more: int
) -> None:
    loose = choose(threads, rules(Bounds(older_than_days=age, keep_last=last)))

    strict = choose(threads, rules(Bounds(older_than_days=age + older, keep_last=last + more)))

    assert set(ids(strict.prunable)) <= set(ids(loose.prunable))
    assert set(ids(strict.prunable)) <= set(
        ids(choose(threads, rules(Bounds(older_than_days=age + older))).prunable)
    )


@given(stores(), RULES, st.integers(0, 8), AGES)
def test_one_more_conversation_never_makes_a_thread_reclaimable(
    threads: list[NamedThread], given_rules: Rules, position: int, age: timedelta | None
) -> None:
    before = set(ids(choose(threads, given_rules).reclaimable))
    more = list(threads)
    if position < len(more):
        item = more[position]
        more[position] = NamedThread(
            stored=item.stored, conversations=(*item.conversations, conversation(99, age))
        )

    after = set(ids(choose(more, given_rules).reclaimable))

    assert after <= before
    assert after == before - {item.stored.thread_id for item in more if item.conversations}


@given(stores(), RULES)
def test_every_hold_only_ever_adds_to_what_is_kept(
    threads: list[NamedThread], given_rules: Rules
) -> None:
    free = choose(
        threads,
        rules(
            given_rules.bounds,
            naming=given_rules.naming,
            reclaim=given_rules.reclaim,
            orphan_writes=given_rules.orphan_writes,
            excluded=given_rules.excluded,
        ),
    )

    held = choose(threads, given_rules)

    assert gone(held) == gone(free) - set(given_rules.protected)
    assert set(held.kept) == set(free.kept) | {
        KeptThread(thread_id=thread_id, reason=given_rules.protected[thread_id])
        for thread_id in gone(free) & set(given_rules.protected)
    }


@given(stores(), RULES)
def test_without_a_naming_table_nothing_but_orphan_writes_goes(
    threads: list[NamedThread], given_rules: Rules
) -> None:
    broken = Rules(
        now=NOW,
        grace=GRACE,
        naming=Naming.BROKEN,
        bounds=given_rules.bounds,
        reclaim=given_rules.reclaim,
        orphan_writes=given_rules.orphan_writes,
    )

    choice = choose(threads, broken)

    assert choice.prunable == []
    assert all(item.stored.checkpoint_count == 0 for item in choice.reclaimable)
