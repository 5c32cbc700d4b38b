"""Reading a dictionary of options value by value, or saying which one is wrong.

Each of the functions takes a value and returns it, typed, or raises ``Takes`` with the words for
what the option takes; a ``Section`` turns that into ImproperlyConfigured with the option's path.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping, Sequence
from typing import TypeVar

from django.core.exceptions import ImproperlyConfigured

T = TypeVar("T")


class Takes(Exception):
    """A value is not what its key takes; the text says what that is."""


class Section:
    """A dictionary within the settings, the path to it, and the keys it may have (None: any)."""

    def __init__(self, path: str, values: object, keys: tuple[str, ...] | None) -> None:
        if not isinstance(values, Mapping):
            raise refusal(path, "a dictionary", values)
        self.path = path
        self.values: Mapping[object, object] = values
        for key in values:
            if keys is not None and key not in keys:
                raise ImproperlyConfigured(
                    f"{self.at(key)} is no option: {path} takes {', '.join(keys)}."
                )

    def at(self, key: object) -> str:
        """Return the path of a key."""
        return f"{self.path}[{key!r}]"

    def read(self, key: str, default: T, checked: Callable[[object], T]) -> T:
        """Return the checked value of a key, or the default when it is not there."""
        return self.required(key, checked) if key in self.values else default

    def required(self, key: str, checked: Callable[[object], T]) -> T:
        """Return the checked value of a key that must be there."""
        if key not in self.values:
            raise ImproperlyConfigured(f"{self.path} needs {key!r}.")
        try:
            return checked(self.values[key])
        except Takes as takes:
            raise refusal(self.at(key), str(takes), self.values[key]) from None


def refusal(path: str, takes: str, value: object) -> ImproperlyConfigured:
    """Return the error that says what an option takes."""
    return ImproperlyConfigured(f"{path} takes {takes}, not {value!r}.")


def seconds(value: object) -> float:
    """Take a finite number that is not negative."""
    if (
        isinstance(value, int | float)
        and not isinstance(value, bool)
        and 0 <= value <= sys.float_info.max
    ):
        return float(value)
    raise Takes("a number of seconds from 0")


def share(value: object) -> float:
    """Take a part of a whole."""
    if isinstance(value, int | float) and not isinstance(value, bool) and 0 <= value <= 1:
        return float(value)
    raise Takes("a number from 0 to 1")


def byte_count(value: object) -> int:
    """Take a whole number that is not negative."""
    if isinstance(value, int) and not isinstance(value, bool) and value >= 0:
        return value
    raise Takes("a whole number of bytes from 0")


def whole_number_or_none(value: object) -> int | None:
    """Take None or a whole number that is positive."""
    if value is None or (isinstance(value, int) and not isinstance(value, bool) and value > 0):
        return value
    raise Takes("None or a whole number from 1")


def truth(value: object) -> bool:
    """Take True or False, and not what is merely true."""
    if isinstance(value, bool):
        return value
    raise Takes("True or False")


def text(value: object) -> str:
    """Take a text that is not empty."""
    if isinstance(value, str) and value:
        return value
    raise Takes("a text that is not empty")


def text_or_none(value: object) -> str | None:
    """Take None or a text that is not empty."""
    return None if value is None else text(value)


def model_label(value: object) -> str:
    """Take the label by which Django's registry finds a model."""
    label = text(value)
    if label.count(".") == 1 and all(label.split(".")):
        return label
    raise Takes("a model as 'app_label.Model'")


def sequence(value: object) -> Sequence[object]:
    """Take a list or a tuple."""
    if isinstance(value, list | tuple):
        return value
    raise Takes("a list of dictionaries")
