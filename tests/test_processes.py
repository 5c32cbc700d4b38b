from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from history_retention.processes import is_gone, this_process

from .conftest import NAMES_ITSELF

WAITS = f"{NAMES_ITSELF}; import sys; sys.stdout.flush(); sys.stdin.read()"


def test_this_process_is_there_and_one_that_ended_is_not(ended_process: str) -> None:
    assert not is_gone(this_process())
    assert is_gone(ended_process)


def test_a_process_is_gone_once_it_is_killed_even_before_its_parent_asked() -> None:
    with subprocess.Popen(
        [sys.executable, "-c", WAITS], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as child:
        assert child.stdout is not None
        name = child.stdout.readline().strip()
        there = not is_gone(name)
        child.kill()
        os.waitid(os.P_PID, child.pid, os.WEXITED | os.WNOWAIT)  # ended, and not yet reaped
        gone = is_gone(name)

    assert (there, gone) == (True, True)


@pytest.mark.skipif(not Path("/proc/self/stat").exists(), reason="only Linux tells when it started")
def test_another_process_with_the_number_of_one_that_ended_is_not_taken_for_it() -> None:
    pid, started, place = this_process().split(" ", 2)

    assert is_gone(f"{pid} {int(started) - 1} {place}")


@pytest.mark.parametrize("name", ["", "x", "12", "12 34", "x y z", "1 2 - another.host"])
def test_what_cannot_be_seen_from_here_is_not_called_gone(name: str) -> None:
    assert not is_gone(name)


def test_a_process_on_another_host_or_in_another_container_is_not_called_gone(
    ended_process: str,
) -> None:
    pid, started, namespace, host = ended_process.split(" ", 3)

    assert not is_gone(f"{pid} {started} {namespace} not-{host}")
    assert not is_gone(f"{pid} {started} pid:[0] {host}")
