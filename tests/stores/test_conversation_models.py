from __future__ import annotations

import uuid
from collections.abc import Callable
from datetime import UTC, date, datetime, timedelta, timezone
from typing import Any
from zoneinfo import ZoneInfo

import pytest
from django.core.exceptions import ImproperlyConfigured
from django.db import connection
from django.test.utils import CaptureQueriesContext
from django.utils import timezone as django_timezone

from history_retention import services
from history_retention.conf import get_settings
from history_retention.exceptions import NoNamingTable, StoreUnreadable, UsageError
from history_retention.facts import NEVER, Conversation, KeepReason, Naming, SkipReason, State
from history_retention.models import Thread
from history_retention.policy import Bounds
from history_retention.services import Trigger, silent
from history_retention.stores import open_store
from history_retention.stores.conversation_models import instant_of_value

from ..conftest import WriteStore
from ..hostapp.models import Chat, Note, Reply, Ticket, Topic
from ..store_files import NOW, ConversationRow, ThreadRows, add_threads, threads_in

DAY = timedelta(days=1)
CHATS = {
    "MODEL": "hostapp.Chat",
    "ACTIVITY_FIELD": "updated_at",
    "LABEL_FIELD": "title",
    "PROJECT_FIELD": "team",
}
TICKETS = {"MODEL": "hostapp.Ticket", "THREAD_FIELD": "pk", "LABEL_FIELD": "subject"}
NOTES = {"MODEL": "hostapp.Note", "THREAD_FIELD": "thread", "ACTIVITY_FIELD": "day"}


@pytest.fixture
def named_by(retention: Callable[..., None]) -> Callable[..., None]:
    """Let models name the threads of store "history"."""
    return lambda *sources: retention(
        STORES={"history": {"CONVERSATIONS": sources[0] if len(sources) == 1 else list(sources)}}
    )


@pytest.fixture
def threads(written_store: WriteStore) -> Callable[..., Any]:
    """Write threads of an age into a LangGraph store without a table that names them."""
    return lambda *thread_ids, age=40 * DAY: written_store(
        [ThreadRows(thread_id=thread_id, age=age) for thread_id in thread_ids],
        None,
        layout="langgraph_sqlite",
    )


def conversations() -> dict[str, tuple[Conversation, ...]]:
    with open_store("history") as store:
        assert store.naming is Naming.KNOWN
        assert store.notes == ()
        return {t.stored.thread_id: t.conversations for t in store.indexed_threads(silent)}


def chat(thread_id: uuid.UUID | None, age: timedelta = 40 * DAY, **fields: Any) -> Chat:
    return Chat.objects.create(thread_id=thread_id, updated_at=NOW - age, **fields)


def reclaimable() -> list[str]:
    return [t.thread_id for t in services.plan_reclaim("history", now=NOW).reclaimable]


def prunable(**bounds: Any) -> list[str]:
    plan = services.plan_prune("history", Bounds(**bounds), now=NOW)
    return [t.thread_id for t in plan.prunable]


def test_a_model_names_threads_by_a_uuid_with_activity_label_and_project(
    threads: Callable[..., Any], named_by: Callable[..., None]
) -> None:
    name, other = uuid.uuid4(), uuid.uuid4()
    threads(str(name), str(other))
    named_by(CHATS)
    row = chat(name, 3 * DAY, title="größe", team="shop")
    chat(None)

    assert conversations() == {
        str(name): (
            Conversation(
                conversation_id=row.pk, last_activity=NOW - 3 * DAY, project="shop", label="größe"
            ),
        ),
        str(other): (),
    }
    services.measure("history", now=NOW)
    saved = Thread.objects.get(thread_id=str(name))
    assert (saved.label, saved.project, saved.conversation_ids) == ("größe", "shop", [row.pk])
    assert saved.state == State.RESUMABLE


