"""What all commands share: the common flags, one way to say things, one way to fail.

Output for programs is one JSON object on stdout; notes, questions and progress go to stderr.
Exit status: 0 done or nothing to do, 1 refused, failed or partial, 2 a wrong flag.
"""

from __future__ import annotations

import json
import os
import sys
from abc import abstractmethod
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from datetime import datetime
from pathlib import Path
from typing import Any, ClassVar

from django.core.exceptions import ImproperlyConfigured
from django.core.management.base import BaseCommand, CommandError, CommandParser
from django.utils import timezone

from ... import conf, services
from ...exceptions import HistoryRetentionError, UsageError
from ...stores.base import Progress
from . import _flags
from ._documents import Document
from ._terminal import ProgressLine, can_ask

FORMATS = ("text", "json")
NOTHING = "Nothing was removed."


class TellingCommand(BaseCommand):
    """A command about one store. Subclasses give ``serve`` and the words for an interruption."""

    interrupted: str
    """What is true when Ctrl-C ends the command; kept up to date while it works."""

    database: str
    verbosity: int
    to_json: bool

    def add_arguments(self, parser: CommandParser) -> None:
        """Add the flags that every command has."""
        parser.allow_abbrev = False
        parser.add_argument(
            "--database", metavar="ALIAS", help="The store; by default the first of STORES."
        )
        parser.add_argument(
            "--format",
            default="text",
            metavar="text|json",
            help="json: one object on stdout and nothing else there. Default: text.",
        )

    def handle(self, *args: Any, **options: Any) -> None:
        """Read the flags, serve, and turn every failure into a sentence and a status."""
        try:
            self._read(options)
            self.serve(options)
        except HistoryRetentionError as error:
            raise CommandError(str(error), returncode=error.exit_status) from error
        except ImproperlyConfigured as error:
            raise CommandError(str(error)) from error
        except KeyboardInterrupt:
            raise CommandError(f"Interrupted. {self.interrupted}") from None
        finally:
            self._flush()

    @abstractmethod
    def serve(self, options: dict[str, Any]) -> None:
        """Do what the command is for; the common flags are attributes by now."""

    def say(self, lines: Iterable[str]) -> None:
        """Print lines on stdout, whatever its encoding; quietly when its reader has left."""
        self._print("\n".join(lines))

    def say_document(self, document: Document) -> None:
        """Print the one JSON object, in ASCII so that any thread id survives."""
        self._print(json.dumps(document, ensure_ascii=True))

    def note(self, lines: Iterable[str]) -> None:
        """Print lines on stderr."""
        for line in lines:
            self.stderr.write(line, self.style.WARNING)

    def _read(self, options: dict[str, Any]) -> None:
        self.verbosity = options["verbosity"]
        self.to_json = _flags.word("--format", options["format"], FORMATS) == "json"
        self.database = _flags.text("--database", options["database"]) or conf.default_store()
        conf.store_options(self.database)

    def _print(self, text: str) -> None:
        encoding = getattr(self.stdout, "encoding", None) or "utf-8"
        with self._reader_may_leave():
            self.stdout.write(text.encode(encoding, "backslashreplace").decode(encoding))

    def _flush(self) -> None:
        with self._reader_may_leave():
            self.stdout.flush()

    @contextmanager
    def _reader_may_leave(self) -> Iterator[None]:
        """Go on in silence when a pipe is closed, as ``| head`` does; other errors are told."""
        try:
            yield
        except OSError as error:
            with Path(os.devnull).open("w") as nowhere:
                os.dup2(nowhere.fileno(), self.stdout.fileno())
            if not isinstance(error, BrokenPipeError):
                raise CommandError(
                    f"The output could not be written: {error.strerror}. {self.interrupted}"
                ) from error


class StoreCommand(TellingCommand):
    """A command that reads a whole store, as of now or of another instant."""

    rehearsal: ClassVar[str]
    """The flag that makes the command keep its hands off, as ``--dry-run``."""

    as_of: datetime
    rehearsing: bool

    def add_arguments(self, parser: CommandParser) -> None:
        """Add the instant."""
        super().add_arguments(parser)
        parser.add_argument(
            "--as-of",
            metavar="ISO",
            help=(
                "Act as if it were this date and time (no zone means UTC). "
                f"A future one needs {self.rehearsal}."
            ),
        )

    @contextmanager
    def watched(self) -> Iterator[Progress]:
        """Show progress when somebody watches: not in a pipe or a cron mail."""
        if self.to_json or self.verbosity < 1 or not self.stderr.isatty():
            yield services.silent
            return
        line = ProgressLine(self.stderr)
        try:
            yield line
        finally:
            line.wipe()

    def _read(self, options: dict[str, Any]) -> None:
        self.rehearsing = _flags.switch(
            self.rehearsal, options[self.rehearsal.lstrip("-").replace("-", "_")]
        )
        super()._read(options)
        now = timezone.now()
        self.as_of = _flags.instant("--as-of", options["as_of"]) or now
        if self.as_of > now and not self.rehearsing:
            raise UsageError(
                f"--as-of {self.as_of:%Y-%m-%dT%H:%M:%SZ} lies in the future: "
                f"that needs {self.rehearsal}."
            )


class DestructiveCommand(StoreCommand):
    """A command that removes or blocks something, and so shows it first and asks."""

    rehearsal = "--dry-run"
    interrupted = NOTHING
    stealth_options = ("interactive",)

    def add_arguments(self, parser: CommandParser) -> None:
        """Add the flags that replace the answer."""
        super().add_arguments(parser)
        parser.add_argument(
            "--dry-run", action="store_true", help="Show what would be done and do nothing."
        )
        parser.add_argument(
            "--no-input", "--noinput", action="store_true", help="Do not ask for confirmation."
        )

    def asks(self, options: dict[str, Any]) -> bool:
        """Tell whether to ask before doing anything; refuse when nobody could answer."""
        silent = _flags.switch("--no-input", options["no_input"])
        if self.rehearsing or silent or not options.get("interactive", True):
            return False
        if not can_ask():
            raise CommandError(
                f"{self.interrupted} There is no terminal to ask for confirmation on: "
                "pass --no-input to go ahead without, or --dry-run to look."
            )
        return True

    def show(self, lines: Sequence[str], *, asks: bool) -> None:
        """Show what is about to be done: whoever is asked sees it, a program reads it after."""
        if not self.to_json and (asks or self.verbosity > 0):
            self.say(lines)
        elif asks:
            self.note(lines)

    def ask(self, question: str) -> None:
        """Go on only when somebody types yes; the question is on stderr, the answer on stdin."""
        self._flush()
        self.stderr.write(f"{question} Type 'yes' to go on: ", style_func=str, ending="")
        self.stderr.flush()
        answer = ""
        try:
            answer = sys.stdin.readline()
        finally:
            if not answer.endswith("\n"):
                self.stderr.write("", style_func=str)
        if answer.strip().lower() != "yes":
            raise CommandError(f"{self.interrupted} The answer was not yes.")
