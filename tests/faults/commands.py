"""The four commands, each ready to do what it can, and how one of them refuses."""

from __future__ import annotations

import sqlite3
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from ..commands import Ran

READOUT = ["history_readout"]
PRUNE = ["history_prune", "--all", "--no-input"]
RECLAIM = ["history_reclaim", "--no-input"]
VACUUM = ["history_vacuum", "--no-input"]
STEPS = [*VACUUM, "--incremental"]

EVERY_COMMAND = pytest.mark.parametrize(
    "words", [READOUT, PRUNE, RECLAIM, VACUUM], ids=lambda words: words[0]
)
READING_COMMANDS = pytest.mark.parametrize(
    "words", [READOUT, PRUNE, RECLAIM], ids=lambda words: words[0]
)


def refusal(ran: Ran) -> str:
    """Return the one sentence that a command failed with, having done nothing."""
    assert (ran.status, ran.out) == (1, ""), ran
    return sentence(ran)


def sentence(ran: Ran) -> str:
    """Return the one sentence on stderr, which is never a traceback."""
    (line,) = ran.err.splitlines()
    assert line.removeprefix("CommandError: ").startswith("history: ")
    assert line.endswith(".")
    return line


def sweeps_in(ledger: Path, *columns: str) -> list[Any]:
    """Return these columns of every sweep that a ledger in a file has on record, oldest first."""
    with closing(sqlite3.connect(ledger)) as connection:
        rows = connection.execute(
            f"SELECT {', '.join(columns)} FROM history_retention_sweep ORDER BY id"
        ).fetchall()
    return [row[0] for row in rows] if len(columns) == 1 else rows
