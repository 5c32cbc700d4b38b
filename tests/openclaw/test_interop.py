"""OpenClaw's own program on files that we edited: it opens them, finds them whole, and goes on.

``OPENCLAW_PROGRAM`` is the command that runs it, as ``"/opt/node24/bin/node
/opt/node_modules/openclaw/openclaw.mjs"``. Without it these tests are skipped: the program needs
a newer Node.js than most machines have, and is large.
"""

from __future__ import annotations

import json
import os
import shlex
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from ..commands import run
from .agents import archived, copy_agent, is_whole, keys_in, transcripts

PROGRAM = os.environ.get("OPENCLAW_PROGRAM", "")

pytestmark = pytest.mark.skipif(not PROGRAM, reason="OPENCLAW_PROGRAM names no program to run")


def openclaw(state: Path, *words: str) -> Any:
    """Run the vendor's program on an agent's file and return the JSON that it prints."""
    done = subprocess.run(
        [*shlex.split(PROGRAM), *words, "--json"],
        env={**os.environ, "OPENCLAW_STATE_DIR": str(state), "HOME": str(state)},
        capture_output=True,
        text=True,
        timeout=120,
        check=True,
    )
    return json.loads(done.stdout[done.stdout.index("{") :])


@pytest.fixture
def state(tmp_path: Path, point_at: Callable[[Path], Path]) -> Path:
    """OpenClaw's folder, with the vendor's file of families in it."""
    path = point_at(copy_agent("v23", tmp_path))
    path.parent.chmod(0o700)
    path.chmod(0o600)
    return tmp_path


def test_it_lists_what_we_left_after_deletes_and_a_reset(state: Path) -> None:
    agent = state / "agents/main/agent/openclaw-agent.sqlite"
    deleted = ["agent:main:main", "agent:main:dashboard:alpha"]
    assert run("openclaw_sessions", "delete", *deleted, "--no-input").status == 0
    assert run("openclaw_sessions", "reset", "agent:main:scratch-1", "--no-input").status == 0

    listed = openclaw(state, "sessions", "list")

    assert {session["key"] for session in listed["sessions"]} == keys_in(agent)
    assert listed["totalCount"] == 5
    assert is_whole(agent)


def test_it_deletes_from_a_file_that_we_edited_and_we_read_what_it_archived(state: Path) -> None:
    agent = state / "agents/main/agent/openclaw-agent.sqlite"
    before = transcripts(agent)
    cron = "88888888-8888-4888-8888-888888888888"
    assert run("openclaw_sessions", "delete", "agent:main:main", "--no-input").status == 0
    (state / "openclaw.json").write_text(
        json.dumps({"session": {"maintenance": {"maxEntries": 1, "mode": "enforce"}}})
    )

    summary = openclaw(state, "sessions", "cleanup", "--enforce", "--store", str(agent))

    assert (summary["beforeCount"], summary["afterCount"]) == (6, 5)
    assert cron not in transcripts(agent)
    assert archived(agent) == {
        (name, "deleted"): before[name]
        for name in before
        if name.startswith("1111") or name == cron
    }
    assert run("openclaw_sessions", "delete", *keys_in(agent), "--no-input").status == 0
    assert (keys_in(agent), transcripts(agent)) == (set(), {})
    assert archived(agent) == {(name, "deleted"): lines for name, lines in before.items()}
    assert is_whole(agent)


def test_it_decides_a_cleanup_as_we_do(tmp_path: Path, point_at: Callable[[Path], Path]) -> None:
    path = point_at(copy_agent("v23", tmp_path, "maintenance"))
    path.parent.chmod(0o700)
    path.chmod(0o600)
    (tmp_path / "openclaw.json").write_text(
        json.dumps({"session": {"maintenance": {"maxEntries": 12, "pruneAfter": "30d"}}})
    )

    theirs = openclaw(tmp_path, "sessions", "cleanup", "--dry-run", "--enforce")
    ours = run(
        "openclaw_sessions", "cleanup", "--max-entries=12", "--prune-after=30d", "--dry-run",
        "--format=json",
    ).document["sessions"]  # fmt: skip

    actions = [each["action"] for each in ours]
    assert theirs["beforeCount"] == len(ours) == 21
    assert theirs["pruned"] == actions.count("prune-stale")
    assert theirs["archived"] == actions.count("archive-age") + actions.count("archive-dashboard")
    assert theirs["modelRunPruned"] == actions.count("prune-model-run")
    assert theirs["afterCount"] == 21 - sum(
        action in ("prune-stale", "prune-model-run", "cap-overflow") for action in actions
    )
