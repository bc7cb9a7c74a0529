"""The data server's pure parts: history, replay buffer, rows; and workers over environments."""

from __future__ import annotations

import base64
import io
import pickle
import threading
from typing import Any

import numpy as np
import pytest
from benchmarks.data_server import ByteTokenizer, answer
from hypothesis import given
from hypothesis import strategies as st
from PIL import Image

from osgym_sdk import ConfigError
from osgym_sdk.data_server import MultiTurnDataloader, OSGymEnv, ReplayBuffer, collate
from osgym_sdk.data_server.batches import RowMaker, padded, positions
from osgym_sdk.data_server.environment import cleaned
from osgym_sdk.data_server.history import IMAGE, History, split_prompt


def jpeg(colour: int = 0) -> bytes:
    """A small picture."""
    out = io.BytesIO()
    Image.new("RGB", (8, 8), (colour, 0, 0)).save(out, "JPEG")
    return out.getvalue()


parts = st.lists(st.binary(max_size=20) | st.text("abc<>|_", max_size=10), max_size=8)


@given(st.text("abc", max_size=5), parts, st.integers(0, 8), st.integers(0, 3))
def test_a_prompt_is_the_text_of_osgyms_client(head: str, items: list[Any], length: int, most: int) -> None:
    """Also after the history has grown; and it is taken apart again into text and pictures."""
    history = History(head, items[:length])
    prompt = history.prompt(most)
    images = [item for item in items[:length] if isinstance(item, bytes)]
    kept = images[-most:] if most else images
    skipped = len(images) - len(kept)
    text = head
    for item in items[:length]:
        if isinstance(item, str):
            text += item
        elif skipped:
            skipped -= 1
        else:
            text += f"<|vision_start|>{base64.b64encode(item).decode()}<|vision_end|>"
    history.parts += items[length:]
    assert str(prompt) == text
    assert prompt.images == kept
    assert split_prompt(prompt) == (prompt.text(), kept)
    if not any(isinstance(item, str) for item in items):
        assert split_prompt(text) == (prompt.text(IMAGE), kept)


def test_memory_grows_with_the_steps_not_with_their_square() -> None:
    """Forty steps of 50 kB, all prompts kept and pickled together: theirs would have forty megabytes."""
    history = History("do it")
    prompts = []
    for step in range(40):
        history.parts += [bytes([step]) * 50_000, "click"]
        prompts.append(history.prompt())
    assert len(pickle.dumps(prompts)) < 40 * 55_000


def item(uid: str, reward: float, done: bool = False, **more: Any) -> Any:
    """A step as an environment gives it."""
    ret = {"prev_obs": "a", "action": "b", "obs": "c", "reward": reward, "done": done, "is_init": False}
    return 0, {**ret, **more}, {"uid": uid}


@given(st.lists(st.floats(-1, 1), min_size=1, max_size=9), st.floats(0, 1))
def test_returns_are_discounted(rewards: list[float], gamma: float) -> None:
    """G = r + gamma G'; nothing can be sampled before the end."""
    buffer = ReplayBuffer(100, gamma)
    for index, reward in enumerate(rewards):
        assert len(buffer) == 0
        buffer.add(item("u", reward, index == len(rewards) - 1))
    expected = [sum(gamma**k * r for k, r in enumerate(rewards[i:])) for i in range(len(rewards))]
    assert [one[1]["reward"] for one in buffer.ready_buffer] == pytest.approx(expected)
    below, above = buffer.get_balance_stats()
    assert below + above == len(buffer) and not buffer.episode_buffer


def test_only_outcomes_are_kept_the_oldest_go_and_the_lost_never_come() -> None:
    """As theirs; an episode without a reward is in no sample."""
    buffer = ReplayBuffer(3, 0.9, only_keep_outcome=True)
    for number in range(5):
        buffer.add(item(f"u{number}", 0.0))
        buffer.add(item(f"u{number}", float(number), True))
    assert sorted(one[1]["reward"] for one in buffer.sample(10)) == [2.0, 3.0, 4.0]
    assert len(buffer.sample(2)) == 2
    buffer.add(item("lost", 0.0, True, valid=False))
    buffer.add(item("gone", 0.0))
    buffer.forget("gone")
    assert len(buffer) == 3 and buffer.masked_episodes == 2 and not buffer.episode_buffer
    assert [buffer.should_keep(9, 1, r) for r in (0.0, 1.0)] == [False, True]
    buffer.clear()
    assert len(buffer) == 0 and buffer.sample(1) == []


def test_rows_are_cut_and_filled_as_theirs() -> None:
    """Prompts on the left, answers on the right; positions count what is real."""
    row, mask = padded([1, 2, 3], 5, 9, left=True)
    assert row.tolist() == [9, 9, 1, 2, 3] and mask.tolist() == [0, 0, 1, 1, 1]
    assert positions(mask).tolist() == [0, 0, 0, 1, 2]
    assert padded([1, 2, 3], 2, 9, left=True)[0].tolist() == [2, 3]
    assert padded([1, 2, 3], 2, 9, left=False)[0].tolist() == [1, 2]
    maker = RowMaker(ByteTokenizer(), None, True, 64, 8)
    state = {"prev_obs": History("ab", [jpeg()]).prompt(), "action": "go", "reward": 0.5}
    made = maker.row(state, 3, {"uid": "u"}, response=True)
    batch = collate([made, maker.masked_row(made)])
    assert batch["input_ids"].shape == batch["attention_mask"].shape == batch["position_ids"].shape == (2, 72)
    assert batch["input_ids"].dtype == np.int64 and batch["reward"].tolist() == [0.5, 0.0]
    assert batch["mask"].tolist() == [1.0, 0.0] and batch["worker_id"].tolist() == [3, -1]
    assert batch["multi_modal_data"][0]["image"][0].size == (8, 8)
    assert ByteTokenizer().decode(batch["input_ids"][0][:64][-len(IMAGE) - 2 :]) == "ab" + IMAGE
    with pytest.raises(ConfigError, match="position_ids"):
        RowMaker(ByteTokenizer(), object(), True, 64, 8)


