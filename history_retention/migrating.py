"""What ``migrate`` does when it is pointed at an agent's store: nothing."""

from __future__ import annotations

from typing import Any, Protocol

from .routers import is_store_only


class Output(Protocol):
    """Where a command writes."""

    def write(self, msg: str) -> Any:
        """Write a line."""


def leave_store_alone(
    *, using: str, plan: list[Any], verbosity: int, stdout: Output, **_kwargs: object
) -> None:
    """Empty the plan of a ``migrate`` that is about to start on a store.

    The router already keeps every table out. Django would still create ``django_migrations`` to
    record the migrations that it did not run; for an empty plan it does not.
    """
    if not is_store_only(using):
        return
    plan.clear()
    if verbosity >= 1:
        stdout.write(f"  {using} is an agent's store: nothing is migrated there.")
