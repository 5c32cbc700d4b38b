"""Who names a thread when the host's own models do (the ``CONVERSATIONS`` setting).

Read through none of the model's managers, so that a soft-deleted row, hidden from the host's
pages, still keeps its thread: it can be restored. Several models may name threads; one that does
is enough.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from datetime import UTC, date, datetime, time
from itertools import islice
from typing import Any

from django.apps import apps
from django.core.exceptions import (
    FieldDoesNotExist,
    FieldError,
    ImproperlyConfigured,
    ValidationError,
)
from django.db import DatabaseError, models, router
from django.utils import timezone

from ..conf import ConversationSource
from ..exceptions import StoreUnreadable
from ..facts import NEVER, Conversation, NamedThread, PlannedThread, SkipReason, StoredThread
from .instants import instant_of_text
from .naming import SCHEMA, Names, NamingSource, compared, in_order, named
from .scratch import Scratch
from .spelling import named_by, spelled_in_columns
from .sqlite import sort_key
from .turns import microseconds

ROWS_A_READ = 2_000
_SPELLINGS = (
    "CREATE INDEX named_thread ON named (thread_id, id)",
    "CREATE TABLE folded (spelling BLOB, id, PRIMARY KEY (spelling, id)) WITHOUT ROWID",
)
"""For looking up what names a thread in another spelling. Rows with capitals are in ``folded``."""


class ConversationModels(NamingSource):
    """One or more Django models whose rows name threads, in whatever database they live."""

    def __init__(self, sources: Sequence[ConversationSource]) -> None:
        """Raise ImproperlyConfigured for a model or a field that is not there."""
        self._sources = sources
        for source in sources:
            try:
                _field(source, source.thread_field)
                _all(source).values(*_fields(source))
            except (LookupError, FieldError, FieldDoesNotExist, ValueError) as error:
                raise ImproperlyConfigured(
                    f"CONVERSATIONS with model {source.model!r}: {str(error).rstrip('.')}."
                ) from error

    def names(self, settled_before: datetime | None = None) -> Names:
        """Stream the named threads with their conversations."""
        scratch = self._collected()
        try:
            yield from in_order(scratch)
        finally:
            scratch.close()

    def joined(
        self, stored: Iterable[StoredThread], settled_before: datetime | None = None
    ) -> Iterator[NamedThread]:
        """Join threads with the rows that name them, also those that spell them otherwise.

        Where a spelling suggests it, the database is asked as ``changed`` will ask it, so that no
        thread is planned that would then be left alone as named.
        """
        fields = [_thread_field(source) for source in self._sources]
        scratch = self._collected()
        try:
            is_folded = any(True for _ in scratch.rows("SELECT 1 FROM folded LIMIT 1"))
            for thread in named(stored, in_order(scratch)):
                told = {each.conversation_id for each in thread.conversations}
                if _suggested(scratch, fields, thread.stored.thread_id, is_folded) <= told:
                    yield thread
                    continue
                others = tuple(
                    conversation
                    for _, conversation in self._naming([thread.stored.thread_id])
                    if conversation.conversation_id not in told
                )
                yield replace(thread, conversations=thread.conversations + others)
        finally:
            scratch.close()

    def names_any(self, thread_ids: Sequence[str]) -> bool:
        """Ask the models, by thread id."""
        return any(True for _ in self._naming(thread_ids))

    def totals(self) -> tuple[int, int, int]:
        """Count the models' rows; what a turn is, only the host knows."""
        return sum(_all(source).count() for source in self._sources), 0, 0

    def mark(self) -> int:
        """Return 0: ``changed`` compares activity itself."""
        return 0

    def changed(self, threads: Sequence[PlannedThread], mark: int) -> dict[str, SkipReason]:
        """Ask the models again, by thread id."""
        planned = {thread.thread_id: thread for thread in threads}
        now: dict[str, set[Any]] = {}
        active: set[Any] = set()
        for thread_id, conversation in self._naming(list(planned)):
            now.setdefault(thread_id, set()).add(conversation.conversation_id)
            activity = conversation.last_activity
            if activity is None or activity > planned[thread_id].last_activity:
                active.add(conversation.conversation_id)
        return compared(threads, now, active)

    def _collected(self) -> Scratch:
        """Read all rows that name a thread."""
        scratch = Scratch(*SCHEMA, *_SPELLINGS)
        try:
            for source in self._sources:
                rows = self._rows(source, _all(source))
                while batch := list(islice(rows, ROWS_A_READ)):
                    scratch.put("INSERT INTO named VALUES (?, ?, ?, '', ?, ?)", _named(batch))
                    scratch.put("INSERT OR IGNORE INTO folded VALUES (?, ?)", _with_capitals(batch))
        except BaseException:
            scratch.close()
            raise
        return scratch

    def _naming(self, thread_ids: Sequence[str]) -> Iterator[tuple[str, Conversation]]:
        """Ask the models for the rows that name the threads, each with the thread it names."""
        for source in self._sources:
            meant = _Meant(source, thread_ids)
            rows = _all(source).filter(**{f"{source.thread_field}__in": meant.values})
            for value, conversation in self._rows(source, rows):
                for thread_id in meant.threads_named(value):
                    yield thread_id, conversation

    def _rows(
        self, source: ConversationSource, rows: models.QuerySet[Any]
    ) -> Iterator[tuple[object, Conversation]]:
        """Read what the rows that name a thread say: its value, and the conversation."""
        naming = rows.exclude(**{source.thread_field: None})
        for row in _read(source, naming.values(*_fields(source))):
            key = row["pk"] if isinstance(row["pk"], int) else str(row["pk"])
            active = row[source.activity_field] if source.activity_field else NEVER
            yield (
                row[source.thread_field],
                Conversation(
                    conversation_id=key if len(self._sources) == 1 else f"{source.model}:{key}",
                    last_activity=instant_of_value(active),
                    project=str(row.get(source.project_field or "") or ""),
                    label=str(row.get(source.label_field or "") or ""),
                ),
            )


