"""What the project's settings say, read once and checked.

The only reader of ``django.conf.settings``. The values are frozen and nothing is written back;
they are forgotten when Django's ``setting_changed`` tells that ``HISTORY_RETENTION`` changed.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import timedelta
from functools import cache
from types import MappingProxyType
from typing import Literal

from django.conf import settings
from django.core.exceptions import ImproperlyConfigured
from django.core.signals import setting_changed
from django.db import connections
from django.dispatch import receiver

from . import options
from .exceptions import UsageError
from .options import Section, Takes, refusal
from .policy import LONGEST_AGE_DAYS, Bounds

SETTING = "HISTORY_RETENTION"
AUTO = "auto"
"""The layout that is told from the tables present."""

SecureDelete = Literal["fast", "on"]

_STORE_OPTIONS = ("LAYOUT", "SCHEMA", "READ_DATABASE", "CONVERSATIONS")
_SOURCE_OPTIONS = ("MODEL", "THREAD_FIELD", "ACTIVITY_FIELD", "LABEL_FIELD", "PROJECT_FIELD")
_POLICY_OPTIONS = (
    *("STORE", "OLDER_THAN", "KEEP_LAST", "ALL", "COMMAND", "PROJECT", "SKIP_UNFINISHED"),
)
_OPTIONS = (
    *("STORES", "GRACE", "BOX_SECONDS", "GAP_SECONDS", "MAX_BYTES_PER_SECOND"),
    *("SECURE_DELETE", "POLICIES"),
    *("VACUUM_FREE_RATIO", "VACUUM_FREE_BYTES", "VACUUM_IN_REQUEST_BYTES"),
    "ADMIN_USES_CELERY",
)


@dataclass(frozen=True, slots=True, kw_only=True)
class ConversationSource:
    """A model of the host's own whose rows name threads; the fields are names on that model."""

    model: str
    thread_field: str = "thread_id"
    activity_field: str | None = None
    label_field: str | None = None
    project_field: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class StoreOptions:
    """One entry of ``STORES``. ``layout`` is a name, a dotted path or ``AUTO``.

    ``schema`` is where a server keeps the tables, empty where its search path finds them.
    ``read_database`` is the alias of a replica to measure and to plan from.
    """

    alias: str
    layout: str = AUTO
    schema: str = ""
    read_database: str | None = None
    conversations: tuple[ConversationSource, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Policy:
    """One entry of ``POLICIES``: what a schedule may prune in a store."""

    store: str
    bounds: Bounds


@dataclass(frozen=True, slots=True, kw_only=True)
class Settings:
    """``HISTORY_RETENTION`` as a whole. Stores keep their order; the first is the default.

    ``box_seconds`` is how long one delete may hold the write lock, ``gap_seconds`` how long the
    next one waits, ``max_bytes_per_second`` how much a sweep may remove (None: no limit),
    ``vacuum_in_request_bytes`` the largest store a web request may vacuum. Less free space than
    either ``vacuum_free_ratio`` of the file or ``vacuum_free_bytes`` is left. With
    ``admin_uses_celery`` the admin hands sweeps to workers instead of doing them in a request.
    """

    stores: Mapping[str, StoreOptions] = field(default_factory=lambda: MappingProxyType({}))
    grace: timedelta = timedelta(hours=24)
    box_seconds: float = 0.025
    gap_seconds: float = 0.05
    max_bytes_per_second: int | None = None
    secure_delete: SecureDelete = "fast"
    policies: tuple[Policy, ...] = ()
    vacuum_free_ratio: float = 0.1
    vacuum_free_bytes: int = 64 * 1024 * 1024
    vacuum_in_request_bytes: int = 256 * 1024 * 1024
    admin_uses_celery: bool = False


@cache
def get_settings() -> Settings:
    """Return the settings; ImproperlyConfigured names the key that is wrong and what it takes."""
    if not settings.USE_TZ:
        raise ImproperlyConfigured(
            "history_retention compares instants of many zones, so it needs USE_TZ = True."
        )
    section = Section(SETTING, getattr(settings, SETTING, {}), _OPTIONS)
    default = Settings()
    stores = _stores(section)
    return Settings(
        stores=stores,
        grace=section.read("GRACE", default.grace, _grace),
        box_seconds=section.read("BOX_SECONDS", default.box_seconds, options.seconds),
        gap_seconds=section.read("GAP_SECONDS", default.gap_seconds, options.seconds),
        max_bytes_per_second=section.read(
            "MAX_BYTES_PER_SECOND", default.max_bytes_per_second, options.whole_number_or_none
        ),
        secure_delete=section.read("SECURE_DELETE", default.secure_delete, _secure_delete),
        policies=_policies(section, stores),
        vacuum_free_ratio=section.read(
            "VACUUM_FREE_RATIO", default.vacuum_free_ratio, options.share
        ),
        vacuum_free_bytes=section.read(
            "VACUUM_FREE_BYTES", default.vacuum_free_bytes, options.byte_count
        ),
        vacuum_in_request_bytes=section.read(
            "VACUUM_IN_REQUEST_BYTES", default.vacuum_in_request_bytes, options.byte_count
        ),
        admin_uses_celery=section.read(
            "ADMIN_USES_CELERY", default.admin_uses_celery, options.truth
        ),
    )


@receiver(setting_changed, dispatch_uid="history_retention.conf")
def forget(*, setting: str, **_kwargs: object) -> None:
    """Forget the settings when the project's own changed, as tests do."""
    if setting in (SETTING, "USE_TZ"):
        get_settings.cache_clear()


def default_store() -> str:
    """Return the alias of the first store; UsageError when there is none."""
    for alias in get_settings().stores:
        return alias
    raise UsageError(
        f"{SETTING}['STORES'] names no store: add the alias of its database, "
        "as in {'STORES': {'history': {}}}."
    )


def store_options(alias: str) -> StoreOptions:
    """Return the options of a store; UsageError names the configured ones for any other alias."""
    stores = get_settings().stores
    if alias not in stores:
        named = ", ".join(stores) or "none"
        raise UsageError(f"{alias!r} is no store of {SETTING}['STORES']; configured: {named}.")
    if not is_database(alias):
        usable = ", ".join(filter(is_database, stores)) or "none"
        raise UsageError(
            f"{alias!r} is a store of {SETTING}['STORES'] but no database of DATABASES; "
            f"configured in both: {usable}."
        )
    replica = stores[alias].read_database
    if replica is not None and not is_database(replica):
        raise UsageError(
            f"READ_DATABASE of {alias!r} in {SETTING}['STORES'] names {replica!r}, which is no "
            "database of DATABASES."
        )
    return stores[alias]


def is_database(alias: str) -> bool:
    """Tell whether ``DATABASES`` has the alias."""
    return alias in set(connections)


def _stores(section: Section) -> Mapping[str, StoreOptions]:
    entries = Section(section.at("STORES"), section.values.get("STORES", {}), None)
    stores: dict[str, StoreOptions] = {}
    for alias, values in entries.values.items():
        if not isinstance(alias, str) or not alias:
            raise refusal(f"A key of {entries.path}", "the alias of a database", alias)
        store = Section(entries.at(alias), values, _STORE_OPTIONS)
        stores[alias] = StoreOptions(
            alias=alias,
            layout=store.read("LAYOUT", AUTO, options.text),
            schema=store.read("SCHEMA", None, options.text_or_none) or "",
            read_database=store.read("READ_DATABASE", None, options.text_or_none),
            conversations=_conversations(store),
        )
    return MappingProxyType(stores)


def _conversations(store: Section) -> tuple[ConversationSource, ...]:
    """Read None, one source or a list of them."""
    path, value = store.at("CONVERSATIONS"), store.values.get("CONVERSATIONS")
    if value is None:
        return ()
    if isinstance(value, Mapping):
        return (_conversation_source(path, value),)
    if not isinstance(value, list | tuple):
        raise refusal(path, "None, a dictionary or a list of dictionaries", value)
    return tuple(
        _conversation_source(f"{path}[{number}]", entry) for number, entry in enumerate(value)
    )


def _conversation_source(path: str, values: object) -> ConversationSource:
    section = Section(path, values, _SOURCE_OPTIONS)
    return ConversationSource(
        model=section.required("MODEL", options.model_label),
        thread_field=section.read("THREAD_FIELD", "thread_id", options.text),
        activity_field=section.read("ACTIVITY_FIELD", None, options.text_or_none),
        label_field=section.read("LABEL_FIELD", None, options.text_or_none),
        project_field=section.read("PROJECT_FIELD", None, options.text_or_none),
    )


def _policies(section: Section, stores: Mapping[str, StoreOptions]) -> tuple[Policy, ...]:
    entries: Sequence[object] = section.read("POLICIES", (), options.sequence)
    return tuple(
        _policy(f"{section.at('POLICIES')}[{number}]", values, stores)
        for number, values in enumerate(entries)
    )


def _policy(path: str, values: object, stores: Mapping[str, StoreOptions]) -> Policy:
    entry = Section(path, values, _POLICY_OPTIONS)
    store = entry.required("STORE", options.text)
    if store not in stores:
        raise refusal(entry.at("STORE"), f"a store ({', '.join(stores) or 'none'})", store)
    try:
        bounds = Bounds(
            older_than_days=entry.read("OLDER_THAN", None, options.whole_number_or_none),
            keep_last=entry.read("KEEP_LAST", None, options.whole_number_or_none),
            everything=entry.read("ALL", False, options.truth),
            command=entry.read("COMMAND", None, options.text_or_none),
            project=entry.read("PROJECT", None, options.text_or_none),
            skip_unfinished=entry.read("SKIP_UNFINISHED", False, options.truth),
        )
    except UsageError as error:
        raise refusal(
            path,
            f"OLDER_THAN (1 to {LONGEST_AGE_DAYS} days), KEEP_LAST or both, or ALL alone",
            entry.values,
        ) from error
    return Policy(store=store, bounds=bounds)


def _grace(value: object) -> timedelta:
    if isinstance(value, timedelta) and timedelta(0) < value <= timedelta(LONGEST_AGE_DAYS):
        return value
    raise Takes("a timedelta longer than zero")


def _secure_delete(value: object) -> SecureDelete:
    if value == "fast":
        return "fast"
    if value == "on":
        return "on"
    raise Takes("'fast' or 'on'")
