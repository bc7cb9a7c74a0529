"""verl's own worker plays a batch on real desktops: configuration, tokens, masks, rewards, advantages."""

from __future__ import annotations

import json
import os
import runpy
from collections.abc import Iterator
from pathlib import Path
from typing import Any

os.environ.setdefault("HF_HUB_OFFLINE", "1")

import pytest
from tests.support.host_process import HostProcess
from tests.support.trainer_rig import NOTE, TASK, kill_leased

pytest.importorskip("verl", reason="missing: verl")
pytest.importorskip("torch", reason="missing: torch")
pytest.importorskip("torchvision", reason="missing: torchvision")

import numpy as np
import pyarrow.parquet as pq
import torch
import verl
from hydra import compose, initialize_config_dir
from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers
from transformers import (
    PreTrainedTokenizerFast,
    Qwen2_5_VLConfig,
    Qwen2_5_VLProcessor,
    Qwen2VLImageProcessor,
    Qwen2VLVideoProcessor,
    Qwen3Config,
)
from verl.experimental.agent_loop.agent_loop import AgentLoopWorker
from verl.protocol import DataProto
from verl.trainer.ppo.core_algos import compute_grpo_outcome_advantage
from verl.workers.rollout.replica import TokenOutput

from osgym_sdk import ConfigError
from osgym_sdk.integrations.verl import rows

pytestmark = [pytest.mark.desktop, pytest.mark.timeout(600)]

write = runpy.run_path(str(Path(__file__).parents[2] / "examples/trainers/verl_rollouts.py"))["write"]
VISION = ["<|vision_start|>", "<|vision_end|>", "<|image_pad|>", "<|video_pad|>"]
SPECIAL = ["<|endoftext|>", "<|im_start|>", "<|im_end|>", *VISION]
TEMPLATE = (
    "{% for message in messages %}<|im_start|>{{ message.role }}\n"
    "{% if message.content is string %}{{ message.content }}{% else %}{% for part in message.content %}"
    "{% if part.type == 'image' %}<|vision_start|><|image_pad|><|vision_end|>"
    "{% else %}{{ part.text }}{% endif %}"
    "{% endfor %}{% endif %}<|im_end|>\n{% endfor %}"
    "{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}"
)
TINY = {"hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": 2, "num_key_value_heads": 2,
        "intermediate_size": 64}  # fmt: skip


@pytest.fixture(scope="module")
def tokenizer() -> PreTrainedTokenizerFast:
    """Of bytes, with the words of models that have eyes."""
    core = Tokenizer(models.BPE())
    core.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    core.decoder = decoders.ByteLevel()
    learn = trainers.BpeTrainer(
        vocab_size=600, special_tokens=SPECIAL, initial_alphabet=pre_tokenizers.ByteLevel.alphabet()
    )
    core.train_from_iterator([json.dumps(TASK)] * 4, learn)
    made = PreTrainedTokenizerFast(
        tokenizer_object=core, eos_token="<|im_end|>", pad_token="<|endoftext|>", padding_side="left"
    )
    made.chat_template = TEMPLATE
    return made


