"""Sizes, counts and tables as people and ``grep`` read them."""

from __future__ import annotations

from datetime import timedelta

import pytest
from django.utils import translation
from django.utils.translation import gettext_lazy

from history_retention.facts import Awaiting, KeepReason, SkipReason
from history_retention.management.commands._sweep_text import criteria
from history_retention.management.commands._text import (
    counted,
    hours,
    in_english,
    printable,
    shortened,
    size,
    table,
    width,
)
from history_retention.policy import Bounds
from history_retention.words import AWAITED, KEPT_BECAUSE, SKIPPED_BECAUSE


@pytest.mark.parametrize(
    ("byte_count", "text"),
    [
        (0, "0 bytes"),
        (1, "1 byte"),
        (1_023, "1,023 bytes"),
        (1_024, "1.0 KB"),
        (1_536, "1.5 KB"),
        (1_024**2, "1.0 MB"),
        (890 * 1_024**3, "890.0 GB"),
        (5_000 * 1_024**4, "5,000.0 TB"),
    ],
)
def test_a_size_has_one_decimal_and_a_unit(byte_count: int, text: str) -> None:
    assert size(byte_count) == text


def test_a_size_and_a_count_are_the_same_in_every_language() -> None:
    with translation.override("de"):
        assert (size(1_536_000), counted(1_204, "row")) == ("1.5 MB", "1,204 rows")


@pytest.mark.parametrize(
    ("length", "text"),
    [
        (timedelta(hours=24), "24 hours"),
        (timedelta(hours=1), "1 hour"),
        (timedelta(minutes=90), "1.5 hours"),
        (timedelta(days=100), "2,400 hours"),
    ],
)
def test_a_length_of_time_is_in_hours(length: timedelta, text: str) -> None:
    assert hours(length) == text


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("plain", "plain"),
        ("two words", "two words"),
        ("", "''"),
        (" lead", "' lead'"),
        ("trail ", "'trail '"),
        ("tab\there", "tab\\there"),
        ("\x1b[2J", "\\x1b[2J"),
        ("\x9b2J", "\\x9b2J"),
        ("\u202eback", "\\u202eback"),
        ("zero\u200bwidth", "zero\\u200bwidth"),
        ("\u2028", "\\u2028"),
        ("\udcff", "\\udcff"),
        ("日本語🧵", "日本語🧵"),
    ],
)
def test_what_a_terminal_would_act_on_or_hide_is_escaped(text: str, shown: str) -> None:
    assert printable(text) == shown


def test_a_long_text_loses_its_middle() -> None:
    shown = shortened("a" * 150 + "z" * 150)

    assert (len(shown), shown) == (40, "a" * 27 + "..." + "z" * 10)


def test_a_uuid_is_never_shortened() -> None:
    assert shortened("8958c795-04a3-4ee6-844e-1a70d848efbe").count(".") == 0


def test_columns_line_up_under_wide_characters_and_empty_ones_are_left_out() -> None:
    lines = table(("id", ">size", "gone"), [("日本", "1", ""), ("abc", "100", "")])

    assert lines == ["id    size", "日本     1", "abc    100"]
    assert {width(line) for line in lines} == {10}


@pytest.mark.parametrize(
    ("bounds", "text"),
    [
        (Bounds(older_than_days=1), "idle for 1 day"),
        (Bounds(keep_last=3), "beyond the 3 most recently active"),
        (
            Bounds(older_than_days=30, keep_last=8, command="chat"),
            "idle for 30 days, beyond the 8 most recently active and of command chat",
        ),
        (Bounds(everything=True, project="/srv\n"), "of any age and of project /srv\\n"),
    ],
)
def test_bounds_read_as_what_a_thread_must_be(bounds: Bounds, text: str) -> None:
    assert criteria(bounds) == text


def test_words_are_english_whatever_the_language_of_the_project() -> None:
    with translation.override("de"):
        translated, plain = str(gettext_lazy("Yes")), in_english({1: gettext_lazy("Yes")})

    assert (translated, plain) == ("Ja", {1: "Yes"})


def test_every_reason_has_its_word() -> None:
    assert KEPT_BECAUSE.keys() == set(KeepReason)
    assert SKIPPED_BECAUSE.keys() == set(SkipReason)
    assert AWAITED.keys() == {each for each in Awaiting if each}
