"""Gymnasium's environments over real desktops of the small image."""

from __future__ import annotations

import math
import os
import signal
from pathlib import Path
from typing import Any

import gymnasium
import numpy as np
import pytest
from gymnasium.utils.env_checker import check_env
from gymnasium.vector import AutoresetMode
from tests.support.host_process import HostProcess, wait_until

from osgym_sdk import EpisodeEnded
from osgym_sdk._transport.calls import HostCall
from osgym_sdk._transport.link import HostLink
from osgym_sdk.gym import OPS, DesktopVectorEnv

pytestmark = pytest.mark.desktop

TASK: dict[str, Any] = {
    "id": "word",
    "instruction": "Leave the word hello in a file.",
    "config": [{"type": "execute", "parameters": {"command": ["sh", "-c", "echo hello > /tmp/word"]}}],
    "evaluator": {
        "func": "exact_match",
        "result": {"type": "vm_command_line", "command": ["cat", "/tmp/word"]},
        "expected": {"type": "rule", "rules": {"expected": "hello\n"}},
    },
}
SMALL: dict[str, Any] = {"task": TASK, "size": (320, 180), "settle": "fast", "wait_s": 60.0}
TEXT: dict[str, Any] = {**SMALL, "action_form": "text"}

LOOK = {"op": "screenshot"}


@pytest.fixture(scope="module")
def desks(host: HostProcess) -> HostProcess:
    """The shared host: what is lost here are replicas, never the host."""
    return host


def kill(desks: HostProcess, episode_id: str) -> None:
    """End the replica of an episode as a crash would."""
    pids = [one["pid"] for one in desks.replicas("leased") if one["episode_id"] == episode_id]
    os.kill(pids[0], signal.SIGKILL)


def all_given_back(desks: HostProcess) -> None:
    wait_until(lambda: not desks.replicas("leased"), 20, "all desktops given back")


def test_gymnasiums_own_checker_finds_nothing(desks: HostProcess) -> None:
    """Made by its id; every warning of the checker would be an error here."""
    env = gymnasium.make("osgym/Desktop-v0", hosts=desks.url, **SMALL)
    try:
        check_env(env.unwrapped)
    finally:
        env.close()
    all_given_back(desks)


def test_wrappers_render_and_score(desks: HostProcess) -> None:
    """An episode under three of Gymnasium's wrappers: pixels, 0 until the end, then the score."""
    from gymnasium.wrappers import RecordEpisodeStatistics, RenderCollection, TransformReward

    made = gymnasium.make("osgym/Desktop-v0", hosts=desks.url, render_mode="rgb_array", **SMALL)
    env = RecordEpisodeStatistics(TransformReward(RenderCollection(made), lambda reward: 2 * reward))
    try:
        obs, info = env.reset(seed=7)
        assert obs.shape == (180, 320, 3) and obs.dtype == np.uint8 and obs.std() > 1
        assert (info["instruction"], info["task_id"]) == (TASK["instruction"], "word")
        action = env.action_space.sample()
        action["op"] = OPS.index("right_click")
        after, reward, terminated, truncated, info = env.step(action)
        assert (reward, terminated, truncated, info["valid"]) == (0.0, False, False, True)
        assert not np.array_equal(obs, after)  # a menu of the desktop, or of its panel
        action["op"] = OPS.index("finish")
        _, reward, terminated, truncated, info = env.step(action)
        assert (reward, terminated, truncated) == (2.0, True, False)
        assert info["episode"]["r"] == 2.0
        frames = env.render()
        assert len(frames) == 3 and np.array_equal(frames[1], after)
        with pytest.raises(EpisodeEnded):
            env.step(action)
    finally:
        env.close()
        env.close()
    all_given_back(desks)


def test_out_of_steps_is_truncated_and_refusals_are_told(desks: HostProcess) -> None:
    """What is no action does nothing; the desktop is scored as it stands at the end."""
    env = gymnasium.make("osgym/Desktop-v0", hosts=desks.url, max_steps=2, **TEXT)
    try:
        env.reset()
        first = env.step("I would rather click on the button")
        assert first[1:4] == (0.0, False, False) and first[4]["refused"]
        last = env.step(LOOK)
        assert last[1:4] == (1.0, False, True) and not last[4]["refused"]
    finally:
        env.close()


def test_a_lost_replica_is_no_reward_and_the_next_reset_has_another(desks: HostProcess) -> None:
    """NaN, not 0; the generation is new."""
    # Of a NaN in the very first step Gymnasium's checker warns.
    env = gymnasium.make("osgym/Desktop-v0", hosts=desks.url, disable_env_checker=True, **TEXT)
    try:
        first = env.reset()[1]["episode_id"]
        kill(desks, first)
        obs, reward, terminated, truncated, info = env.step(LOOK)
        assert math.isnan(reward) and (terminated, truncated) == (False, True)
        assert info["lost"] and not info["valid"] and info["failure_class"] == "infra"
        assert obs.std() > 1
        assert env.reset()[1]["episode_id"] != first
        assert env.step("finish()")[1] == 1.0
    finally:
        env.close()
    all_given_back(desks)


