"""A short chaos run over stand-ins: a real host agent, the real SDK, and whose loss each failure is."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = pytest.mark.timeout(180)

ROOT = Path(__file__).parents[2]


def test_every_failure_of_a_short_run_has_its_class(tmp_path: Path) -> None:
    """Faults of desktops at all moments of an episode, and the host agent ended under others."""
    series = tmp_path / "series.json"
    argv = [sys.executable, "-m", "benchmarks.chaos", "--runtime", "synthetic", "--episodes", "220"]
    argv += ["--seed", "11", "--out", str(series), "--log", str(tmp_path / "log")]
    done = subprocess.run(argv, cwd=ROOT, capture_output=True, text=True, timeout=170, check=False)
    assert done.returncode == 0, done.stdout[-8000:] + done.stderr[-4000:]
    told = json.loads(series.read_text())
    assert told["figures"]["trajectories"] == len(told["trajectories"]["reward"]) == 220
    classes = {one for kind in told["kinds"] for one in kind["classes"]}
    assert classes == {"policy", "infra", "task", "nobody"}
    assert "| host_restarted | infra |" in done.stdout or "| shutdown | infra |" in done.stdout
