"""docs/train.md: every block of Python in it runs, against a host agent over replicas that branch."""

from __future__ import annotations

from pathlib import Path

import pytest
from tests.support.doc_examples import blocks, run_block
from tests.support.fake_runtime import TASK, Served

BLOCKS = blocks("docs/train.md")
GRPO_LINES = 15


@pytest.mark.parametrize("index", range(len(BLOCKS)))
def test_each_block_runs_and_leaves_nothing(index: int, tmp_path: Path) -> None:
    with Served(tmp_path, warm=2, max_replicas=8) as served:
        code = f"TASK = {TASK!r}\n{BLOCKS[index]}"
        said = run_block(code, tmp_path, OSGYM_HOSTS=served.urls[0])
        assert served.agent is not None and served.agent.pool.view().leased == 0
        assert served.runtime.points.states == {}
    expected = ["1.0\n", "'I am done.'", "steps with 0.0", "1.0\n"][index]
    assert expected in said and "lost" not in said and "not used" not in said


def test_the_glue_of_grpo_is_short() -> None:
    """What follows the policy and the trainer's update is all that a user writes."""
    block = next(block for block in BLOCKS if "rollouts(" in block)
    glue = block[block.index("with Client()") :].splitlines()
    assert 0 < len([line for line in glue if line.strip()]) <= GRPO_LINES
