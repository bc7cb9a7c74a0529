"""GRPO with TRL: ``python examples/trainers/trl_grpo.py Qwen/Qwen3-4B-Instruct-2507 tasks/``."""

from __future__ import annotations

import sys
from typing import Any

from datasets import Dataset
from trl import GRPOConfig, GRPOTrainer

from osgym_sdk.integrations.trl import DesktopEnvironment, rows


def train(model: Any, tasks: Any, tokenizer: Any = None, **more: Any) -> Any:
    """Train on groups of 2; the desktops are those of ``OSGYM_HOSTS``."""
    args = GRPOConfig(num_generations=2, per_device_train_batch_size=2, max_completion_length=4096, **more)
    data = Dataset.from_list(rows(tasks))
    trainer = GRPOTrainer(
        model,
        args=args,
        train_dataset=data,
        processing_class=tokenizer,
        environment_factory=DesktopEnvironment,
    )
    trainer.train()
    return trainer


if __name__ == "__main__":
    train(sys.argv[1], sys.argv[2], output_dir="out/trl")