@pytest.mark.parametrize("spell", [str, lambda name: name.hex])
def test_a_uuid_field_names_a_thread_of_either_spelling(
    threads: Callable[..., Any], named_by: Callable[..., None], spell: Callable[[uuid.UUID], str]
) -> None:
    names = [uuid.uuid4() for _ in range(3)]
    path = threads(*map(spell, names))
    named_by(CHATS)
    for name in names[:2]:
        chat(name)

    assert reclaimable() == [spell(names[2])]
    plan = services.plan_prune("history", Bounds(everything=True), now=NOW, reclaim=False)
    outcome = services.execute(plan, trigger=Trigger.CODE)

    assert (outcome.removed.thread_count, outcome.skipped) == (2, ())
    assert threads_in(path) == {spell(names[2])}


def test_a_row_that_the_models_own_managers_hide_still_keeps_its_thread(
    threads: Callable[..., Any], named_by: Callable[..., None]
) -> None:
    name = uuid.uuid4()
    threads(str(name))
    named_by(CHATS)
    chat(name, is_deleted=True)

    assert Chat.objects.count() == 0
    assert reclaimable() == []


def test_a_models_own_number_names_a_thread(
    threads: Callable[..., Any], named_by: Callable[..., None]
) -> None:
    numbers = [Ticket.objects.create(subject=f"no. {n}").pk for n in range(2)]
    path = threads(*map(str, numbers), "0", "x", "9" * 40, "٤٢", "")
    named_by(TICKETS)

    assert reclaimable() == sorted(["", "0", "9" * 40, "x", "٤٢"])
    plan = services.plan_prune("history", Bounds(everything=True), now=NOW)
    outcome = services.execute(plan, trigger=Trigger.CODE)

    assert [t.thread_id for t in plan.prunable] == [str(n) for n in reversed(numbers)]
    assert (outcome.skipped, threads_in(path)) == ((), set())


def test_without_an_activity_field_a_thread_is_as_old_as_its_own_state(
    threads: Callable[..., Any], named_by: Callable[..., None]
) -> None:
    number = Ticket.objects.create().pk
    threads(str(number), age=31 * DAY)
    named_by(TICKETS)

    (found,) = conversations()[str(number)]

    assert found.last_activity == NEVER
    assert prunable(older_than_days=30) == [str(number)]
    assert prunable(older_than_days=31) == []


@pytest.mark.parametrize(("day", "goes"), [(date(2026, 10, 30), True), (date(2026, 10, 31), False)])
def test_a_day_counts_until_its_end(
    threads: Callable[..., Any], named_by: Callable[..., None], day: date, goes: bool
) -> None:
    threads("a")
    named_by(NOTES)
    Note.objects.create(slug="n-1", thread="a", day=day)

    assert prunable(older_than_days=30) == (["a"] if goes else [])


@pytest.mark.parametrize(
    "row", [{"day": None}, {"seen": ""}, {"seen": "last week"}, {"seen": "1759276800"}]
)
def test_a_row_that_tells_no_activity_keeps_its_thread(
    threads: Callable[..., Any], named_by: Callable[..., None], row: dict[str, Any]
) -> None:
    threads("a")
    named_by(NOTES | {"ACTIVITY_FIELD": next(iter(row))})
    Note.objects.create(slug="n-1", thread="a", **row)

    plan = services.plan_prune("history", Bounds(everything=True), now=NOW)

    assert [(k.thread_id, k.reason) for k in plan.kept] == [("a", KeepReason.UNKNOWN_AGE)]
    assert plan.threads == ()


def test_a_clock_in_a_text_without_a_zone_is_utc(
    threads: Callable[..., Any], named_by: Callable[..., None]
) -> None:
    threads("a")
    named_by(NOTES | {"ACTIVITY_FIELD": "seen"})
    Note.objects.create(slug="n-1", thread="a", seen="2026-10-01 08:00:00")

    (found,) = conversations()["a"]

    assert found == Conversation(
        conversation_id="n-1", last_activity=datetime(2026, 10, 1, 8, tzinfo=UTC)
    )


def test_an_empty_name_names_the_empty_thread(
    threads: Callable[..., Any], named_by: Callable[..., None]
) -> None:
    threads("", "a")
    named_by(NOTES)
    Note.objects.create(slug="n-1", thread="", day=NOW.date())

    assert reclaimable() == ["a"]


