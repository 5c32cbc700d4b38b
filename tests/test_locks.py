from __future__ import annotations

import os
import stat
import subprocess
import sys
import tempfile
from contextlib import AbstractContextManager
from pathlib import Path

import pytest

from history_retention.exceptions import StoreUnreadable, SweepRunning
from history_retention.locks import only_one

HOLDER = """
import sys
from history_retention.locks import only_one
with only_one(sys.argv[1], "history", sys.argv[2]):
    print("held", flush=True)
    sys.stdin.read()
"""


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Keep the locks of these tests in a folder of their own."""
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    monkeypatch.setattr(tempfile, "tempdir", None)
    return tmp_path


def holding(work: str, identity: str) -> subprocess.Popen[str]:
    """Let another process hold a lock; it does once it has said so."""
    process = subprocess.Popen(
        [sys.executable, "-c", HOLDER, work, identity],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    assert process.stdout is not None
    assert process.stdout.readline() == "held\n"
    return process


def test_a_lock_that_another_process_holds_is_refused_at_once() -> None:
    with (
        holding("sweep", "/srv/history.db") as other,
        pytest.raises(SweepRunning, match=r"^history: another sweep of this store is running") as e,
        only_one("sweep", "history", "/srv/history.db"),
    ):
        pytest.fail("both processes hold the lock")
    other.kill()

    assert e.value.exit_status == 1


def test_a_lock_ends_with_the_process_that_held_it_however_it_ended() -> None:
    with holding("sweep", "/srv/history.db") as other:
        other.kill()
    entered = False

    with only_one("sweep", "history", "/srv/history.db"):
        entered = True

    assert entered


@pytest.mark.parametrize(("work", "identity"), [("measuring", "/srv/a.db"), ("sweep", "/srv/b.db")])
def test_other_work_and_other_stores_have_locks_of_their_own(work: str, identity: str) -> None:
    entered = False

    with only_one("sweep", "history", "/srv/a.db"), only_one(work, "history", identity):
        entered = True

    assert entered


def test_two_aliases_of_one_store_share_its_lock() -> None:
    with (
        only_one("sweep", "history", "/srv/a.db"),
        pytest.raises(SweepRunning, match=r"^archive: "),
        only_one("sweep", "archive", "/srv/a.db"),
    ):
        pytest.fail("both aliases hold the lock")


def test_those_who_share_a_lock_hold_it_together_and_against_everyone_else() -> None:
    def share() -> AbstractContextManager[None]:
        return only_one("sweep", "history", "/srv/a.db", shared=True)

    with (
        share(),
        share(),
        pytest.raises(SweepRunning, match="another sweep of this store is running"),
        only_one("sweep", "history", "/srv/a.db"),
    ):
        pytest.fail("one holds it alone beside two that share it")
    with (
        only_one("sweep", "history", "/srv/a.db"),
        pytest.raises(SweepRunning, match="another sweep of this store is running"),
        share(),
    ):
        pytest.fail("it is shared while one holds it alone")


def test_an_error_while_it_is_held_frees_the_lock() -> None:
    with pytest.raises(ZeroDivisionError), only_one("sweep", "history", "/srv/a.db"):
        _ = 1 // 0
    entered = False

    with only_one("sweep", "history", "/srv/a.db"):
        entered = True

    assert entered


@pytest.mark.parametrize("identity", ["/srv/größe \udcff.db", "", "x" * 5_000])
def test_any_path_has_a_lock_in_the_folder_for_temporary_files(folder: Path, identity: str) -> None:
    with only_one("sweep", "history", identity):
        (lock,) = folder.iterdir()

    assert lock.name.startswith("history-retention-")
    assert lock.name.endswith("-sweep.lock")
    assert lock.stat().st_size == 0


def test_a_lock_file_may_be_locked_by_every_user(folder: Path) -> None:
    before = os.umask(0o077)
    try:
        with only_one("sweep", "history", "/srv/a.db"):
            (lock,) = folder.iterdir()
    finally:
        os.umask(before)

    assert stat.S_IMODE(lock.stat().st_mode) == 0o666


def test_a_lock_file_that_is_a_link_is_not_followed(folder: Path) -> None:
    with only_one("sweep", "history", "/srv/a.db"):
        (lock,) = folder.iterdir()
    lock.unlink()
    target = folder / "target"
    lock.symlink_to(target)

    with (
        pytest.raises(StoreUnreadable, match=r"lock file .* cannot be opened .* Nothing was done"),
        only_one("sweep", "history", "/srv/a.db"),
    ):
        pytest.fail("the link was followed")

    assert not target.exists()
