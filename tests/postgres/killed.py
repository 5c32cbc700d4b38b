"""Run ``manage.py`` and be killed right after a statement that removes threads.

``python -m tests.postgres.killed history_prune …``; how many such statements are let pass before
is in ``HISTORY_TEST_KILL_AFTER``.
"""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import Sequence

from django.core.management import execute_from_command_line

from history_retention.facts import PlannedThread


def main() -> None:
    os.environ["DJANGO_SETTINGS_MODULE"] = "project.settings"
    import django

    django.setup()
    from history_retention.stores.langgraph_postgres import LangGraphPostgresStore

    removals_left = int(os.environ["HISTORY_TEST_KILL_AFTER"])
    remove = LangGraphPostgresStore.remove

    def remove_and_die(store: LangGraphPostgresStore, threads: Sequence[PlannedThread]) -> None:
        nonlocal removals_left
        remove(store, threads)
        if not removals_left:
            os.kill(os.getpid(), signal.SIGKILL)
        removals_left -= 1

    LangGraphPostgresStore.threads_a_removal = 20
    LangGraphPostgresStore.remove = remove_and_die  # type: ignore[method-assign, assignment]
    execute_from_command_line(["manage.py", *sys.argv[1:]])


if __name__ == "__main__":
    main()
