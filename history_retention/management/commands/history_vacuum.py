"""Give the free space inside a store's file back to the file system."""

from __future__ import annotations

from typing import Any

from django.core.management.base import CommandError

from ... import services
from ...facts import Ending, Space, VacuumResult
from ...models import Sweep
from ...vacuuming import VacuumForecast
from ._base import DestructiveCommand
from ._documents import vacuum_document
from ._sweep_text import forecast_lines, space_lines


class Command(DestructiveCommand):
    """Vacuum a store."""

    help = (
        "Rewrite a store's file without the space that is free inside it. Nothing is removed, but "
        "writers wait until it is done. Says what it takes and asks first."
    )
    interrupted = "The store is as it was, or vacuumed; nothing was removed."

    def serve(self, options: dict[str, Any]) -> None:
        """Say what it takes, ask, vacuum, report."""
        asks = self.asks(options)
        forecast = services.vacuum_forecast(self.database)
        lines = forecast_lines(self.database, forecast)
        if self.rehearsing or forecast.refusal:
            self._decline(forecast, lines)
            return
        self.show(lines, asks=asks)
        if asks and (forecast.space.free_bytes or forecast.space.wal_bytes):
            self.ask(f"Vacuum {self.database}?")
        outcome = services.vacuum(self.database, now=self.as_of, trigger=Sweep.Trigger.COMMAND)
        self._tell(
            forecast, outcome.space_after, outcome.vacuum, space_lines(self.database, outcome)
        )
        if outcome.ending is not Ending.DONE:
            raise CommandError(outcome.error)

    def _decline(self, forecast: VacuumForecast, lines: list[str]) -> None:
        """Report a vacuum that is not run: CommandError when it could not run at all."""
        reason = forecast.refusal or f"{self.database}: dry run: not vacuumed."
        result = VacuumResult(ran=False, reason=reason, needed_bytes=forecast.needed_bytes)
        self._tell(forecast, None, result, lines if forecast.refusal else [*lines, reason])
        if forecast.refusal:
            raise CommandError(forecast.refusal)

    def _tell(
        self,
        forecast: VacuumForecast,
        after: Space | None,
        result: VacuumResult,
        lines: list[str],
    ) -> None:
        """Report as text or as JSON."""
        if not self.to_json:
            self.say(lines)
            return
        self.say_document(
            vacuum_document(
                database=self.database,
                layout=forecast.layout,
                as_of=self.as_of,
                dry_run=self.rehearsing,
                before=forecast.space,
                after=after,
                result=result,
            )
        )