@pytest.fixture(scope="module")
def model(tokenizer: PreTrainedTokenizerFast, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with a configuration and a tokenizer: all that a rollout needs of a model here."""
    folder = tmp_path_factory.mktemp("model")
    tokenizer.save_pretrained(folder)
    config = Qwen3Config(vocab_size=len(tokenizer), head_dim=16, **TINY)
    config.architectures = ["Qwen3ForCausalLM"]
    config.save_pretrained(folder)
    return folder


@pytest.fixture(scope="module")
def seeing_model(tokenizer: PreTrainedTokenizerFast, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The same of a vision-language model, whose processor cuts images into patches."""
    folder = tmp_path_factory.mktemp("seeing")
    processor = Qwen2_5_VLProcessor(
        Qwen2VLImageProcessor(), tokenizer, Qwen2VLVideoProcessor(), chat_template=TEMPLATE
    )
    processor.save_pretrained(folder)
    tokens = dict(zip(("vision_start", "vision_end", "image", "video"), VISION, strict=True))
    ids = {f"{name}_token_id": tokenizer.convert_tokens_to_ids(token) for name, token in tokens.items()}
    config = Qwen2_5_VLConfig(text_config={"vocab_size": len(tokenizer), **TINY}, **ids)
    config.architectures = ["Qwen2_5_VLForConditionalGeneration"]
    config.save_pretrained(folder)
    return folder


class Scripted:
    """The model's server: each conversation goes through a script of its own, with log-probabilities."""

    def __init__(self, tokenizer: Any, scripts: list[Iterator[str]]) -> None:
        self.tokenizer, self.scripts = tokenizer, scripts
        self.own: dict[str, Iterator[str]] = {}
        self.seen: list[str] = []
        self.images: list[int] = []

    async def generate(self, request_id: str, *, prompt_ids: list[int], **given: Any) -> TokenOutput:
        if request_id not in self.own:
            self.own[request_id] = self.scripts.pop(0)
        self.seen.append(self.tokenizer.decode(prompt_ids))
        self.images.append(len(given.get("image_data") or []))
        ids = self.tokenizer(f"{next(self.own[request_id])}<|im_end|>")["input_ids"]
        return TokenOutput(token_ids=ids, log_probs=[-0.5] * len(ids))


def worker(
    model: Path, folder: Path, tasks: str, scripts: list[Iterator[str]], sees: str = "sees: elements"
) -> tuple[AgentLoopWorker, Any]:
    """verl's worker with its own configuration, what the example says on top."""
    with initialize_config_dir(str(Path(verl.__file__).parent / "trainer/config"), version_base=None):
        config = compose(
            "ppo_trainer",
            [
                *write(tasks, folder),
                f"actor_rollout_ref.model.path={model}",
                "actor_rollout_ref.rollout.name=vllm",
                "actor_rollout_ref.rollout.prompt_length=4096",
                "actor_rollout_ref.rollout.response_length=8192",
                "actor_rollout_ref.rollout.calculate_log_probs=True",
            ],
        )
    loops = folder / "loops.yaml"
    loops.write_text(loops.read_text().replace("size: [1280, 720]", f"{sees}\n  max_steps: 4"))
    made = AgentLoopWorker(config, None)
    made.llm_client = Scripted(made.tokenizer, scripts)
    return made, made.llm_client


def batch(folder: Path, number: int) -> DataProto:
    """Rollouts of the first row, as verl's data loader gives them."""
    [row] = pq.read_table(folder / "train.parquet").to_pylist()
    columns = {"raw_prompt": row["prompt"], "agent_name": row["agent_name"], "extra_info": row["extra_info"]}
    held = {}
    for name, value in columns.items():
        held[name] = np.empty(number, dtype=object)
        held[name][:] = [value] * number
    return DataProto(non_tensor_batch={**held, "index": np.zeros(number, dtype=int)}, meta_info={})


RIGHT = [f"type({NOTE}\n)", "click(nowhere)", "hotkey(ctrl,s)", "finish()"]


async def test_a_group_is_played_and_scored(
    desks: HostProcess, tasks: str, model: Path, tmp_path: Path
) -> None:
    """One does the task, one does not; what the model said counts, what it saw does not."""
    made, server = worker(model, tmp_path, tasks, [iter(RIGHT), iter(["wait()", "finish()"])])
    played = await made.generate_sequences(batch(tmp_path, 2))
    rewards = played.batch["rm_scores"].sum(dim=1).tolist()
    assert sorted(rewards) == [0.0, 1.0]
    assert list(played.non_tensor_batch["valid"]) == [True, True]
    assert sorted(played.non_tensor_batch["steps"]) == [2, 4]
    right = rewards.index(1.0)
    mask = played.batch["response_mask"][right].bool()
    said = made.tokenizer.decode(played.batch["responses"][right][mask], skip_special_tokens=True)
    assert said == "".join(RIGHT)
    assert torch.equal(played.batch["rollout_log_probs"][right][mask], torch.full((int(mask.sum()),), -0.5))
    assert any("Refused" in seen for seen in server.seen) and all("Mousepad" in seen for seen in server.seen)
    advantages, _ = compute_grpo_outcome_advantage(
        played.batch["rm_scores"], played.batch["response_mask"], np.array(["a", "a"], dtype=object)
    )
    means = [advantages[row][played.batch["response_mask"][row].bool()].mean().item() for row in range(2)]
    assert means[right] > 0 > means[1 - right]


async def test_a_lost_rollout_is_played_again(
    desks: HostProcess, tasks: str, model: Path, tmp_path: Path
) -> None:
    """On a fresh desktop; one that is lost each time is marked, and teaches nothing."""

    def lost() -> Iterator[str]:
        yield "wait()"
        kill_leased(desks)
        while True:
            yield "wait()"

    made, _ = worker(model, tmp_path, tasks, [lost(), iter(RIGHT)])
    again = await made.generate_sequences(batch(tmp_path, 1))
    assert again.batch["rm_scores"].sum().item() == 1.0 and list(again.non_tensor_batch["valid"]) == [True]
    made, _ = worker(model, tmp_path, tasks, [lost(), lost()])
    gone = await made.generate_sequences(batch(tmp_path, 1))
    assert gone.batch["rm_scores"].sum().item() == 0.0 and gone.batch["response_mask"].sum().item() == 0
    assert list(gone.non_tensor_batch["valid"]) == [False] and gone.non_tensor_batch["failure"][0]


async def test_screenshots_are_images(
    desks: HostProcess, tasks: str, seeing_model: Path, tmp_path: Path
) -> None:
    """Each turn has one more, cut into as many patches as there are tokens for it; points are its pixels."""
    sees = "sees: image\n  size: [448, 252]"
    made, server = worker(seeing_model, tmp_path, tasks, [iter(RIGHT)], sees)
    played = await made.generate_sequences(batch(tmp_path, 1))
    assert played.batch["rm_scores"].sum().item() == 1.0
    assert server.images == [1, 2, 3, 4]
    [inputs] = played.non_tensor_batch["multi_modal_inputs"]
    grid = inputs["image_grid_thw"]
    assert grid.tolist() == [[1, 18, 32]] * 4
    pads = played.batch["input_ids"][0] == made.tokenizer.convert_tokens_to_ids("<|image_pad|>")
    assert int(pads.sum()) == int(grid.prod(dim=1).sum()) // 4
    assert not (played.batch["response_mask"][0].bool() & pads[-8192:]).any()


async def test_wrong_rows_and_arguments_are_named(tasks: str, model: Path, tmp_path: Path) -> None:
    """Before anything is leased."""
    made, _ = worker(model, tmp_path, tasks, [])
    given = batch(tmp_path, 1)
    given.non_tensor_batch["extra_info"][0] = {}
    with pytest.raises(ConfigError, match="extra_info"):
        await made.generate_sequences(given)
    assert rows([TASK])[0]["agent_name"] == "osgym"
