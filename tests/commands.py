"""Running the commands in this process and as a program of their own."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from dataclasses import dataclass
from io import StringIO
from pathlib import Path
from typing import Any

from django.core.management import CommandError, call_command

PROJECT = Path(__file__).resolve().parents[1]


@dataclass(frozen=True, slots=True, kw_only=True)
class Ran:
    """What a command printed and how it ended."""

    status: int
    out: str
    err: str

    @property
    def document(self) -> dict[str, Any]:
        """The one JSON object on stdout; anything else there is an error."""
        document = json.loads(self.out)
        assert isinstance(document, dict)
        return document


def run(name: str, /, *args: str, **options: Any) -> Ran:
    """Call a command as Python code does; a CommandError's sentence ends ``err``."""
    out, err = StringIO(), StringIO()
    status, sentence = 0, ""
    try:
        call_command(name, *args, stdout=out, stderr=err, **options)
    except CommandError as error:
        status, sentence = error.returncode, f"{error}\n"
    return Ran(status=status, out=out.getvalue(), err=err.getvalue() + sentence)


def environment(store: Path, ledger: Path) -> dict[str, str]:
    """Return the environment in which ``manage.py`` opens the store and the ledger."""
    kept = {
        name: value
        for name, value in os.environ.items()
        if not name.startswith(("DJANGO_", "HISTORY_", "DATABASE_", "PYTHON"))
    }
    return kept | {
        "HISTORY_DATABASE_URL": f"sqlite:///{store}",
        "DATABASE_URL": f"sqlite:///{ledger}",
        "PYTHONWARNINGS": "error",
    }


def manage(*args: str, store: Path, ledger: Path, **options: Any) -> Ran:
    """Run ``manage.py`` as a program, without a terminal unless ``stdin`` says otherwise."""
    options.setdefault("stdin", subprocess.DEVNULL)
    environ = environment(store, ledger) | options.pop("env", {})
    done = subprocess.run(
        [sys.executable, "manage.py", *args],
        cwd=PROJECT,
        env=environ,
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
        **options,
    )
    return Ran(status=done.returncode, out=done.stdout, err=done.stderr)
