"""Give the free space inside a store's file back to the file system."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from django.core.management.base import CommandError, CommandParser

from ... import services
from ...conf import get_settings
from ...exceptions import UsageError
from ...facts import Ending, Space
from ...models import Sweep
from ...outcomes import Outcome, VacuumResult
from ...vacuuming import VacuumForecast
from . import _flags
from ._base import DestructiveCommand
from ._documents import vacuum_document
from ._space_text import space_lines
from ._terminal import StopRequests
from ._vacuum_text import enabling_lines, incremental_lines, vacuum_lines

IN_ONE_GO = "The store is as it was, or vacuumed; nothing was removed."
IN_STEPS = "What was given back is given back; nothing was removed; run it again to go on."


@dataclass(frozen=True, slots=True, kw_only=True)
class Way:
    """One of the three ways: its JSON name, its words, why not to begin, and what does it.

    ``idle`` is a reason that is no failure, ``refusal`` one that is.
    """

    name: str
    lines: list[str]
    question: str
    idle: str
    refusal: str
    needed_bytes: int
    run: Callable[[], Outcome]


class Command(DestructiveCommand):
    """Vacuum a store."""

    help = (
        "Rewrite a store's file without the space that is free inside it. Nothing is removed, but "
        "writers wait until it is done. Says what it takes and asks first."
    )
    interrupted = IN_ONE_GO

    def add_arguments(self, parser: CommandParser) -> None:
        """Add the other ways."""
        super().add_arguments(parser)
        add = parser.add_argument
        add(
            "--incremental",
            action="store_true",
            help="Give the space back in short steps that block nobody, where the file allows it.",
        )
        add(
            "--enable-incremental",
            action="store_true",
            help="Change the file, once, so that it allows --incremental: a vacuum that blocks "
            "writers, for a maintenance window.",
        )
        add("--force", action="store_true", help="Vacuum though little is free.")

    def serve(self, options: dict[str, Any]) -> None:
        """Say what it takes, ask, vacuum, report."""
        choose = self._chosen(options)
        asks = self.asks(options)
        forecast = services.vacuum_forecast(self.database)
        way = choose(forecast)
        if way.idle or way.refusal or self.rehearsing:
            self._decline(way, forecast)
            return
        self.show(way.lines, asks=asks)
        if asks and way.question:
            self.ask(way.question)
        outcome = way.run()
        self._tell(way, forecast, outcome.vacuum, space_lines(self.database, outcome), outcome)
        if outcome.ending is Ending.INTERRUPTED:
            raise CommandError(outcome.vacuum.reason)
        if outcome.ending is not Ending.DONE:
            raise CommandError(outcome.error)

    def _chosen(self, options: dict[str, Any]) -> Callable[[VacuumForecast], Way]:
        """Return the way that the flags ask for; UsageError when they ask for two."""
        flags = ("--incremental", "--enable-incremental", "--force")
        given = [
            flag
            for flag in flags
            if _flags.switch(flag, options[flag.lstrip("-").replace("-", "_")])
        ]
        if len(given) > 1:
            raise UsageError(f"{' and '.join(given)} are two ways to vacuum: pass one of them.")
        if "--incremental" in given:
            return self._incremental
        if "--enable-incremental" in given:
            return self._enabling
        return lambda forecast: self._vacuum(forecast, force="--force" in given)

    def _vacuum(self, forecast: VacuumForecast, *, force: bool) -> Way:
        space = forecast.space
        unworthy = forecast.unworthy if space.free_bytes and not force else ""
        return Way(
            name="vacuum",
            lines=vacuum_lines(self.database, forecast),
            question=f"Vacuum {self.database}?" if _has_something_to_do(space) else "",
            idle=unworthy,
            refusal=forecast.refusal,
            needed_bytes=forecast.needed_bytes,
            run=lambda: services.vacuum(
                self.database, now=self.as_of, trigger=Sweep.Trigger.COMMAND, force=force
            ),
        )

    def _incremental(self, forecast: VacuumForecast) -> Way:
        return Way(
            name="incremental",
            lines=incremental_lines(self.database, forecast, get_settings().box_seconds),
            question=f"Vacuum {self.database} in steps?" if forecast.space.free_bytes else "",
            idle="",
            refusal=forecast.steps_refusal,
            needed_bytes=0,
            run=self._in_steps,
        )

    def _in_steps(self) -> Outcome:
        """Go on until all is given back; the first Ctrl-C ends it after the current step."""
        self.interrupted = IN_STEPS
        with StopRequests() as stop, self.watched() as progress:
            return services.vacuum_incrementally(
                self.database,
                now=self.as_of,
                trigger=Sweep.Trigger.COMMAND,
                stop=stop,
                progress=progress,
            )

    def _enabling(self, forecast: VacuumForecast) -> Way:
        return Way(
            name="enable_incremental",
            lines=enabling_lines(self.database, forecast),
            question=f"Change the file of {self.database} and vacuum it?",
            idle=forecast.enabling_refusal,
            refusal=forecast.refusal,
            needed_bytes=forecast.needed_bytes,
            run=lambda: services.enable_incremental(
                self.database, now=self.as_of, trigger=Sweep.Trigger.COMMAND
            ),
        )

    def _decline(self, way: Way, forecast: VacuumForecast) -> None:
        """Report a vacuum that is not run: CommandError when it could not run at all."""
        refusal = "" if way.idle else way.refusal
        reason = way.idle or refusal or f"{self.database}: dry run: not vacuumed."
        result = VacuumResult(ran=False, reason=reason, needed_bytes=way.needed_bytes)
        self._tell(way, forecast, result, way.lines if refusal else [*way.lines, reason], None)
        if refusal:
            raise CommandError(refusal)

    def _tell(
        self,
        way: Way,
        forecast: VacuumForecast,
        result: VacuumResult,
        lines: list[str],
        outcome: Outcome | None,
    ) -> None:
        """Report as text or as JSON."""
        if not self.to_json:
            self.say(lines)
            return
        self.say_document(
            vacuum_document(
                database=self.database,
                as_of=self.as_of,
                dry_run=self.rehearsing,
                way=way.name,
                forecast=forecast,
                after=None if outcome is None else outcome.space_after,
                result=result,
            )
        )


def _has_something_to_do(space: Space) -> bool:
    return bool(space.free_bytes or space.wal_bytes or space.tables)
