"""The data server over real desktops: our environment, and one of theirs at OSGym's endpoints."""

from __future__ import annotations

import io
import os
import signal
from pathlib import Path
from typing import Any

import pytest
from benchmarks.data_server import TASK, ByteTokenizer, RequestsEnv, answer
from PIL import Image
from tests.support.doc_examples import blocks, run_block
from tests.support.host_process import HostProcess, wait_until

from osgym_sdk.data_server import MultiTurnDataloader, OSGymEnv

pytestmark = pytest.mark.desktop

CLICK = "<|think_start|>Look.<|think_end|><|action_start|>click(300,300)<|action_end|>"
FINISH = "<|think_start|><|think_end|><|action_start|>finish()<|action_end|>"


@pytest.fixture(scope="module")
def desks(host: HostProcess) -> HostProcess:
    """The shared host: what is lost here are replicas, never the host."""
    return host


def loader_of(desks: HostProcess, env_class: Any, **more: Any) -> MultiTurnDataloader:
    config = {"server_url": desks.url, "tasks": [TASK], "max_step": 5, "timeout": 60, "settle": "fast"}
    return MultiTurnDataloader(
        env_class, [config] * 2, ByteTokenizer(), batch_size=2, max_prompt_length=512,
        max_response_length=128, tensors="np", **more,
    )  # fmt: skip


@pytest.mark.parametrize("env_class", [OSGymEnv, RequestsEnv], ids=["ours", "theirs"])
def test_episodes_from_batches_to_the_replay_buffer(desks: HostProcess, env_class: Any) -> None:
    """Two environments: click, finish, and again; the buffer has discounted returns of whole episodes."""
    with loader_of(desks, env_class) as loader:
        for _ in range(2):
            for said, shots in ((CLICK, 1), (FINISH, 2)):
                batch = next(loader)
                assert batch["input_ids"].shape == (2, 512) and batch["mask"].tolist() == [1.0, 1.0]
                images = batch["multi_modal_data"][0]["image"]
                assert [image.size for image in images] == [(1260, 700)] * shots
                text = ByteTokenizer().decode(batch["raw_prompt_ids"][0])
                assert text.startswith(TASK["instruction"]) and text.count("<|image_pad|>") == shots
                answer(loader, batch, ByteTokenizer(), [said] * 2)
        sample = loader.sample_from_buffer(4)
        assert sorted(sample["reward"].round(2).tolist()) == pytest.approx([0.9, 0.9, 1.0, 1.0])
        assert sample["responses"].shape == (4, 128) and sample["input_ids"].shape == (4, 640)
        assert loader.lost_episodes == 0 and loader.calculate_outcome_reward() == 1.0
    wait_until(lambda: not desks.replicas("leased"), 20, "all desktops given back")


def test_a_lost_desktop_is_replaced_and_in_no_sample(desks: HostProcess) -> None:
    """The other environment goes on, and the loader never waits for what is gone."""
    with loader_of(desks, OSGymEnv) as loader:
        batch = next(loader)
        os.kill(desks.replicas("leased")[0]["pid"], signal.SIGKILL)
        answer(loader, batch, ByteTokenizer(), [CLICK] * 2)
        answer(loader, next(loader), ByteTokenizer(), [FINISH] * 2)
        while len(loader.replay) < 3:
            answer(loader, next(loader), ByteTokenizer(), [FINISH] * 2)
        assert loader.lost_episodes == 1 and loader.replay.masked_episodes == 1
        assert all(item[1]["valid"] for item in loader.replay.ready_buffer)
        shot = loader.replay.ready_buffer[0][1]["prev_obs"].images[0]
        assert Image.open(io.BytesIO(shot)).convert("L").getextrema() != (0, 0)
    wait_until(lambda: not desks.replicas("leased"), 20, "all desktops given back")


def test_the_pages_example(desks: HostProcess, tmp_path: Path) -> None:
    """The Python of docs/data-server.md as it stands."""
    (block,) = blocks("docs/data-server.md")
    assert "reward" in run_block(block, tmp_path, OSGYM_HOSTS=desks.url)
