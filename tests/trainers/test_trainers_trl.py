"""TRL takes a step of GRPO on real desktops: a tiny model whose words are given and whose weights learn."""

from __future__ import annotations

import json
import os
import runpy
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

os.environ.setdefault("TRL_EXPERIMENTAL_SILENCE", "1")
os.environ.setdefault("HF_HUB_OFFLINE", "1")

import pytest
from tests.support.host_process import HostProcess
from tests.support.trainer_rig import NOTE, TASK, kill_leased

pytest.importorskip("trl", reason="missing: trl")
pytest.importorskip("torch", reason="missing: torch")

import torch
import trl
from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers
from transformers import PreTrainedTokenizerFast, Qwen3Config, Qwen3ForCausalLM
from transformers.utils import get_json_schema

from osgym_sdk import ConfigError, ObserveOptions
from osgym_sdk.integrations.trl import DesktopEnvironment, rows

pytestmark = [pytest.mark.desktop, pytest.mark.timeout(600)]

train = runpy.run_path(str(Path(__file__).parents[2] / "examples/trainers/trl_grpo.py"))["train"]
SPECIAL = ["<|endoftext|>", "<|im_start|>", "<|im_end|>"]


@pytest.fixture(scope="module")
def tokenizer() -> PreTrainedTokenizerFast:
    """Of bytes, learned from the tools' own words; its chat template is one that TRL ships."""
    core = Tokenizer(models.BPE())
    core.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    core.decoder = decoders.ByteLevel()
    learn = trainers.BpeTrainer(
        vocab_size=2000, special_tokens=SPECIAL, initial_alphabet=pre_tokenizers.ByteLevel.alphabet()
    )
    tools = [getattr(DesktopEnvironment, name) for name in ("click", "drag", "scroll", "type_text", "finish")]
    core.train_from_iterator([json.dumps(get_json_schema(tool)) for tool in tools] * 4, learn)
    made = PreTrainedTokenizerFast(
        tokenizer_object=core, eos_token="<|im_end|>", pad_token="<|endoftext|>", padding_side="left"
    )
    template = Path(trl.__file__).parent / "chat_templates/qwen3_instruct_2507.jinja"
    made.chat_template = template.read_text()
    return made


def call(name: str, **arguments: Any) -> str:
    """A tool call in the template's words."""
    return f"<tool_call>\n{json.dumps({'name': name, 'arguments': arguments})}\n</tool_call>"


class Scripted(Qwen3ForCausalLM):
    """A model of two small layers that says what it is told to; what it learns is real."""

    script: Iterator[list[str]]
    tokenizer: PreTrainedTokenizerFast

    def generate(self, *args: Any, **kwargs: Any) -> Any:
        input_ids = kwargs.get("input_ids", args[0] if args else None)
        said = next(self.script)
        assert len(said) == len(input_ids)
        ids = [self.tokenizer(f"{text}<|im_end|>")["input_ids"] for text in said]
        longest = max(map(len, ids))
        pad = self.tokenizer.pad_token_id
        rest = torch.tensor([one + [pad] * (longest - len(one)) for one in ids])
        return torch.cat([input_ids, rest.to(input_ids.device)], dim=1)


@pytest.fixture
def model(tokenizer: PreTrainedTokenizerFast) -> Scripted:
    torch.manual_seed(0)
    config = Qwen3Config(
        vocab_size=len(tokenizer), hidden_size=32, intermediate_size=64, num_hidden_layers=2,
        num_attention_heads=2, num_key_value_heads=2, head_dim=16, max_position_embeddings=16384,
        eos_token_id=tokenizer.eos_token_id, pad_token_id=tokenizer.pad_token_id,
    )  # fmt: skip
    made = Scripted(config)
    made.tokenizer = tokenizer
    return made


SETTINGS: dict[str, Any] = {
    "max_steps": 1, "report_to": "none", "save_strategy": "no", "use_cpu": True, "bf16": False,
    "logging_steps": 1, "learning_rate": 1e-2, "beta": 0.0, "max_tool_calling_iterations": 4,
}  # fmt: skip


