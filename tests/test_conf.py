"""What HISTORY_RETENTION may say, and the sentence for everything else."""

from __future__ import annotations

import dataclasses
import inspect
import re
from collections.abc import Callable
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from django.conf import settings as django_settings
from django.core.exceptions import ImproperlyConfigured
from django.test import override_settings
from pytest_django import Settings as ProjectSettings

import history_retention
from history_retention import conf
from history_retention.conf import (
    ConversationSource,
    Policy,
    Settings,
    StoreOptions,
    default_store,
    get_settings,
    store_options,
)
from history_retention.exceptions import UsageError
from history_retention.policy import Bounds

Retention = Callable[..., None]


def test_settings_without_history_retention_are_the_defaults_and_name_no_store(
    settings: ProjectSettings,
) -> None:
    settings.HISTORY_RETENTION = {}  # deleting alone sends no signal, before the test or after it
    del settings.HISTORY_RETENTION

    found = get_settings()

    assert dict(found.stores) == {}
    assert found.grace == timedelta(hours=24)
    assert (found.box_seconds, found.gap_seconds) == (0.025, 0.05)
    assert found.secure_delete == "fast"
    assert found.policies == ()
    assert (found.vacuum_free_ratio, found.vacuum_free_bytes) == (0.1, 67_108_864)
    assert found.vacuum_in_request_bytes == 268_435_456


def test_every_option_reaches_the_settings_with_its_type(settings: ProjectSettings) -> None:
    settings.HISTORY_RETENTION = {
        "STORES": {
            "agents": {
                "LAYOUT": "langgraph_sqlite",
                "CONVERSATIONS": {
                    "MODEL": "chat.Conversation",
                    "THREAD_FIELD": "thread",
                    "ACTIVITY_FIELD": "updated_at",
                    "LABEL_FIELD": "title",
                    "PROJECT_FIELD": "team__name",
                },
            },
            "history": {},
        },
        "GRACE": timedelta(hours=1),
        "BOX_SECONDS": 1,
        "GAP_SECONDS": 0,
        "SECURE_DELETE": "on",
        "POLICIES": [
            {"STORE": "history", "OLDER_THAN": 30, "KEEP_LAST": 3, "COMMAND": "chat"},
            {"STORE": "agents", "ALL": True, "PROJECT": "/srv", "SKIP_UNFINISHED": True},
        ],
        "MAX_BYTES_PER_SECOND": 1_000_000,
        "VACUUM_FREE_RATIO": 1,
        "VACUUM_FREE_BYTES": 5,
        "VACUUM_IN_REQUEST_BYTES": 0,
        "ADMIN_USES_CELERY": True,
    }

    found = get_settings()

    assert found == Settings(
        stores={
            "agents": StoreOptions(
                alias="agents",
                layout="langgraph_sqlite",
                conversations=(
                    ConversationSource(
                        model="chat.Conversation",
                        thread_field="thread",
                        activity_field="updated_at",
                        label_field="title",
                        project_field="team__name",
                    ),
                ),
            ),
            "history": StoreOptions(alias="history", layout="auto", conversations=()),
        },
        grace=timedelta(hours=1),
        box_seconds=1.0,
        gap_seconds=0.0,
        max_bytes_per_second=1_000_000,
        secure_delete="on",
        policies=(
            Policy(store="history", bounds=Bounds(older_than_days=30, keep_last=3, command="chat")),
            Policy(
                store="agents",
                bounds=Bounds(everything=True, project="/srv", skip_unfinished=True),
            ),
        ),
        vacuum_free_ratio=1.0,
        vacuum_free_bytes=5,
        vacuum_in_request_bytes=0,
        admin_uses_celery=True,
    )
    assert [type(value) for value in (found.box_seconds, found.gap_seconds)] == [float, float]


def test_several_models_may_name_threads_in_the_order_given(retention: Retention) -> None:
    models = [{"MODEL": "chat.Conversation"}, {"MODEL": "mail.Case", "THREAD_FIELD": "thread"}]
    retention(STORES={"history": {"CONVERSATIONS": models}})

    sources = get_settings().stores["history"].conversations

    assert [(source.model, source.thread_field) for source in sources] == [
        ("chat.Conversation", "thread_id"),
        ("mail.Case", "thread"),
    ]