def test_what_a_model_said_is_kept_between_its_marks() -> None:
    """As their client writes it into the prompt; what has no marks is an action."""
    said = "<|think_start|> hm <|think_end|>\n<|action_start|>wait()<|action_end|><eos>"
    assert cleaned(said) == "<|think_start|>hm<|think_end|><|action_start|>wait()<|action_end|>"
    assert cleaned("finish()") == "<|think_start|><|think_end|><|action_start|>finish()<|action_end|>"


class Counter:
    """A plain environment, as other people write them: no coroutines, text as observations."""

    made = 0
    hang = threading.Event()

    def __init__(self, config: dict[str, Any], worker_id: int) -> None:
        Counter.made += 1
        self.config, self.count, self.episode = config, 0, 0

    def reset(self) -> Any:
        self.count, self.episode = 0, self.episode + 1
        if self.config.get("broken"):
            raise OSError("no machine")
        self.uid = f"{self.config['name']}-{id(self)}-{self.episode}"
        return {"obs": "start", "done": False, "is_init": True}, {"uid": self.uid}

    def step(self, action: str) -> Any:
        self.count += 1
        fault = self.config.get("fault")
        if fault and self.count == 2 and Counter.made <= self.config["most"]:
            if fault == "hang":
                Counter.hang.wait()
            raise RuntimeError("crashed")
        done = self.count == 3
        ret = {"prev_obs": "p", "action": action, "obs": "o", "reward": float(done), "done": done}
        return {**ret, "is_init": False}, {"uid": self.uid}


def played(loader: MultiTurnDataloader, batches: int) -> list[Any]:
    """Answers so many batches; gives their masks."""
    masks = []
    for _ in range(batches):
        batch = next(loader)
        masks.append(batch["mask"].tolist())
        answer(loader, batch, ByteTokenizer(), ["go"] * len(batch["mask"]))
    return masks


@pytest.mark.parametrize("fault", ["crash", "hang"])
def test_an_environment_that_dies_is_replaced(fault: str) -> None:
    """One that raises and one that never returns: the other goes on, and no sample has what was lost."""
    Counter.made = 0
    Counter.hang.clear()
    configs = [{"name": "good"}, {"name": "bad", "fault": fault, "most": 2}]
    try:
        with MultiTurnDataloader(
            Counter, configs, ByteTokenizer(), is_multi_modal=False, batch_size=1, tensors="np",
            step_timeout_s=2.0 if fault == "hang" else 60.0, seed=1,
        ) as loader:  # fmt: skip
            uids = set()
            while not (loader.lost_episodes and any(uid.startswith("bad") for uid in uids)):
                played(loader, 1)
                if len(loader.replay) < 3:
                    continue
                sample = loader.sample_from_buffer(3)
                uids |= {meta["uid"] for meta in sample["meta_info"]}
                assert set(sample["reward"].round(2)) <= {np.float32(0.81), np.float32(0.9), np.float32(1.0)}
            assert loader.lost_episodes == 1 and Counter.made == 3
            assert loader.running_outcome_reward() > 0 and loader.calculate_outcome_reward() == 1.0
    finally:
        Counter.hang.set()


def test_batches_are_filled_up_where_environments_are_dead(monkeypatch: pytest.MonkeyPatch) -> None:
    """With rows of mask 0, which are not answered; when the last is dead its error is raised."""
    monkeypatch.setattr("osgym_sdk.data_server.workers._PAUSE_S", 0.001)
    configs = [{"name": "good"}, {"name": "bad", "broken": True}]
    with MultiTurnDataloader(
        Counter, configs, ByteTokenizer(), is_multi_modal=False, batch_size=2, tensors="np"
    ) as loader:
        assert played(loader, 3) == [[1.0, 0.0]] * 3
        stale = next(loader)
        answer(loader, stale, ByteTokenizer(), ["go"] * 2)
        answer(loader, stale, ByteTokenizer(), ["go"] * 2)
        assert loader.stale_answers == 1
        with pytest.raises(ConfigError, match="answer more batches"):
            loader.sample_from_buffer(100)
    with pytest.raises(StopIteration):
        next(loader)
    with (
        MultiTurnDataloader(Counter, configs[1:], ByteTokenizer(), batch_size=1) as dead,
        pytest.raises(OSError, match="no machine"),
    ):
        next(dead)


def test_wrong_arguments_are_config_errors() -> None:
    """A batch larger than the environments, no tasks."""
    with pytest.raises(ConfigError, match="batch_size"):
        MultiTurnDataloader(Counter, [{"name": "a"}], ByteTokenizer())
    with pytest.raises(ConfigError, match="json_dir"):
        OSGymEnv({"server_url": "http://127.0.0.1:1"})
