"""Telling sweeps which threads running agents have open.

An agent that is idle, but open, looks like a dead one: its thread was still for days. What it
does is give its word for the thread, a lease, from before it reads the thread's state until it is
closed, garbage collected or its process ends:

* sweeps in the agent's own process ask ``in_use``, which needs no database;
* sweeps in other processes, on any host, find the lease in the ledger, where a thread of its own
  writes it (``heartbeat``), so that no ledger can keep an agent waiting or make it fail.

``lease`` needs Django alone; ``GuardedSaver`` needs LangGraph, and is imported when asked for.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from .leasing import lease

if TYPE_CHECKING:
    from .saver import GuardedSaver

__all__ = ["GuardedSaver", "lease"]


def __getattr__(name: str) -> Any:
    """Import the wrapper for LangGraph's savers on its first use."""
    if name != "GuardedSaver":
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    try:
        from .saver import GuardedSaver
    except ModuleNotFoundError as error:
        if not (error.name or "").startswith("langgraph"):
            raise
        raise ModuleNotFoundError(
            "GuardedSaver wraps a saver of LangGraph, which is not installed: run `python -m pip "
            "install 'django-history-retention[guard]'`, or use lease(), which needs no LangGraph.",
            name=error.name,
        ) from error
    return GuardedSaver
