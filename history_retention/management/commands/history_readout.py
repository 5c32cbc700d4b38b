"""Measure a store, say what is in it, and keep the measurement."""

from __future__ import annotations

from typing import Any

from django.core.management.base import CommandParser

from ... import services
from . import _flags
from ._base import StoreCommand
from ._documents import readout_document
from ._readout_text import readout_lines

MOST_THREADS = 100_000


class Command(StoreCommand):
    """Read out a store."""

    help = (
        "Measure a store: sizes, threads, what of them no one can resume. "
        "Keeps the measurement for the admin; the store itself is only read."
    )
    rehearsal = "--no-save"
    interrupted = "Nothing was kept."

    def add_arguments(self, parser: CommandParser) -> None:
        """Add how much to show and what to keep."""
        super().add_arguments(parser)
        parser.add_argument(
            "--top", metavar="N", default=5, help="How many of the largest threads to show (5)."
        )
        parser.add_argument(
            "--no-save",
            action="store_true",
            help=(
                "Do not keep the measurement for the admin; nor is one kept that --as-of puts "
                "before the last."
            ),
        )
        parser.add_argument(
            "--exact",
            action="store_true",
            help="Read every row again, not only what is new since the last measurement.",
        )

    def serve(self, options: dict[str, Any]) -> None:
        """Measure and tell."""
        top = _flags.whole_number("--top", options["top"], highest=MOST_THREADS)
        with self.watched() as progress:
            readout = services.measure(
                self.database,
                now=self.as_of,
                top=top or 5,
                save=not self.rehearsing,
                exact=_flags.switch("--exact", options["exact"]),
                progress=progress,
            )
        self.note(readout.notes)
        if self.to_json:
            self.say_document(readout_document(readout))
        else:
            self.say(readout_lines(readout))
