"""verifiers plays rollouts on real desktops, with a model behind a real HTTP API."""

from __future__ import annotations

import asyncio
import runpy
from collections import deque
from pathlib import Path
from typing import Any

import pytest
from tests.support.host_process import HostProcess
from tests.support.model_api import Asked, ModelApi, serving_models, status
from tests.support.trainer_rig import NOTE, kill_leased

pytest.importorskip("verifiers", reason="missing: verifiers")

from verifiers.v1.utils.loaders import environment_class, taskset_class

from osgym_sdk.integrations.verifiers import DesktopEnv, DesktopTaskset

pytestmark = [pytest.mark.desktop, pytest.mark.timeout(600)]

rollouts = runpy.run_path(str(Path(__file__).parents[2] / "examples/trainers/verifiers_rollouts.py"))[
    "rollouts"
]
RIGHT = [f"type({NOTE}\n)", "click(nowhere)", "hotkey(ctrl,s)", "finish()"]


def test_it_is_found_by_its_name() -> None:
    """``--env.taskset.id osgym-verifiers``."""
    assert taskset_class("osgym-verifiers") is DesktopTaskset
    assert environment_class("osgym-verifiers") is DesktopEnv


def test_a_group_is_played_and_scored(desks: HostProcess, tasks: str) -> None:
    """The example: what is right earns 1, what is wrong 0; the model sees a screenshot with each turn."""
    first: dict[str, bool] = {}

    def say(asked: Asked) -> str:
        if not first:
            first["asked"] = True
            return "finish()"
        return RIGHT[min(asked.number, 3)]

    api = ModelApi(say)
    with serving_models(api) as url:
        episodes = asyncio.run(rollouts(tasks, f"{url}/v1", "m", size=(960, 540)))
    assert [episode.errors for episode in episodes] == [[], []]
    assert sorted(episode.traces[0].reward for episode in episodes) == [0.0, 1.0]
    assert sorted(episode.traces[0].num_turns for episode in episodes) == [1, 4]
    longest = max((given for _, _, given in api.requests), key=lambda given: len(given["messages"]))
    assert "Refused" in str(longest["messages"][-3]["content"])[:400]
    assert str(longest).count("image_url'") >= 4


def test_a_lost_desktop_is_played_again(desks: HostProcess, tasks: str) -> None:
    """By the framework, on a fresh one; the rollout that was lost has no reward."""
    lost: list[bool] = []

    def say(asked: Asked) -> str:
        if not lost:
            lost.append(True)
            kill_leased(desks)
        return RIGHT[min(asked.number, 3)]

    with serving_models(ModelApi(say)) as url:
        [episode] = asyncio.run(rollouts(tasks, f"{url}/v1", "m", 1))
    assert episode.ok and episode.traces[0].reward == 1.0


def test_a_failing_model_server_is_no_reward(desks: HostProcess, tasks: str) -> None:
    """Nothing is known of the model then: the episode has the server's error."""
    api = ModelApi(lambda asked: "finish()", faults=deque([status(400)] * 20))
    with serving_models(api) as url:
        [episode] = asyncio.run(rollouts(tasks, f"{url}/v1", "m", 1))
    assert not episode.ok and all("score" not in trace.rewards for trace in episode.traces)


def test_without_retries_a_lost_desktop_is_an_error_and_no_reward(desks: HostProcess, tasks: str) -> None:
    """Never 0: nothing is recorded."""

    def say(asked: Asked) -> str:
        kill_leased(desks)
        return "type(x)"

    with serving_models(ModelApi(say)) as url:
        [episode] = asyncio.run(rollouts(tasks, f"{url}/v1", "m", 1, retries={"max_retries": 0}))
    errors: list[Any] = list(episode.errors)
    assert not episode.ok and errors[0].type == "SandboxError"
    assert all("score" not in trace.rewards for trace in episode.traces)
