"""The settle benchmark runs: a few actions of one application on a real desktop, judged and saved."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
from benchmarks.settle.__main__ import read
from tests.support.host_process import HostProcess

ROOT = Path(__file__).resolve().parents[2]


@pytest.mark.desktop
@pytest.mark.timeout(120)
def test_its_short_mode(host: HostProcess, tmp_path: Path) -> None:
    """The series has a verdict for each action, with what the guest recorded of the last change."""
    out = tmp_path / "settle.json"
    run = [sys.executable, "-m", "benchmarks.settle", "run", "--smoke", "--host", host.url, "--out", str(out)]
    done = subprocess.run(run, cwd=ROOT, capture_output=True, text=True, timeout=100)
    assert done.returncode == 0, done.stdout + done.stderr
    head, verdicts = read(out)
    assert head["failures"] == []
    assert len(verdicts) == 8
    assert all(v.policy == "exact" and v.wait_ms > 0 and v.marked is not None for v in verdicts)
    assert any(v.last_change_ms is not None for v in verdicts)
