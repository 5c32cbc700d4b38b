"""Remove the stored state of threads inside bounds that a person gave."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

from django.core.management.base import CommandParser

from ... import services
from ...exceptions import UsageError
from ...facts import Plan
from ...outcomes import Outcome
from ...policy import LONGEST_AGE_DAYS, Bounds
from . import _flags
from ._documents import Document, prune_document
from ._sweep import SweepCommand

INSTEAD = "; for everything pass --all"


class Command(SweepCommand):
    """Prune a store."""

    help = (
        "Remove the stored state of threads that could still be resumed, inside the bounds given, "
        "and of those that no one can resume. Transcripts stay. At least one of --older-than, "
        "--keep-last and --all has to be given. Shows the plan and asks first."
    )

    def add_arguments(self, parser: CommandParser) -> None:
        """Add the bounds, what narrows them, and what happens along with a prune."""
        super().add_arguments(parser)
        add = parser.add_argument
        add("--older-than", metavar="DAYS", help="Threads idle for more than DAYS times 24 hours.")
        add(
            "--keep-last",
            metavar="N",
            help="Keep the N most recently active threads. With --older-than, a thread goes only "
            "when both let it.",
        )
        add("--all", action="store_true", help="Threads of any age: the word for no bound.")
        add(
            "--command",
            metavar="NAME",
            help="Only threads of this command of the agent, such as chat.",
        )
        add("--project", metavar="NAME", help="Only threads of this project.")
        add(
            "--skip-unfinished",
            action="store_true",
            help="Leave threads that wait for an answer or have steps to do.",
        )
        add(
            "--limit",
            metavar="N",
            help="Remove at most N threads, those longest idle; the next run goes on.",
        )
        add(
            "--no-reclaim",
            action="store_true",
            help="Leave alone the threads that no one can resume.",
        )
        add("--vacuum", action="store_true", default=None, help="Vacuum afterwards, however long.")
        add("--no-vacuum", action="store_true", help="Do not vacuum, however short.")

    def planning(self, options: dict[str, Any]) -> Callable[..., Plan]:
        """Read the bounds; UsageError when there is none."""
        number = partial(_flags.whole_number, highest=_flags.HIGHEST_COUNT)
        bounds = Bounds(
            older_than_days=_flags.whole_number(
                "--older-than",
                options["older_than"],
                highest=LONGEST_AGE_DAYS,
                unit="whole days",
                instead=INSTEAD,
            ),
            keep_last=number("--keep-last", options["keep_last"], instead=INSTEAD),
            everything=_flags.switch("--all", options["all"]),
            command=_flags.text("--command", options["command"]),
            project=_flags.text("--project", options["project"]),
            skip_unfinished=_flags.switch("--skip-unfinished", options["skip_unfinished"]),
        )
        return partial(
            services.plan_prune,
            self.database,
            bounds,
            now=self.as_of,
            reclaim=not _flags.switch("--no-reclaim", options["no_reclaim"]),
            limit=number("--limit", options["limit"]),
        )

    def vacuum_wish(self, options: dict[str, Any]) -> bool | None:
        """Return what was said about the vacuum; None leaves it to its length."""
        refused = _flags.switch("--no-vacuum", options["no_vacuum"])
        wanted = super().vacuum_wish(options)
        if refused and wanted:
            raise UsageError("--vacuum and --no-vacuum contradict each other: pass one of them.")
        return False if refused or options["vacuum"] is False else wanted

    def document(self, plan: Plan, outcome: Outcome | None) -> Document:
        """Describe the prune."""
        return prune_document(plan, dry_run=self.rehearsing, outcome=outcome)
