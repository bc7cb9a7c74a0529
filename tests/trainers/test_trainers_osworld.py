"""OSWorld's own DesktopEnv, unchanged, on real desktops: its set-up, its actions, its evaluation."""

from __future__ import annotations

import copy
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
from tests.support.host_process import HostProcess
from tests.support.trainer_rig import NOTE, TASK

pytest.importorskip("desktop_env", reason="missing: desktop-env")
pytest.importorskip("playwright", reason="missing: playwright")

from desktop_env.desktop_env import DesktopEnv

import osgym_osworld.harness  # noqa: F401 - it installs itself

pytestmark = [pytest.mark.desktop, pytest.mark.timeout(600)]

RIGHT = [
    f"import pyautogui; pyautogui.typewrite('{NOTE}\\n')",
    "import pyautogui; pyautogui.hotkey('ctrl', 's')",
    "DONE",
]


def played(folder: Path, actions: list[str], rounds: int = 1) -> list[tuple[float, float]]:
    """Rewards and seconds of `reset` of one environment, as OSWorld's loops have it."""
    env = DesktopEnv(provider_name="docker", action_space="pyautogui", cache_dir=str(folder))
    found = []
    try:
        for _ in range(rounds):
            began = time.monotonic()
            seen = env.reset(task_config=copy.deepcopy(TASK))
            took_s = time.monotonic() - began
            assert seen["screenshot"][:4] == b"\x89PNG" and seen["instruction"] == TASK["instruction"]
            done, info = False, {}
            for action in actions:
                seen, _, done, info = env.step(action, pause=0.3)
            assert done and info == {"done": True}
            found.append((env.evaluate(), took_s))
    finally:
        env.close()
    return found


def test_its_environment_resets_acts_and_scores(desks: HostProcess, tmp_path: Path) -> None:
    """Right is 1, nothing is 0; each reset is a fresh clone, on which what was typed is gone."""
    assert [reward for reward, _ in played(tmp_path, RIGHT, rounds=2)] == [1, 1]
    assert [reward for reward, _ in played(tmp_path, ["DONE"])] == [0]


def test_several_at_once(desks: HostProcess, tmp_path: Path) -> None:
    """As its run_multienv has them, each with a desktop of its own."""
    scripts: list[list[str]] = [RIGHT, ["DONE"], RIGHT]
    folders = [tmp_path / str(number) for number in range(3)]
    with ThreadPoolExecutor(3) as pool:
        made: list[Any] = list(pool.map(played, folders, scripts))
    assert [rewards[0][0] for rewards in made] == [1, 0, 1]