WRONG: list[tuple[Any, str, str]] = [
    (None, "HISTORY_RETENTION takes a dictionary", "None"),
    (["history"], "HISTORY_RETENTION takes a dictionary", "['history']"),
    ({"GRAZE": 1}, "HISTORY_RETENTION['GRAZE'] is no option", "GRACE"),
    ({1: 1}, "HISTORY_RETENTION[1] is no option", "STORES"),
    ({"STORES": ["history"]}, "HISTORY_RETENTION['STORES'] takes a dictionary", "['history']"),
    ({"STORES": None}, "HISTORY_RETENTION['STORES'] takes a dictionary", "None"),
    ({"STORES": {1: {}}}, "HISTORY_RETENTION['STORES'] takes the alias of a database", "1"),
    ({"STORES": {"": {}}}, "HISTORY_RETENTION['STORES'] takes the alias of a database", "''"),
    ({"STORES": {"a": None}}, "HISTORY_RETENTION['STORES']['a'] takes a dictionary", "None"),
    (
        {"STORES": {"a": {"LAYUOT": "auto"}}},
        "HISTORY_RETENTION['STORES']['a']['LAYUOT'] is no option",
        "LAYOUT, SCHEMA, READ_DATABASE, CONVERSATIONS",
    ),
    ({"STORES": {"a": {"LAYOUT": 7}}}, "['a']['LAYOUT'] takes a text", "7"),
    ({"STORES": {"a": {"LAYOUT": ""}}}, "['a']['LAYOUT'] takes a text", "''"),
    (
        {"STORES": {"a": {"CONVERSATIONS": "chat.Conversation"}}},
        "['a']['CONVERSATIONS'] takes None, a dictionary or a list of dictionaries",
        "'chat.Conversation'",
    ),
    ({"STORES": {"a": {"CONVERSATIONS": {}}}}, "['a']['CONVERSATIONS'] needs 'MODEL'", ""),
    (
        {"STORES": {"a": {"CONVERSATIONS": ["x"]}}},
        "['a']['CONVERSATIONS'][0] takes a dictionary",
        "'x'",
    ),
    (
        {"STORES": {"a": {"CONVERSATIONS": [{"MODEL": "a.B"}, {"MODEL": "a.C", "FIELD": "x"}]}}},
        "['a']['CONVERSATIONS'][1]['FIELD'] is no option",
        "THREAD_FIELD",
    ),
    *(
        (
            {"STORES": {"a": {"CONVERSATIONS": {"MODEL": model}}}},
            "['a']['CONVERSATIONS']['MODEL'] takes a ",
            repr(model),
        )
        for model in (None, 5, "", "Conversation", "a.b.C", ".C", "a.")
    ),
    (
        {"STORES": {"a": {"CONVERSATIONS": {"MODEL": "a.B", "THREAD_FIELD": None}}}},
        "['CONVERSATIONS']['THREAD_FIELD'] takes a text",
        "None",
    ),
    (
        {"STORES": {"a": {"CONVERSATIONS": {"MODEL": "a.B", "ACTIVITY_FIELD": 1}}}},
        "['CONVERSATIONS']['ACTIVITY_FIELD'] takes a text",
        "1",
    ),
    *(
        ({"GRACE": grace}, "HISTORY_RETENTION['GRACE'] takes a timedelta longer than zero", "")
        for grace in (24, None, "24h", timedelta(0), timedelta(seconds=-1), timedelta.max)
    ),
    *(
        ({key: value}, f"HISTORY_RETENTION['{key}'] takes a number of seconds from 0", repr(value))
        for key in ("BOX_SECONDS", "GAP_SECONDS")
        for value in (-0.1, True, "1", None, float("nan"), float("inf"), 10**400)
    ),
    *(
        ({"SECURE_DELETE": value}, "['SECURE_DELETE'] takes 'fast' or 'on'", repr(value))
        for value in (True, "off", "FAST", None, 1)
    ),
    *(
        ({key: value}, f"['{key}'] takes a whole number of bytes from 0", repr(value))
        for key in ("VACUUM_FREE_BYTES", "VACUUM_IN_REQUEST_BYTES")
        for value in (-1, 1.5, True, "1", None)
    ),
    *(
        ({"MAX_BYTES_PER_SECOND": value}, "takes None or a whole number from 1", repr(value))
        for value in (0, -1, 1.5, True, "1")
    ),
    *(
        ({"VACUUM_FREE_RATIO": value}, "takes a number from 0 to 1", repr(value))
        for value in (-0.1, 1.1, 10, True, "0.1", None, float("nan"))
    ),
    *(
        ({"ADMIN_USES_CELERY": value}, "['ADMIN_USES_CELERY'] takes True or False", repr(value))
        for value in (1, "yes", None)
    ),
    ({"POLICIES": {}}, "HISTORY_RETENTION['POLICIES'] takes a list of dictionaries", "{}"),
    ({"POLICIES": [7]}, "HISTORY_RETENTION['POLICIES'][0] takes a dictionary", "7"),
]


@pytest.mark.parametrize(("value", "where", "detail"), WRONG)
def test_a_wrong_key_or_type_is_named_with_what_it_takes(
    settings: ProjectSettings, value: Any, where: str, detail: str
) -> None:
    settings.HISTORY_RETENTION = value

    with pytest.raises(ImproperlyConfigured) as refused:
        get_settings()

    assert where in str(refused.value)
    assert detail in str(refused.value)


