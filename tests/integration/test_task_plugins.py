"""Extensions of others: installed outside the tree, named by a task file, used on a real desktop."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from tests.support.host_process import HostProcess, osgym, running_host

from osgym_host.images.store import Image
from osgym_sdk import Client

PLUGINS = Path(__file__).parents[2] / "examples" / "plugins"
PATH = "/home/user/note.txt"
TASK: dict[str, Any] = {
    "id": "plugins",
    "instruction": "Write three words into the second line.",
    "config": [{"type": "append_line", "parameters": {"path": PATH, "text": "one two"}}],
    "evaluator": {
        "func": "check_word_count",
        "result": {"type": "vm_line", "path": PATH, "number": 2},
        "expected": {"type": "rule", "rules": {"words": 3}},
    },
}

pytestmark = [pytest.mark.desktop, pytest.mark.timeout(300)]


@pytest.fixture(scope="module")
def installed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder into which pip has installed the examples."""
    target = tmp_path_factory.mktemp("installed")
    argv = [sys.executable, "-m", "pip", "install", "-q", "--disable-pip-version-check", "--no-deps"]
    argv += ["--no-compile", "--target", str(target)]
    for name in ("word_count_metric", "line_getter"):
        copy = tmp_path_factory.mktemp(name) / name  # a build leaves files beside its source
        subprocess.run(["cp", "-r", PLUGINS / name, copy], check=True)
        subprocess.run([*argv, copy], check=True, timeout=240)
    return target


@pytest.fixture(scope="module")
def plugin_host(
    installed: Path, small_image: Image, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[HostProcess]:
    """A host that finds the extensions by ``PYTHONPATH``, which the confined evaluator cannot see."""
    options = {"image": "small", "warm": 1, "max_replicas": 2, "log_dir": tmp_path_factory.mktemp("log")}
    with running_host(f"plugins-{os.getpid()}", env={"PYTHONPATH": str(installed)}, **options) as host:
        yield host


@pytest.mark.parametrize(("text", "reward"), [("three words here", 1.0), ("two words", 0.0), (None, 0.0)])
def test_a_task_uses_a_metric_a_getter_and_a_setup_step_of_others(
    plugin_host: HostProcess, text: str | None, reward: float
) -> None:
    """The step appends the first line; the getter reads the second, which the metric counts confined."""
    with Client(plugin_host.url) as client, client.episode(TASK) as episode:
        if text is not None:
            done = episode.execute(["sh", "-c", f"printf '%s\\n' '{text}' >>{PATH}"])
            assert done.returncode == 0
        assert episode.execute(["head", "-n1", PATH]).stdout == "one two\n"
        assert episode.evaluate().reward == reward


def test_the_extensions_are_in_the_reference_where_they_are_installed(installed: Path) -> None:
    """With their parameters and their first sentences; a host without them lists none."""
    page = osgym("task", "reference", PYTHONPATH=str(installed)).stdout
    assert "| `check_word_count` | `distinct = false` | The result has `rules.words` words;" in page
    assert "| `append_line` | `path` text, `text` text |" in page
    assert "check_word_count" not in osgym("task", "reference").stdout