@pytest.mark.parametrize("mode", list(AutoresetMode))
def test_a_vector_with_every_autoreset_mode(desks: HostProcess, mode: AutoresetMode) -> None:
    """Three desktops: one ends, one is lost, one goes on; what follows is what Gymnasium says of the mode."""
    envs = gymnasium.make_vec(
        "osgym/Desktop-v0", num_envs=3, hosts=desks.url, autoreset_mode=mode.value, **TEXT
    )
    try:
        obs, infos = envs.reset(seed=1)
        assert obs.shape == (3, 180, 320, 3) and all(infos["_episode_id"])
        before = list(infos["episode_id"])
        kill(desks, before[1])
        obs, rewards, terms, truncs, infos = envs.step(["finish()", LOOK, LOOK])
        assert (rewards[0], rewards[2]) == (1.0, 0.0) and math.isnan(rewards[1])
        assert terms.tolist() == [True, False, False] and truncs.tolist() == [False, True, False]
        if mode is AutoresetMode.SAME_STEP:
            assert infos["final_info"]["lost"].tolist() == [False, True, False]
            assert infos["_final_obs"].tolist() == [True, True, False]
            assert infos["final_obs"][0].shape == (180, 320, 3)
            assert infos["instruction"][0] == TASK["instruction"]
        else:
            assert infos["lost"].tolist() == [False, True, False]
            if mode is AutoresetMode.DISABLED:
                with pytest.raises(ValueError, match="reset_mask"):
                    envs.step([LOOK] * 3)
                _, infos = envs.reset(options={"reset_mask": np.array([True, True, False])})
            else:
                _, rewards, terms, truncs, infos = envs.step(["finish()", "finish()", LOOK])
                assert not rewards.any() and not terms.any() and not truncs.any()
            assert infos["_instruction"].tolist() == [True, True, False]
        _, rewards, terms, _, _ = envs.step(["finish()"] * 3)
        assert rewards.tolist() == [1.0] * 3 and terms.all()
    finally:
        envs.close()
    all_given_back(desks)


def test_the_first_that_are_ready_are_received(desks: HostProcess) -> None:
    """One that waits for long delays neither of the others, nor the end, which gives all three back."""
    envs = DesktopVectorEnv(3, hosts=desks.url, **TEXT)
    try:
        envs.reset()
        envs.send([{"op": "wait", "duration_ms": 20_000}, LOOK, LOOK])
        with pytest.raises(ValueError, match="has not been read"):
            envs.send([LOOK], [0])
        for _ in range(3):
            obs, rewards, _, _, infos = envs.recv(2)
            assert sorted(infos["env_id"]) == [1, 2] and obs.shape[0] == len(rewards) == 2
            envs.send([LOOK, LOOK], infos["env_id"])
        assert envs.recv(2)[4]["step"].tolist() == [4, 4]
        assert envs.under_way == 1 and envs.recv(1, timeout_s=0)[0].shape[0] == 0
    finally:
        envs.close()
    all_given_back(desks)


def test_steps_of_a_tick_go_out_in_one_request(desks: HostProcess, monkeypatch: pytest.MonkeyPatch) -> None:
    """Of one host, whatever they are; one that is refused, and one that is lost, are those alone."""
    sent: list[tuple[str, int]] = []
    stream, call = HostLink.stream, HostLink.call

    def streamed(self: HostLink, method: str, path: str, body: Any = None) -> Any:
        sent.append((path, len(body.steps)))
        return stream(self, method, path, body)

    async def called(self: HostLink, one: HostCall) -> Any:
        if one.path.endswith("/step"):
            sent.append((one.path, 1))
        return await call(self, one)

    monkeypatch.setattr(HostLink, "stream", streamed)
    monkeypatch.setattr(HostLink, "call", called)
    envs = DesktopVectorEnv(3, hosts=desks.url, on_invalid="end", **TEXT)
    try:
        envs.reset()
        for _ in range(3):
            infos = envs.step([LOOK] * 3)[4]
        envs.send([LOOK, LOOK], [0, 2])
        assert sorted(envs.recv(2)[4]["env_id"]) == [0, 2]
        assert sent == [("/v1/steps", 3)] * 3 + [("/v1/steps", 2)]
        kill(desks, infos["episode_id"][1])
        _, _, terminated, truncated, infos = envs.step([LOOK, LOOK, {"op": "click", "x": -5, "y": 5}])
        assert infos["lost"].tolist() == [False, True, False]
        assert (terminated.tolist(), truncated.tolist()) == ([False, False, True], [False, True, False])
        assert sent[4] == ("/v1/steps", 3)
    finally:
        envs.close()
    all_given_back(desks)


def test_a_random_agent_in_batches_of_the_space(desks: HostProcess) -> None:
    """Samples of the batched space act; rewards are numbers or NaN where nothing can be learned."""
    envs = DesktopVectorEnv(2, hosts=desks.url, max_steps=2, **SMALL)
    try:
        envs.action_space.seed(3)
        envs.reset(seed=3)
        for _ in range(3):
            obs, rewards, _, _, infos = envs.step(envs.action_space.sample())
            assert obs in envs.observation_space
            assert np.isfinite(rewards).all() and infos["valid"].all()
    finally:
        envs.close()


def test_the_pages_example(desks: HostProcess, tmp_path: Path) -> None:
    """The Python of docs/gymnasium.md as it stands; its loop has at most 15 lines."""
    from tests.support.doc_examples import blocks, run_block

    first, *_ = blocks("docs/gymnasium.md")
    assert len([line for line in first.splitlines() if line.strip()]) <= 15
    for block in blocks("docs/gymnasium.md"):
        run_block(block, tmp_path, OSGYM_HOSTS=desks.url)
