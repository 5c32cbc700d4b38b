"""What needs a terminal or its signals: a question, a line of progress, a wish to stop."""

from __future__ import annotations

import signal
import sys
import threading
import time
from collections.abc import Callable
from types import FrameType, TracebackType
from typing import Self

from django.core.management.base import OutputWrapper

Disposition = Callable[[int, FrameType | None], object] | int | None

SECONDS_BETWEEN_LINES = 0.1


def can_ask() -> bool:
    """Tell whether somebody sits there to answer."""
    try:
        return sys.stdin is not None and sys.stdin.isatty()
    except ValueError:  # closed
        return False


class ProgressLine:
    """One line that is written over and over, and wiped before anything else is said.

    Work that is over before the first line is due shows none.
    """

    def __init__(self, stream: OutputWrapper) -> None:
        self._stream = stream
        self._written = 0
        self._next = time.monotonic() + SECONDS_BETWEEN_LINES

    def __call__(self, verb: str, done: int, total: int) -> None:
        """Show how much is done, at most ten times a second."""
        now = time.monotonic()
        if now < self._next:
            return
        self._next = now + SECONDS_BETWEEN_LINES
        line = f"{verb} {done:,} of {total:,}" if total else f"{verb} {done:,}"
        self._write(line)

    def wipe(self) -> None:
        """Leave the line empty, with the cursor at its start."""
        if self._written:
            self._write("")
            self._put("\r")

    def _write(self, line: str) -> None:
        self._put("\r" + line.ljust(self._written))
        self._written = len(line)

    def _put(self, text: str) -> None:
        self._stream.write(text, style_func=str, ending="")
        self._stream.flush()


class StopRequests:
    """Take the first Ctrl-C or SIGTERM as a wish to stop after the current batch.

    The second one raises KeyboardInterrupt at once. Only the main thread may listen to
    signals, and one that was ignored before (as under nohup) stays ignored.
    """

    def __init__(self) -> None:
        self._asked = False
        self._before: dict[signal.Signals, Disposition] = {}

    def __call__(self) -> bool:
        """Tell whether somebody wants the work to stop."""
        return self._asked

    def __enter__(self) -> Self:
        if threading.current_thread() is threading.main_thread():
            for number in (signal.SIGINT, signal.SIGTERM):
                if signal.getsignal(number) is not signal.SIG_IGN:
                    self._before[number] = signal.signal(number, self._receive)
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        for number, before in self._before.items():
            signal.signal(number, signal.SIG_DFL if before is None else before)

    def _receive(self, number: int, frame: FrameType | None) -> None:
        if self._asked:
            raise KeyboardInterrupt
        self._asked = True