def test_any_of_several_models_keeps_a_thread(
    threads: Callable[..., Any], named_by: Callable[..., None]
) -> None:
    name = uuid.uuid4()
    number = Ticket.objects.create().pk
    threads(str(name), str(number), "a", "b")
    named_by(CHATS, TICKETS, NOTES)
    chat(name)
    Note.objects.create(slug="n-1", thread="a", day=NOW.date())
    Note.objects.create(slug="n-2", thread=str(name), day=NOW.date())

    found = {thread: [c.conversation_id for c in rows] for thread, rows in conversations().items()}

    assert found == {
        str(name): ["hostapp.Chat:1", "hostapp.Note:n-2"],
        str(number): [f"hostapp.Ticket:{number}"],
        "a": ["hostapp.Note:n-1"],
        "b": [],
    }
    assert reclaimable() == ["b"]
    assert prunable(older_than_days=30) == [str(number)]


def test_a_relation_names_the_thread_of_its_key(
    threads: Callable[..., Any], named_by: Callable[..., None]
) -> None:
    row = chat(uuid.uuid4())
    Reply.objects.create(chat=row)
    path = threads(str(row.pk), "999999")
    named_by({"MODEL": "hostapp.Reply", "THREAD_FIELD": "chat"})

    assert reclaimable() == ["999999"]
    plan = services.plan_prune("history", Bounds(everything=True), now=NOW)
    outcome = services.execute(plan, trigger=Trigger.CODE)

    assert (outcome.skipped, threads_in(path)) == ((), set())


def test_models_go_before_a_table_of_the_file(
    written_store: WriteStore, named_by: Callable[..., None]
) -> None:
    written_store(
        [ThreadRows(thread_id="a"), ThreadRows(thread_id="b")],
        [ConversationRow(thread_id="b")],
        layout="langgraph_sqlite",
    )
    named_by(NOTES)
    Note.objects.create(slug="n-1", thread="a", day=NOW.date())

    assert reclaimable() == ["b"]
    assert services.measure("history", now=NOW).conversation_count == 1


@pytest.mark.parametrize(
    ("source", "told"),
    [
        ({"MODEL": "hostapp.Nobody"}, "Nobody"),
        ({"MODEL": "nowhere.Chat"}, "nowhere"),
        (CHATS | {"THREAD_FIELD": "thread"}, "thread"),
        (CHATS | {"THREAD_FIELD": "reply"}, "reply"),
        (CHATS | {"ACTIVITY_FIELD": "changed"}, "changed"),
        (CHATS | {"LABEL_FIELD": "title__name"}, "name"),
    ],
)
def test_a_model_or_field_that_is_not_there_is_named(
    threads: Callable[..., Any],
    named_by: Callable[..., None],
    source: dict[str, str],
    told: str,
) -> None:
    threads("a")
    named_by(source)

    with pytest.raises(ImproperlyConfigured, match=rf"'{source['MODEL']}'.*{told}"):
        services.plan_reclaim("history", now=NOW)


@pytest.mark.parametrize("rows", [0, 3])
def test_models_that_name_not_a_single_thread_look_wrong_and_reclaim_refuses(
    threads: Callable[..., Any], named_by: Callable[..., None], rows: int
) -> None:
    path = threads("a", "b")
    named_by(TICKETS)
    Ticket.objects.bulk_create([Ticket() for _ in range(rows)])

    with pytest.raises(NoNamingTable, match=r"not one of the 2 threads .* hostapp\.Ticket\.pk"):
        services.plan_reclaim("history", now=NOW)
    with pytest.raises(NoNamingTable, match=r"--force"):
        services.plan_prune("history", Bounds(everything=True), now=NOW)
    forced = services.plan_reclaim("history", now=NOW, force=True)

    assert [t.thread_id for t in forced.reclaimable] == ["a", "b"]
    assert threads_in(path) == {"a", "b"}


