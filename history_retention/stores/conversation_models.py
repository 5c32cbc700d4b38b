"""Who names a thread when the host's own models do (the ``CONVERSATIONS`` setting).

Read through none of the model's managers, so that a soft-deleted row, hidden from the host's
pages, still keeps its thread: it can be restored. Several models may name threads; one that does
is enough.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from datetime import UTC, date, datetime, time
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
from ..facts import NEVER, PlannedThread, SkipReason
from .instants import instant_of_text
from .naming import SCHEMA, Names, NamingSource, compared, in_order, microseconds, named_by
from .scratch import Scratch
from .sqlite import sort_key


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

    def names(self) -> Names:
        """Stream the named threads with their conversations."""
        scratch = Scratch(*SCHEMA)
        try:
            for source in self._sources:
                scratch.put(
                    "INSERT INTO named VALUES (?, ?, ?, '', ?, ?)",
                    (
                        (sort_key(thread_id), key, microseconds(active), project, label)
                        for name, key, active, project, label in self._rows(source, _all(source))
                        for thread_id in named_by(name)
                    ),
                )
            yield from in_order(scratch)
        finally:
            scratch.close()

    def totals(self) -> tuple[int, int, int]:
        """Count the models' rows; what a turn is, only the host knows."""
        return sum(_all(source).count() for source in self._sources), 0, 0

    def mark(self) -> int:
        """Return 0: ``changed`` compares activity itself."""
        return 0

    def changed(self, threads: Sequence[PlannedThread], mark: int) -> dict[str, SkipReason]:
        """Ask the models again, by thread id."""
        now: dict[str, set[Any]] = {}
        active: set[Any] = set()
        for source in self._sources:
            meant = _Meant(_field(source, source.thread_field), threads)
            rows = _all(source).filter(**{f"{source.thread_field}__in": meant.values})
            for name, key, activity, _, _ in self._rows(source, rows):
                for thread in meant.threads_named(name):
                    now.setdefault(thread.thread_id, set()).add(key)
                    if activity is None or activity > thread.last_activity:
                        active.add(key)
        return compared(threads, now, active)

    def _rows(
        self, source: ConversationSource, rows: models.QuerySet[Any]
    ) -> Iterator[tuple[object, int | str, datetime | None, str, str]]:
        """Read thread, id, activity, project and label of the rows that name a thread."""
        named = rows.exclude(**{source.thread_field: None})
        for row in _read(source, named.values(*_fields(source))):
            key = row["pk"] if isinstance(row["pk"], int) else str(row["pk"])
            yield (
                row[source.thread_field],
                key if len(self._sources) == 1 else f"{source.model}:{key}",
                instant_of_value(row[source.activity_field]) if source.activity_field else NEVER,
                str(row.get(source.project_field or "") or ""),
                str(row.get(source.label_field or "") or ""),
            )


class _Meant:
    """Which threads a value of a thread field means, by the field's and the database's rules.

    A database may say that a value matches though it is spelled otherwise (an upper-case UUID, a
    number with zeros, a collation without case). Its word counts: the thread is named.
    """

    def __init__(self, field: models.Field[Any, Any], threads: Sequence[PlannedThread]) -> None:
        self._exactly: dict[object, list[PlannedThread]] = {}
        self._loosely: dict[str, list[PlannedThread]] = {}
        value_of = field_value(field)
        for thread in threads:
            value = value_of(thread.thread_id)
            if value is not None:
                self._exactly.setdefault(value, []).append(thread)
                self._loosely.setdefault(str(value).casefold(), []).append(thread)

    @property
    def values(self) -> list[object]:
        """List what to ask the database for."""
        return list(self._exactly)

    def threads_named(self, value: object) -> list[PlannedThread]:
        """Return the threads that a row with this value names."""
        return self._exactly.get(value) or self._loosely.get(str(value).casefold(), [])


def _read(source: ConversationSource, rows: models.QuerySet[Any]) -> Iterator[dict[str, Any]]:
    """Stream the rows; StoreUnreadable says whose they are when their database refuses."""
    try:
        yield from rows.iterator(2_000)
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


def field_value(field: models.Field[Any, Any]) -> Any:
    """Return a function from a thread id to the field's value, None where it cannot hold it."""
    while isinstance(field, models.ForeignKey):
        field = field.target_field

    def value(thread_id: str) -> object | None:
        try:
            found: object = field.to_python(thread_id)
            if isinstance(found, int):
                field.run_validators(found)  # a number beyond the column's range is an error there
        except (ValidationError, ValueError, OverflowError):
            return None
        return found

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
