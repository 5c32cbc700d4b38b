"""An agent at work: a checkpoint and two writes in one transaction, every ten milliseconds.

Run as a process of its own. Writes until its standard input closes, then prints how many
transactions it made, how many met a locked database, and the longest one took. How many seconds
it waits for a lock may be given behind the path.
"""

from __future__ import annotations

import json
import select
import sqlite3
import sys
import time
from datetime import UTC, datetime

from project.checkpoint_ids import checkpoint_id_at

PAUSE_SECONDS = 0.01
BUSY_TIMEOUT_SECONDS = 5.0


def write_until_stdin_closes(
    path: str, patience_seconds: float | str = BUSY_TIMEOUT_SECONDS
) -> dict[str, float]:
    """Write to the store and return ``transactions``, ``busy`` and ``longest_ms``."""
    connection = sqlite3.connect(path, timeout=float(patience_seconds), isolation_level=None)
    transactions = busy = 0
    longest = 0.0
    payload = b"\x80" + bytes(20_000)
    print("ready", flush=True)
    while not select.select([sys.stdin], [], [], PAUSE_SECONDS)[0]:
        key = checkpoint_id_at(datetime.now(UTC), transactions)
        started = time.monotonic()
        try:
            connection.execute("BEGIN IMMEDIATE")
            connection.execute(
                "INSERT INTO checkpoints VALUES ('live', '', ?, NULL, 'msgpack', ?, '{}')",
                (key, payload),
            )
            connection.executemany(
                "INSERT INTO checkpoint_writes"
                " VALUES ('live', '', ?, 'task', ?, 'messages', 'msgpack', ?)",
                [(key, index, payload[:200]) for index in range(2)],
            )
            connection.execute("COMMIT")
            transactions += 1
        except sqlite3.OperationalError:
            busy += 1
            if connection.in_transaction:
                connection.execute("ROLLBACK")
        longest = max(longest, time.monotonic() - started)
    connection.close()
    return {"transactions": transactions, "busy": busy, "longest_ms": round(longest * 1000, 1)}


if __name__ == "__main__":
    print(json.dumps(write_until_stdin_closes(*sys.argv[1:])))
