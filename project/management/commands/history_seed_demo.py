"""Write a store to try the other commands on."""

import os
import sqlite3
from argparse import ArgumentParser
from pathlib import Path

from django.conf import settings
from django.core.management.base import BaseCommand, CommandError
from django.utils import timezone

from project.demo_openclaw import write_demo_openclaw
from project.demo_store import write_demo_store

OPENCLAW = Path("openclaw", "agents", "main", "agent", "openclaw-agent.sqlite")
"""Where OpenClaw keeps an agent's file, below its own folder."""


class Command(BaseCommand):
    help = (
        "Write a small LangGraph store to demo/history.db, or the file of an OpenClaw agent, to "
        "try the other commands on."
    )
    requires_system_checks = ()

    def add_arguments(self, parser: ArgumentParser) -> None:
        parser.add_argument(
            "--force", action="store_true", help="Write it anew where it is there already."
        )
        parser.add_argument(
            "--openclaw", action="store_true", help="Write an OpenClaw agent's file instead."
        )

    def handle(self, *, force: bool, openclaw: bool, **options: object) -> None:
        path = settings.DEMO_DIR / (OPENCLAW if openclaw else "history.db")
        write = _write_openclaw if openclaw else _write_langgraph
        if path.exists() and not force:
            raise CommandError(
                f"{path} is there already and was left as it is; to write it anew pass --force."
            )
        unfinished = path.with_suffix(".unfinished")
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            _remove(unfinished)
            what = write(unfinished)
            _remove(path)
            unfinished.replace(path)
        except (OSError, sqlite3.Error) as error:
            raise CommandError(f"{path} could not be written: {error}.") from error
        megabytes = path.stat().st_size / 2**20
        self.stdout.write(f"{os.path.relpath(path)}: wrote {what.format(megabytes=megabytes)}.")


def _write_langgraph(path: Path) -> str:
    """Write the store and say what is in it; ``{megabytes}`` is left for its size."""
    written = write_demo_store(path, now=timezone.now())
    author = "LangGraph's own saver" if written.own_saver else "plain SQL"
    return (
        f"{written.threads} threads ({written.checkpoints} checkpoints, {written.writes} writes) "
        f"and {written.conversations} conversations with {written.turns} turns, "
        f"{{megabytes:.1f}} MB, with {author}"
    )


def _write_openclaw(path: Path) -> str:
    """Write the file and say what is in it, as above."""
    entries = write_demo_openclaw(path, now=timezone.now())
    return f"an OpenClaw agent's file of {entries} entries, {{megabytes:.1f}} MB"


def _remove(path: Path) -> None:
    """Remove a SQLite file and its logs, which would be replayed into its successor."""
    for suffix in ("", "-wal", "-shm", "-journal"):
        path.with_name(path.name + suffix).unlink(missing_ok=True)