CHANGES: dict[str, tuple[Callable[[Chat], Any], SkipReason | None]] = {
    "untouched": (lambda _row: None, None),
    "retitled": (lambda _row: Chat.objects.update(title="new"), None),
    "used": (lambda _row: Chat.objects.update(updated_at=NOW), SkipReason.ACTIVE),
    "named again": (lambda row: chat(row.thread_id, 90 * DAY), SkipReason.NAMED),
    "unnamed": (lambda _row: Chat.objects.update(thread_id=None), SkipReason.NAMED),
    "deleted": (lambda row: row.delete(), SkipReason.NAMED),
    "renamed": (lambda _row: Chat.objects.update(thread_id=uuid.uuid4()), SkipReason.NAMED),
}


@pytest.mark.parametrize("change", CHANGES)
def test_a_thread_goes_only_if_the_models_still_say_what_the_plan_saw(
    threads: Callable[..., Any], named_by: Callable[..., None], change: str
) -> None:
    name, other = uuid.uuid4(), uuid.uuid4()
    path = threads(str(name), str(other))
    named_by(CHATS)
    row = chat(name)
    plan = services.plan_prune("history", Bounds(older_than_days=30), now=NOW)
    act, reason = CHANGES[change]
    act(row)

    outcome = services.execute(plan, trigger=Trigger.CODE)

    skipped = [] if reason is None else [(str(name), reason)]
    assert [(s.thread_id, s.reason) for s in outcome.skipped] == skipped
    assert threads_in(path) == {thread_id for thread_id, _ in skipped}


def test_an_unnamed_thread_that_a_model_names_meanwhile_is_left(
    threads: Callable[..., Any], named_by: Callable[..., None]
) -> None:
    name, other = uuid.uuid4(), uuid.uuid4()
    path = threads(str(name), str(other), "b")
    named_by(CHATS)
    chat(other)
    plan = services.plan_reclaim("history", now=NOW)
    chat(name, 90 * DAY, is_deleted=True)

    outcome = services.execute(plan, trigger=Trigger.CODE)

    assert [(s.thread_id, s.reason) for s in outcome.skipped] == [(str(name), SkipReason.NAMED)]
    assert threads_in(path) == {str(name), str(other)}


def test_planning_asks_each_model_once_however_many_rows_it_has(
    threads: Callable[..., Any], named_by: Callable[..., None]
) -> None:
    tickets = Ticket.objects.bulk_create([Ticket() for _ in range(4_500)])
    threads("a", *(str(ticket.pk) for ticket in tickets[:3]))
    named_by(CHATS, TICKETS)

    with CaptureQueriesContext(connection) as queries:
        services.plan_prune("history", Bounds(older_than_days=30), now=NOW)

    asked = [query["sql"] for query in queries if "hostapp_" in query["sql"]]
    assert len(asked) == 2


def test_no_model_is_asked_for_more_than_it_was_configured_to_give(
    threads: Callable[..., Any], named_by: Callable[..., None]
) -> None:
    threads("a")
    named_by({"MODEL": "hostapp.Chat"})
    chat(uuid.uuid4(), title="secret")

    with CaptureQueriesContext(connection) as queries:
        services.measure("history", now=NOW)

    assert not any("title" in query["sql"] for query in queries if "hostapp_" in query["sql"])


@pytest.mark.parametrize(
    ("value", "instant"),
    [
        (datetime(2026, 10, 1, tzinfo=UTC), datetime(2026, 10, 1, tzinfo=UTC)),
        (
            datetime(2026, 10, 1, 14, tzinfo=timezone(timedelta(hours=14))),
            datetime(2026, 10, 1, tzinfo=UTC),
        ),
        (date(2026, 10, 1), datetime(2026, 10, 1, 23, 59, 59, 999999, tzinfo=UTC)),
        ("2026-10-01T00:00:00Z", datetime(2026, 10, 1, tzinfo=UTC)),
        (1_759_276_800, None),
        (None, None),
    ],
)
def test_the_instant_of_an_activity(value: object, instant: datetime | None) -> None:
    assert instant_of_value(value) == instant


def test_a_naive_datetime_is_in_the_projects_own_zone() -> None:
    with django_timezone.override(ZoneInfo("America/Bogota")):
        told = instant_of_value(datetime(2026, 10, 1))  # noqa: DTZ001

    assert told == datetime(2026, 10, 1, 5, tzinfo=UTC)


