"""A minute of chaos with a fixed seed: every kind of fault once, and no broken promise."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from osgym_host.images.store import Image

pytestmark = [pytest.mark.desktop, pytest.mark.timeout(420)]

ROOT = Path(__file__).parents[2]


def test_a_minute_of_every_fault_breaks_no_promise(small_image: Image, tmp_path: Path) -> None:
    """Tasks end once with the right reward or a typed failure, frames are their own, nothing is left."""
    argv = [sys.executable, "-m", "benchmarks.chaos", "--seconds", "60", "--every", "2", "--seed", "1"]
    # Beside other tests on few cores: the bounds on time are those of the long run, and not this one's.
    argv += ["--replicas", "3", "--clean-p95", "30", "--noticed", "30", "--log", str(tmp_path / "log")]
    done = subprocess.run(argv, cwd=ROOT, capture_output=True, text=True, timeout=400, check=False)
    assert done.returncode == 0, done.stdout[-8000:] + done.stderr[-4000:]
    assert done.stdout.count(" / ") >= 10, "most kinds of faults were done"
    assert done.stdout.count("| policy: ") >= 5, "and some of those that policies cause themselves"
