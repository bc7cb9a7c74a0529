"""SkyRL Gym's text environment on real desktops."""

from __future__ import annotations

import runpy
from pathlib import Path
from typing import Any

import pytest
from tests.support.host_process import HostProcess
from tests.support.trainer_rig import NOTE, kill_leased

pytest.importorskip("skyrl_gym", reason="missing: skyrl_gym")

import skyrl_gym

from osgym_sdk.integrations.skyrl import rows

pytestmark = [pytest.mark.desktop, pytest.mark.timeout(300)]

play = runpy.run_path(str(Path(__file__).parents[2] / "examples/trainers/skyrl_rollout.py"))["play"]
RIGHT = [f"type({NOTE}\n)", "click(nowhere)", "hotkey(ctrl,s)", "finish()"]


def test_a_row_is_played_and_scored(desks: HostProcess, tasks: str) -> None:
    """The example; each turn has a screenshot as a data URI."""
    seen: list[Any] = []

    def answer(conversation: list[Any]) -> str:
        seen.append(conversation[-1])
        return RIGHT[len(seen) - 1]

    step = play(rows(tasks)[0], answer, size=(640, 360))
    assert (step["reward"], step["done"], step["metadata"]["valid"]) == (1.0, True, True)
    assert all(one["content"][-1]["image_url"]["url"].startswith("data:image/") for one in seen)
    assert "Refused" in seen[2]["content"][0]["text"]


def test_out_of_turns_is_scored_as_it_stands(desks: HostProcess, tasks: str) -> None:
    """SkyRL says how many there are."""
    extras = {"extra_info": rows(tasks)[0]["extra_info"], "max_turns": 2}
    env = skyrl_gym.make("osgym", env_config={"sees": "elements"}, extras=extras)
    env.init(rows(tasks)[0]["prompt"])
    assert not env.step("wait()")["done"]
    last = env.step("wait()")
    assert last["done"] and last["reward"] == 0.0 and last["metadata"]["valid"]
    env.close()


def test_a_lost_desktop_is_marked(desks: HostProcess, tasks: str) -> None:
    """SkyRL has no absent reward: the mark is what tells it from a failed task."""
    env = skyrl_gym.make("osgym", env_config={}, extras={"extra_info": rows(tasks)[0]["extra_info"]})
    env.init(rows(tasks)[0]["prompt"])
    kill_leased(desks)
    last = env.step("type(x)")
    assert last["done"] and not last["metadata"]["valid"] and last["metadata"]["failure"]
    assert env.get_metrics()["valid"] == 0.0
    env.close()