def test_the_sources_are_read_from_the_settings(named_by: Callable[..., None]) -> None:
    named_by(CHATS, TICKETS)

    sources = get_settings().stores["history"].conversations

    assert [(s.model, s.thread_field) for s in sources] == [
        ("hostapp.Chat", "thread_id"),
        ("hostapp.Ticket", "pk"),
    ]


def test_a_thread_that_wrote_after_the_plan_is_left_beside_models(
    threads: Callable[..., Any], named_by: Callable[..., None]
) -> None:
    path = threads("a", "b")
    named_by(NOTES)
    for name in ("a", "b"):
        Note.objects.create(slug=name, thread=name, day=date(2026, 1, 1))
    plan = services.plan_prune("history", Bounds(older_than_days=30), now=NOW)
    add_threads(path, [ThreadRows(thread_id="a", age=DAY)], layout="langgraph_sqlite")

    outcome = services.execute(plan, trigger=Trigger.CODE)

    assert [(s.thread_id, s.reason) for s in outcome.skipped] == [("a", SkipReason.ACTIVE)]
    assert threads_in(path) == {"a"}


@pytest.mark.parametrize(
    "spell",
    [lambda name: str(name).upper(), lambda name: f"{{{name}}}", lambda name: f"urn:{name}"],
)
def test_a_uuid_field_keeps_a_thread_that_spells_its_uuid_in_another_way(
    threads: Callable[..., Any],
    named_by: Callable[..., None],
    spell: Callable[[uuid.UUID], str],
) -> None:
    names = [uuid.uuid4() for _ in range(2)]
    threads(spell(names[0]), str(names[1]), "nobody's")
    named_by(CHATS)
    rows = [chat(name) for name in names]

    assert reclaimable() == ["nobody's"]
    found = conversations()[spell(names[0])]
    assert [each.conversation_id for each in found] == [rows[0].pk]


@pytest.mark.parametrize("spell", ["00{}", " {}", "{}\n", "+{}", "{}"])
def test_a_number_keeps_a_thread_that_spells_it_in_another_way(
    threads: Callable[..., Any], named_by: Callable[..., None], spell: str
) -> None:
    number, other = (Ticket.objects.create().pk for _ in range(2))
    thread_id = spell.format(number)
    path = threads(thread_id, str(other), "nobody's")
    named_by(TICKETS)

    readout = services.measure("history", now=NOW)
    states = {thread.thread_id: thread.state for thread in readout.largest_threads}
    plan = services.plan_reclaim("history", now=NOW)
    outcome = services.execute(plan, trigger=Trigger.CODE)

    assert states[thread_id] == State.RESUMABLE
    assert [thread.thread_id for thread in plan.reclaimable] == ["nobody's"]
    assert (outcome.removed.thread_count, outcome.skipped) == (1, ())
    assert threads_in(path) == {thread_id, str(other)}


def test_bounds_take_a_thread_that_its_number_names_in_another_way_and_all_that_name_it(
    threads: Callable[..., Any], named_by: Callable[..., None]
) -> None:
    number = Ticket.objects.create().pk
    path = threads(f" {number}", str(number))
    named_by(TICKETS)

    plan = services.plan_prune("history", Bounds(older_than_days=30), now=NOW)
    outcome = services.execute(plan, trigger=Trigger.CODE)

    assert [thread.conversation_ids for thread in plan.prunable] == [(number,), (number,)]
    assert (outcome.skipped, threads_in(path)) == ((), set())


def test_a_text_of_32_digits_names_the_thread_of_that_uuid_to_the_plan_and_to_the_sweep(
    threads: Callable[..., Any], named_by: Callable[..., None]
) -> None:
    name = uuid.uuid4()
    path = threads(str(name))
    named_by(NOTES)
    Note.objects.create(slug="n-1", thread=name.hex, day=date(2026, 1, 1))

    plan = services.plan_prune("history", Bounds(older_than_days=30), now=NOW)
    outcome = services.execute(plan, trigger=Trigger.CODE)

    assert [thread.conversation_ids for thread in plan.prunable] == [("n-1",)]
    assert (outcome.skipped, threads_in(path)) == ((), set())


