"""The SDK's README: every block of Python in it runs."""

from __future__ import annotations

import builtins
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest
from tests.support.fake_runtime import TASK, Served
from tests.support.fake_v1_host import FakeV1Host, serving

import osgym_sdk
from osgym_sdk import Limits, Timeouts
from osgym_sdk._config import ClientSettings

README = Path(__file__).parents[2] / "sdk" / "README.md"
BLOCKS = re.findall(r"```python\n(.*?)```", README.read_text(), re.DOTALL)


@pytest.mark.parametrize("index", range(len(BLOCKS)))
def test_the_readmes_code_runs(index: int, tmp_path: Path) -> None:
    """Each block runs as it stands, against a host, and leaves nothing leased."""
    if any(call in BLOCKS[index] for call in ("fork(", "rollouts(", "reset_many(", "suspend(")):
        with Served(tmp_path, max_replicas=8) as served:
            _run(f"TASK = {TASK!r}\n{BLOCKS[index]}", served.urls[0], tmp_path)
            assert served.agent is not None
            assert served.agent.pool.view().leased == 0
            taken = {"fork(": 2, "rollouts(": 1, "suspend(": 1}
            assert served.runtime.points.taken == sum(taken[call] for call in taken if call in BLOCKS[index])
        return
    with serving(FakeV1Host()) as running:
        _run("TASK = {}\n" + BLOCKS[index], running.url, tmp_path)
        assert running.host.episodes
        assert running.host.live() == []


def _run(code: str, url: str, folder: Path) -> None:
    script = folder / "block.py"
    script.write_text(code)
    done = subprocess.run(
        [sys.executable, "-W", "error", str(script)],
        capture_output=True,
        text=True,
        timeout=60,
        cwd=folder,
        env={**os.environ, "OSGYM_HOSTS": url},
    )
    assert done.returncode == 0, done.stderr


def test_the_readme_names_what_exists() -> None:
    """Errors, settings and variables in the tables are real, and none of the settings is left out."""
    text = README.read_text()
    rows = [line for line in text.splitlines() if line.startswith("| `")]
    for name in re.findall(r"`([A-Z][A-Za-z]+)`", "\n".join(rows)):
        assert hasattr(osgym_sdk, name) or hasattr(builtins, name)
    for field in ClientSettings.__annotations__:
        assert f"`{field}" in text
    defaults = Timeouts()
    assert f"connect {defaults.connect_s:g}, control {defaults.control_s:g}, step {defaults.step_s:g}" in text
    assert f"evaluate {defaults.evaluate_s:g}, retry {defaults.retry_s:g}" in text
    assert Limits().heartbeat < Limits().control < Limits().long
