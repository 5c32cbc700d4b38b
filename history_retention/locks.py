"""One sweep of a file at a time, and one measuring, on this machine.

The lock is an advisory lock on a small file in the system's folder for temporary files, named
after the store's own path, so that two projects over the same store share it. The kernel drops
it when its process ends, however it ends. Without it two sweeps would still be harmless, since
every batch checks its threads under the database's own lock; they would only be in each other's
way. The vendor's folder gets no file, and the vendor's file is never opened here.
"""

from __future__ import annotations

import hashlib
import os
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from django.core.files import locks

from .exceptions import StoreUnreadable, SweepRunning


@contextmanager
def only_one(work: str, alias: str, identity: str, *, shared: bool = False) -> Iterator[None]:
    """Hold the store's lock for a kind of work; SweepRunning at once if another has it.

    ``work`` is a noun ("sweep"), ``identity`` what is the same for everyone who means this
    store: its path. With ``shared``, others who also share it may hold it too.
    """
    digest = hashlib.sha256(identity.encode("utf-8", "surrogateescape")).hexdigest()[:24]
    name = f"history-retention-{digest}-{work}.lock"
    try:
        descriptor = _opened(Path(tempfile.gettempdir(), name))
    except OSError as error:
        raise StoreUnreadable(
            f"{alias}: the lock file {name} cannot be opened ({error.strerror}); remove it, free "
            "some space for temporary files, or set TMPDIR to a folder you may write. "
            "Nothing was done."
        ) from error
    try:
        mode = locks.LOCK_SH if shared else locks.LOCK_EX
        if not locks.lock(descriptor, mode | locks.LOCK_NB):
            raise another_is_running(work, alias)
        yield
    finally:
        os.close(descriptor)


def another_is_running(work: str, alias: str) -> SweepRunning:
    """Return the refusal of whoever comes second."""
    return SweepRunning(
        f"{alias}: another {work} of this store is running, so this one left without doing "
        "anything; run it again when that one is done."
    )


def _opened(path: Path) -> int:
    """Open the lock file for any user. A sticky folder refuses O_CREAT on another user's file."""
    flags = os.O_RDWR | os.O_CLOEXEC | getattr(os, "O_NOFOLLOW", 0)
    try:
        return os.open(path, flags)
    except FileNotFoundError:
        descriptor = os.open(path, flags | os.O_CREAT, 0o666)
        path.chmod(0o666)  # whoever runs a sweep must be able to lock it
        return descriptor