@pytest.mark.parametrize("name", ["bob", "BOB", "Bob"])
def test_a_text_of_other_case_names_the_thread_where_the_database_says_so(
    threads: Callable[..., Any], named_by: Callable[..., None], name: str
) -> None:
    path = threads("Bob", "eve", "nobody's")
    named_by({"MODEL": "hostapp.Topic", "THREAD_FIELD": "thread"})
    rows = [Topic.objects.create(thread=each).pk for each in (name, "eve")]

    assert reclaimable() == ["nobody's"]
    plan = services.plan_prune("history", Bounds(everything=True), now=NOW)
    outcome = services.execute(plan, trigger=Trigger.CODE)

    assert {t.thread_id: t.conversation_ids for t in plan.prunable} == {
        "Bob": (rows[0],),
        "eve": (rows[1],),
    }
    assert (outcome.skipped, threads_in(path)) == ((), set())


def test_a_text_of_other_case_is_another_thread_where_the_database_says_so(
    threads: Callable[..., Any], named_by: Callable[..., None]
) -> None:
    threads("Bob", "eve")
    named_by(NOTES)
    for slug, name in (("n-1", "bob"), ("n-2", "eve")):
        Note.objects.create(slug=slug, thread=name, day=date(2026, 1, 1))

    assert reclaimable() == ["Bob"]


@pytest.mark.parametrize("source", [TICKETS, NOTES], ids=["numbers", "texts"])
def test_a_setting_that_names_not_one_thread_reclaims_nothing(
    threads: Callable[..., Any], named_by: Callable[..., None], source: dict[str, str]
) -> None:
    path = threads("user-1", "user-2")
    named_by(source)
    Ticket.objects.create()
    Note.objects.create(slug="n-1", thread="1", day=NOW.date())

    with pytest.raises(NoNamingTable, match="not one of the 2 threads here is named by hostapp"):
        services.plan_reclaim("history", now=NOW)
    with pytest.raises(NoNamingTable):
        services.plan_prune("history", Bounds(older_than_days=30), now=NOW)

    assert threads_in(path) == {"user-1", "user-2"}
    assert len(services.plan_reclaim("history", now=NOW, force=True).reclaimable) == 2


@pytest.mark.django_db(databases=["default", "history"])
def test_rows_that_cannot_be_read_are_said_to_be_the_hosts(
    threads: Callable[..., Any], named_by: Callable[..., None], settings: Any
) -> None:
    threads("a")
    named_by(NOTES)
    settings.DATABASE_ROUTERS = [f"{__name__}.NotesAreElsewhere", *settings.DATABASE_ROUTERS]

    with pytest.raises(StoreUnreadable, match=r"hostapp\.Note .* from database 'history'"):
        services.plan_reclaim("history", now=NOW)


class NotesAreElsewhere:
    """Write notes to a database without a table for them, and read them from a good one."""

    def db_for_read(self, model: type[Any], **_hints: Any) -> str | None:
        return "default" if model is Note else None

    def db_for_write(self, model: type[Any], **_hints: Any) -> str | None:
        return "history" if model is Note else None


def test_models_for_a_file_whose_own_table_names_its_threads_are_refused(
    written_store: WriteStore, named_by: Callable[..., None]
) -> None:
    path = written_store([ThreadRows(thread_id="a")], layout="gaunt_sloth")
    named_by(NOTES)

    with pytest.raises(UsageError, match="CONVERSATIONS is for LangGraph's own tables"):
        services.plan_reclaim("history", now=NOW)

    assert threads_in(path) == {"a"}


def test_a_file_of_gaunt_sloth_takes_no_models_beside_its_own_table(
    written_store: WriteStore, named_by: Callable[..., None]
) -> None:
    written_store([ThreadRows(thread_id="a")])
    named_by(NOTES)

    with pytest.raises(UsageError, match="CONVERSATIONS is for LangGraph's own tables"):
        services.plan_reclaim("history", now=NOW)