def weights(model: Any) -> torch.Tensor:
    return torch.cat([one.detach().flatten() for one in model.parameters()]).clone()


def test_a_step_of_grpo(
    desks: HostProcess, tasks: str, model: Scripted, tokenizer: Any, tmp_path: Path
) -> None:
    """The example: one of the group does the task, the other does not; the weights move."""
    model.script = iter(
        [
            [call("type_text", text=f"{NOTE}\n"), call("look")],
            [call("press_keys", keys=["ctrl", "s"]), call("finish")],
            [call("finish"), "Done."],
            ["Done."],
        ]
    )
    before = weights(model)
    trainer = train(model, tasks, tokenizer, output_dir=str(tmp_path / "out"), **SETTINGS)
    log = trainer.state.log_history[0]
    assert log["reward"] == 0.5, log
    assert log["tools/failure_frequency"] == 0.0 and log["tools/call_frequency"] == 2.5
    assert not torch.equal(before, weights(model))


def test_a_lost_desktop_is_left_out_of_the_group(
    desks: HostProcess, tasks: str, model: Scripted, tokenizer: Any, tmp_path: Path
) -> None:
    """Its reward is None: with one of two left the baseline is its own, and nothing is learned of either."""

    def script() -> Iterator[list[str]]:
        yield [call("look"), call("look")]
        os.kill(desks.replicas("leased")[0]["pid"], 9)
        yield [call("type_text", text="x"), call("type_text", text="x")]
        while True:
            yield ["Done."] * 2

    model.script = script()
    before = weights(model)
    trainer = train(model, tasks, tokenizer, output_dir=str(tmp_path / "out"), **SETTINGS)
    log = trainer.state.log_history[0]
    assert log["reward"] == 0.0, log
    assert torch.equal(before, weights(model))


def test_tools_have_schemas_and_a_desktop(desks: HostProcess) -> None:
    """Every public method is a tool; each does what it says."""
    env = DesktopEnvironment(observe=ObserveOptions(size=(960, 540)), sees="image")
    names = [name for name in dir(DesktopEnvironment) if not name.startswith("_")]
    for name in set(names) - {"reset", "get_reward"}:
        assert get_json_schema(getattr(env, name))["function"]["description"]
    [row] = rows([TASK])
    assert env.reset(**row) is None and env.reset(task=TASK) == TASK["instruction"]
    image, words = env.click(400, 300)
    assert image["image"].size == (960, 540) and words["text"] == "Done."
    assert env._desktop.observation.actions[0]["x"] == 800
    env.drag(10, 500, 40, 520)
    env.scroll(400, 300, 2)
    env.type_text(f"{NOTE}\n")
    env.press_keys(["ctrl", "s"])
    assert "ended" in env.finish()
    assert env.get_reward() == 1.0
    with pytest.raises(Exception, match="ended"):
        env.look()


def test_resets_do_not_wait_for_each_other(desks: HostProcess) -> None:
    """Two that begin at once are set up at once."""
    envs = [DesktopEnvironment() for _ in range(2)]
    threads = [threading.Thread(target=env.reset, args=(TASK,)) for env in envs]
    for thread in threads:
        thread.start()
        thread.join(2)
        assert not thread.is_alive()
    assert all("note.txt" in env.look() for env in envs)
    assert [env.get_reward() for env in envs] == [0.0, 0.0]


def test_lost_and_wrong(desks: HostProcess) -> None:
    """A loss is no reward; a mistake is told."""
    env = DesktopEnvironment()
    env.reset(TASK)
    env.look()
    kill_leased(desks)
    assert "lost" in env.type_text("x")
    assert env.get_reward() is None
    with pytest.raises(ConfigError, match="not JSON"):
        env.reset("{wrong")
    with pytest.raises(ConfigError, match="sees"):
        DesktopEnvironment(sees="dreams")
    with pytest.raises(ConfigError, match="max_step'"):
        DesktopEnvironment(max_step=3)
