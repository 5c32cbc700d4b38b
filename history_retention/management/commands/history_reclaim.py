"""Remove the threads that no one can resume and that have been still for the grace window."""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta
from functools import partial
from typing import Any

from django.core.management.base import CommandParser

from ... import services
from ...exceptions import UsageError
from ...facts import Plan
from ...outcomes import Outcome
from ...policy import LONGEST_AGE_DAYS
from . import _flags
from ._documents import Document, reclaim_document
from ._sweep import SweepCommand
from ._text import printable


class Command(SweepCommand):
    """Reclaim a store."""

    help = (
        "Remove threads that no conversation names, so that no one can resume them, once they "
        "have been still for the grace window. Shows the plan and asks first."
    )

    def add_arguments(self, parser: CommandParser) -> None:
        """Add the grace window and the exceptions."""
        super().add_arguments(parser)
        add = parser.add_argument
        add(
            "--grace",
            metavar="HOURS",
            help="How long a thread must have been still; by default the setting GRACE.",
        )
        add(
            "--force",
            action="store_true",
            help="Allow a --grace below the setting, and a store none of whose threads is named by "
            "the host's table.",
        )
        add(
            "--exclude",
            metavar="THREAD",
            action="append",
            help="Leave this thread alone; may be repeated.",
        )
        add(
            "--orphan-writes",
            action="store_true",
            help="Only threads without a single checkpoint; needs no table that names threads.",
        )
        add("--vacuum", action="store_true", default=None, help="Vacuum afterwards, however long.")

    def planning(self, options: dict[str, Any]) -> Callable[..., Plan]:
        """Read the grace window and the exceptions."""
        grace = _flags.whole_number(
            "--grace", options["grace"], highest=LONGEST_AGE_DAYS * 24, unit="whole hours"
        )
        plan = partial(
            services.plan_reclaim,
            self.database,
            now=self.as_of,
            grace=None if grace is None else timedelta(hours=grace),
            force=_flags.switch("--force", options["force"]),
            exclude=_flags.texts("--exclude", options["exclude"]),
            orphan_writes=_flags.switch("--orphan-writes", options["orphan_writes"]),
        )
        return lambda **watching: _with_known_exclusions(plan(**watching))

    def document(self, plan: Plan, outcome: Outcome | None) -> Document:
        """Describe the reclaim."""
        return reclaim_document(plan, dry_run=self.rehearsing, outcome=outcome)


def _with_known_exclusions(plan: Plan) -> Plan:
    """Refuse a misspelled exception: the thread that was meant to stay would go."""
    if plan.unmatched_exclusions:
        named = ", ".join(map(printable, plan.unmatched_exclusions))
        raise UsageError(
            f"{plan.database}: nothing was removed: --exclude names what is no thread of this "
            f"store ({named}). Correct it or leave it out; with --dry-run -v 2 the threads that "
            "would go are listed."
        )
    return plan
