"""Rows for verl, and the loop that plays them: ``python examples/trainers/verl_rollouts.py tasks/``.

It writes train.parquet and loops.yaml, and prints what to add to ``python -m verl.trainer.main_ppo``.
"""

from __future__ import annotations

import sys
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq

from osgym_sdk.integrations.verl import rows

LOOPS = "- name: osgym\n  _target_: osgym_sdk.integrations.verl.DesktopAgentLoop\n  size: [1280, 720]\n"


def write(tasks: str, folder: Path) -> list[str]:
    """Write the data set and the loop's settings; return the overrides that use them."""
    pq.write_table(pa.Table.from_pylist(rows(tasks)), folder / "train.parquet")
    (folder / "loops.yaml").write_text(LOOPS)
    return [
        f"data.train_files={folder / 'train.parquet'}",
        "data.return_raw_chat=True",
        "actor_rollout_ref.rollout.agent.default_agent_loop=osgym",
        f"actor_rollout_ref.rollout.agent.agent_loop_config_path={folder / 'loops.yaml'}",
    ]


if __name__ == "__main__":
    print("python -m verl.trainer.main_ppo", *write(sys.argv[1], Path.cwd()), sep=" \\\n  ")
