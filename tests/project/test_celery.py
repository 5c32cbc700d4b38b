import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]

SCRIPT = """
import inspect, json, django
from project.celery import app
django.setup()
app.loader.import_default_modules()
bound = {}
for entry in app.conf.beat_schedule.values():
    run = inspect.signature(app.tasks[entry["task"]].run)
    bound[entry["task"]] = run.bind(**entry.get("kwargs", {})).kwargs
print(json.dumps(bound))
"""


@pytest.mark.parametrize(
    ("environment", "prune"),
    [({}, {}), ({"HISTORY_PRUNE_OLDER_THAN": "90"}, {"prune": {"older_than_days": 90}})],
)
def test_beat_prunes_by_the_bound_somebody_wrote_and_never_without(
    environment: dict[str, str], prune: dict[str, dict[str, int]]
) -> None:
    ran = subprocess.run(
        [sys.executable, "-c", SCRIPT],
        cwd=ROOT,
        env={**os.environ, **environment},
        capture_output=True,
        text=True,
        check=True,
    )

    expected: dict[str, dict[str, int]] = {"measure": {}, "reclaim": {}, **prune}
    assert json.loads(ran.stdout) == {
        f"history_retention.{name}": expected[name] for name in expected
    }