WRONG_POLICIES: list[tuple[dict[str, Any], str]] = [
    ({}, "['POLICIES'][1] needs 'STORE'"),
    ({"STORE": "nowhere", "ALL": True}, "['POLICIES'][1]['STORE'] takes a store (history)"),
    ({"STORE": "history"}, "['POLICIES'][1] takes OLDER_THAN (1 to 36500 days), KEEP_LAST or both"),
    ({"STORE": "history", "COMMAND": "chat"}, "['POLICIES'][1] takes OLDER_THAN"),
    ({"STORE": "history", "ALL": False}, "['POLICIES'][1] takes OLDER_THAN"),
    ({"STORE": "history", "ALL": True, "KEEP_LAST": 3}, "['POLICIES'][1] takes OLDER_THAN"),
    ({"STORE": "history", "OLDER_THAN": 36_501}, "['POLICIES'][1] takes OLDER_THAN"),
    ({"STORE": "history", "ALL": 1}, "['POLICIES'][1]['ALL'] takes True or False"),
    ({"STORE": "history", "KEEP": 3}, "['POLICIES'][1]['KEEP'] is no option"),
    ({"STORE": "history", "ALL": True, "PROJECT": ""}, "['POLICIES'][1]['PROJECT'] takes a text"),
    *(
        (
            {"STORE": "history", key: value},
            f"['POLICIES'][1]['{key}'] takes None or a whole number from 1",
        )
        for key in ("OLDER_THAN", "KEEP_LAST")
        for value in (0, -1, 1.5, "30", True, timedelta(days=30))
    ),
]


@pytest.mark.parametrize(("entry", "where"), WRONG_POLICIES)
def test_a_policy_without_a_usable_bound_names_its_entry(
    retention: Retention, entry: dict[str, Any], where: str
) -> None:
    retention(POLICIES=[{"STORE": "history", "OLDER_THAN": 30}, entry])

    with pytest.raises(ImproperlyConfigured) as refused:
        get_settings()

    assert where in str(refused.value)


def test_settings_are_kept_until_the_setting_changes_and_only_then_read_again(
    retention: Retention,
) -> None:
    before = get_settings()
    with override_settings(LANGUAGE_CODE="en"):
        assert get_settings() is before

    retention(BOX_SECONDS=0.5)

    assert get_settings().box_seconds == 0.5


def test_a_failed_reading_is_not_kept(retention: Retention) -> None:
    retention(BOX_SECONDS="long")
    with pytest.raises(ImproperlyConfigured):
        get_settings()

    retention(BOX_SECONDS=0.5)

    assert get_settings().box_seconds == 0.5


def test_settings_cannot_be_changed_and_nothing_is_written_back(retention: Retention) -> None:
    retention(POLICIES=[])
    before = repr(django_settings.HISTORY_RETENTION)

    found = get_settings()

    with pytest.raises(dataclasses.FrozenInstanceError):
        found.grace = timedelta(0)  # type: ignore[misc]
    with pytest.raises(TypeError):
        found.stores["more"] = StoreOptions(alias="more")  # type: ignore[index]
    assert repr(django_settings.HISTORY_RETENTION) == before


def test_the_first_store_is_the_default_one(retention: Retention) -> None:
    retention(STORES={"zebra": {}, "ant": {}})

    assert default_store() == "zebra"


def test_without_a_store_the_default_one_is_asked_for_in_a_sentence(retention: Retention) -> None:
    retention(STORES={})

    with pytest.raises(UsageError, match=r"'STORES'\] names no store: add the alias"):
        default_store()


def test_the_options_of_a_store_are_found_by_its_alias(retention: Retention) -> None:
    retention(STORES={"default": {}, "history": {"LAYOUT": "gaunt_sloth"}})

    assert store_options("history") == StoreOptions(alias="history", layout="gaunt_sloth")


@pytest.mark.parametrize("alias", ["histroy", "", "HISTORY", "ädi", "history "])
def test_an_unknown_alias_is_refused_with_those_that_are_configured(
    retention: Retention, alias: str
) -> None:
    retention(STORES={"default": {}, "history": {}})

    with pytest.raises(UsageError) as refused:
        store_options(alias)

    assert str(refused.value) == (
        f"{alias!r} is no store of HISTORY_RETENTION['STORES']; configured: default, history."
    )


def test_a_store_that_is_no_database_is_refused_with_those_that_are(retention: Retention) -> None:
    retention(STORES={"gone": {}, "history": {}})

    with pytest.raises(UsageError) as refused:
        store_options("gone")

    assert str(refused.value) == (
        "'gone' is a store of HISTORY_RETENTION['STORES'] but no database of DATABASES; "
        "configured in both: history."
    )


def test_only_conf_reads_the_settings_of_the_project() -> None:
    package = Path(inspect.getfile(history_retention)).parent
    reading = re.compile(r"\bsettings\.(?!AUTH_USER_MODEL)[A-Z_]{3,}|getattr\(settings,")

    readers = [
        str(path.relative_to(package))
        for path in package.rglob("*.py")
        if reading.search(path.read_text())
    ]

    assert readers == ["conf.py"]


def test_every_option_has_a_field_and_every_field_an_option() -> None:
    fields = [field.name.upper() for field in dataclasses.fields(Settings)]

    assert list(conf._OPTIONS) == fields
