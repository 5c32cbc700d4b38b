"""What prune and reclaim share: plan, show, ask, remove, report."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable
from typing import Any

from django.core.management.base import CommandError, CommandParser

from ... import broker, services, workers
from ...exceptions import UsageError
from ...facts import Ending, Plan
from ...models import Sweep
from ...outcomes import Outcome
from . import _flags
from ._base import DestructiveCommand
from ._documents import Document, sweep_summary
from ._sweep_text import handed_over_lines, outcome_lines, plan_lines
from ._terminal import StopRequests
from ._text import counted, size

AT_ONCE = (
    "Every thread is whole or gone, and what was removed is on record; "
    "run the same command again to finish."
)


class SweepCommand(DestructiveCommand):
    """A command that removes threads. Subclasses give the plan and the shape of its JSON."""

    @abstractmethod
    def planning(self, options: dict[str, Any]) -> Callable[..., Plan]:
        """Read the command's own flags and return what plans; it takes ``progress``."""

    @abstractmethod
    def document(self, plan: Plan, outcome: Outcome | None) -> Document:
        """Return the JSON object; without an outcome, that of a dry run."""

    def add_arguments(self, parser: CommandParser) -> None:
        """Add the flag that leaves the removal to others."""
        super().add_arguments(parser)
        parser.add_argument(
            "--celery",
            action="store_true",
            help="Hand the plan to Celery workers, batch by batch, and end; see history_sweeps.",
        )

    def vacuum_wish(self, options: dict[str, Any]) -> bool | None:
        """Return whether a vacuum was asked for; None when nothing was said."""
        return _flags.switch("--vacuum", options["vacuum"]) or None

    def serve(self, options: dict[str, Any]) -> None:
        """Plan, show, ask, remove, report."""
        planning, vacuum = self.planning(options), self.vacuum_wish(options)
        asks = self.asks(options)
        handed_over = _flags.switch("--celery", options["celery"])
        if handed_over:
            _require_no_vacuum_wish(vacuum)
            broker.require_workers()
        with self.watched() as progress:
            plan = planning(progress=progress)
        self.note(plan.notes)
        if self.rehearsing:
            self._rehearse(plan)
            return
        if plan.threads or vacuum:
            self.show(plan_lines(plan, dry_run=False, verbosity=self.verbosity), asks=asks)
            if asks:
                self.ask(_question(plan))
        if handed_over and plan.threads:
            self._hand_over(plan)
            return
        outcome = self._removed(plan, vacuum)
        self._tell(plan, outcome)
        _require_done(plan, outcome, vacuum)

    def _rehearse(self, plan: Plan) -> None:
        if self.to_json:
            self.say_document(self.document(plan, None))
        else:
            self.say(plan_lines(plan, dry_run=True, verbosity=self.verbosity))

    def _removed(self, plan: Plan, vacuum: bool | None) -> Outcome:
        """Remove what was planned; the first Ctrl-C ends it after the current batch."""
        self.interrupted = AT_ONCE
        with StopRequests() as stop, self.watched() as progress:
            return services.execute(
                plan,
                trigger=Sweep.Trigger.COMMAND,
                vacuum=vacuum,
                stop=stop,
                progress=progress,
            )

    def _hand_over(self, plan: Plan) -> None:
        """Leave the removal to workers, and say how to follow it."""
        sweep = workers.hand_over(plan, trigger=Sweep.Trigger.COMMAND)
        if self.to_json:
            self.say_document({**self.document(plan, None), "sweep": sweep_summary(sweep)})
        else:
            self.say(handed_over_lines(plan, sweep))

    def _tell(self, plan: Plan, outcome: Outcome) -> None:
        if self.to_json:
            self.say_document(self.document(plan, outcome))
        else:
            self.say(outcome_lines(plan, outcome))


def _require_done(plan: Plan, outcome: Outcome, vacuum: bool | None) -> None:
    """Fail with one sentence when not all that was asked for is done."""
    if outcome.ending is Ending.INTERRUPTED:
        raise CommandError(
            f"Interrupted after {outcome.removed.thread_count:,} of "
            f"{counted(plan.planned.thread_count, 'thread')}; run the same command again to finish."
        )
    if outcome.ending is not Ending.DONE:
        raise CommandError(outcome.error)
    if vacuum and not outcome.vacuum.ran and outcome.space_after.free_bytes:
        raise CommandError(outcome.vacuum.reason)


def _require_no_vacuum_wish(vacuum: bool | None) -> None:
    if vacuum is not None:
        raise UsageError(
            "--celery leaves the vacuum to the workers, who run it only when nobody would notice: "
            "leave out --vacuum and --no-vacuum, and run history_vacuum afterwards if you want to."
        )


def _question(plan: Plan) -> str:
    if not plan.threads:
        return f"Vacuum {plan.database}, which blocks writers meanwhile?"
    return (
        f"Remove {counted(plan.planned.thread_count, 'thread')} "
        f"({size(plan.planned.byte_count)}) from {plan.database}?"
    )