class _Meant:
    """Which threads a value of a thread field means, by the field's and the database's rules.

    A database may say that a value matches though it is spelled otherwise (an upper-case UUID, a
    number with zeros, a collation without case). Its word counts: the thread is named.
    """

    def __init__(self, source: ConversationSource, thread_ids: Sequence[str]) -> None:
        self._exactly: dict[object, set[str]] = {}
        self._loosely: dict[bytes, set[str]] = {}
        field = _thread_field(source)
        for thread_id in thread_ids:
            value = _value_of(field, thread_id)
            spellings = spelled_in_columns([thread_id])[0] if value == thread_id else [value]
            for spelling in spellings:
                if spelling is not None:
                    self._exactly.setdefault(spelling, set()).add(thread_id)
                    self._loosely.setdefault(_folded(spelling), set()).add(thread_id)

    @property
    def values(self) -> list[object]:
        """List what to ask the database for."""
        return list(self._exactly)

    def threads_named(self, value: object) -> set[str]:
        """Return the threads that a row with this value names."""
        return self._exactly.get(value) or self._loosely.get(_folded(value), set())


def _named(rows: Iterable[tuple[object, Conversation]]) -> Iterator[tuple[object, ...]]:
    for value, each in rows:
        about = microseconds(each.last_activity), each.project, each.label
        for thread_id in named_by(value):
            yield sort_key(thread_id), each.conversation_id, *about


def _with_capitals(
    rows: Iterable[tuple[object, Conversation]],
) -> Iterator[tuple[bytes, int | str]]:
    for value, each in rows:
        folded = _folded(value)
        if folded not in map(sort_key, named_by(value)):
            yield folded, each.conversation_id


def _suggested(
    scratch: Scratch, fields: Sequence[models.Field[Any, Any]], thread_id: str, is_folded: bool
) -> set[object]:
    """Return the conversations of which the database might say that they name the thread."""
    values = [_value_of(field, thread_id) for field in fields]
    spellings = {_folded(value) for value in values if value is not None}
    others = spellings - {sort_key(thread_id)}
    found = [
        *(("SELECT id FROM named WHERE thread_id = ?", each) for each in others),
        *(("SELECT id FROM folded WHERE spelling = ?", each) for each in spellings if is_folded),
    ]
    return {row[0] for sql, spelling in found for row in scratch.rows(sql, (spelling,))}


def _folded(value: object) -> bytes:
    """Return what is the same for all values that a database may take for equal."""
    return sort_key(str(value).casefold())


def _read(source: ConversationSource, rows: models.QuerySet[Any]) -> Iterator[dict[str, Any]]:
    """Stream the rows; StoreUnreadable says whose they are when their database refuses."""
    try:
        yield from rows.iterator(ROWS_A_READ)
    except DatabaseError as error:
        raise StoreUnreadable(
            f"The rows of {source.model} that name threads cannot be read from database "
            f"{rows.db!r} ({error}); nothing more was done. Check CONVERSATIONS and migrate it."
        ) from error


def instant_of_value(value: object) -> datetime | None:
    """Return the instant of an activity field; a day counts until its end."""
    if isinstance(value, datetime):
        return (timezone.make_aware(value) if timezone.is_naive(value) else value).astimezone(UTC)
    if isinstance(value, date):
        return datetime.combine(value, time.max, UTC)
    return instant_of_text(value)


def _thread_field(source: ConversationSource) -> models.Field[Any, Any]:
    """Return the field whose values name threads; that of the other model for a relation."""
    field = _field(source, source.thread_field)
    while isinstance(field, models.ForeignKey):
        field = field.target_field
    return field


def _value_of(field: models.Field[Any, Any], thread_id: str) -> object | None:
    """Return the thread id as the field's value, None where it cannot hold it."""
    try:
        value: object = field.to_python(thread_id)
        if isinstance(value, int):
            field.run_validators(value)  # a number beyond the column's range is an error there
    except (ValidationError, ValueError, OverflowError):
        return None
    return value


def _model(source: ConversationSource) -> type[models.Model]:
    return apps.get_model(source.model)


def _all(source: ConversationSource) -> models.QuerySet[Any]:
    """Return the rows where they are written: a replica may not know the newest of them yet."""
    model = _model(source)
    return models.QuerySet(model, using=router.db_for_write(model))


def _fields(source: ConversationSource) -> list[str]:
    optional = (source.activity_field, source.project_field, source.label_field)
    return [source.thread_field, "pk", *filter(None, optional)]


def _field(source: ConversationSource, name: str) -> models.Field[Any, Any]:
    options = _model(source)._meta
    if name == "pk":
        return options.pk
    field = options.get_field(name)
    if not isinstance(field, models.Field) or field.many_to_many:
        raise FieldDoesNotExist(f"{source.model}.{name} is not a column")
    return field
