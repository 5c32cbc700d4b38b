"""Show the sweeps that are running, cancel one, or tell the workers of it again."""

from __future__ import annotations

from typing import Any

from django.core.management.base import CommandParser
from django.utils import timezone

from ... import broker, workers
from ...exceptions import UsageError
from ...facts import Ending
from ...models import Sweep
from ...recording import ledger
from . import _flags
from ._base import TellingCommand
from ._documents import sweep_summary
from ._sweep_text import sweep_line


class Command(TellingCommand):
    """Follow the sweeps of a store."""

    help = (
        "Show the sweeps of a store that are running. One can be cancelled: it ends after the "
        "current batch. One that was handed to Celery workers can be told to them again, if the "
        "broker lost its messages."
    )
    interrupted = "Nothing was changed."

    def add_arguments(self, parser: CommandParser) -> None:
        """Add what can be done to a sweep."""
        super().add_arguments(parser)
        parser.add_argument("--cancel", metavar="ID", help="End this sweep after current batches.")
        parser.add_argument("--resume", metavar="ID", help="Tell the workers of this sweep again.")

    def serve(self, options: dict[str, Any]) -> None:
        """Do what was asked and show how things stand then."""
        cancel, resume = (
            _flags.whole_number(f"--{name}", options[name], highest=_flags.HIGHEST_COUNT)
            for name in ("cancel", "resume")
        )
        if cancel and resume:
            raise UsageError("--cancel and --resume contradict each other: pass one of them.")
        if cancel:
            sweeps = [workers.cancel(cancel, now=timezone.now())]
        elif resume:
            broker.require_workers()
            sweeps = [workers.resume(resume)]
        else:
            with ledger():
                sweeps = list(Sweep.objects.filter(store=self.database, ending=Ending.RUNNING))
        if self.to_json:
            self.say_document({"sweeps": [sweep_summary(sweep) for sweep in sweeps]})
        else:
            idle = [f"{self.database}: no sweep is running."]
            self.say([sweep_line(sweep) for sweep in sweeps] or idle)
