"""The same actions for other systems: each says what ours says, or refuses."""

from __future__ import annotations

from typing import Any

import pytest
from benchmarks.peers import cua_command, measured
from benchmarks.settle.actions import Action


@pytest.mark.parametrize(
    ("send", "command"),
    [
        ({"op": "click", "x": 1, "y": 2}, ("left_click", {"x": 1, "y": 2})),
        ({"op": "click", "x": 1, "y": 2, "button": "right"}, ("right_click", {"x": 1, "y": 2})),
        ({"op": "click", "x": 1, "y": 2, "count": 2}, ("double_click", {"x": 1, "y": 2})),
        ({"op": "move", "x": 1, "y": 2}, ("move_cursor", {"x": 1, "y": 2})),
        ({"op": "type", "text": "a b"}, ("type_text", {"text": "a b"})),
        ({"op": "key", "keys": ["Page_Down"]}, ("press_key", {"key": "pagedown"})),
        ({"op": "key", "keys": ["ctrl", "a"]}, ("hotkey", {"keys": ["ctrl", "a"]})),
        ({"op": "scroll", "x": 1, "y": 2, "dy": 3}, ("scroll", {"x": 0, "y": -3})),
    ],
)
def test_an_action_is_one_command(send: dict[str, Any], command: tuple[str, dict[str, Any]]) -> None:
    """With its names of keys."""
    assert cua_command(send) == command


def test_what_it_cannot_do_is_refused() -> None:
    """It is not left out."""
    with pytest.raises(ValueError, match="drag"):
        cua_command({"op": "drag", "path": [[0, 0], [1, 1]]})


def test_a_block_has_each_step_and_the_cpu_time_of_one() -> None:
    """CPU time over all steps of the block."""
    clock = iter([1.0, 1.5])
    actions = [Action("a", "move", {"op": "move", "x": 1, "y": 1})] * 5
    block = measured("exact", 2, lambda index, action: 10 + index, actions, lambda: next(clock))
    assert (block.way, block.round, block.steps, block.cpu_ms) == ("exact", 2, 5, 100.0)
    assert block.image_bytes == [10, 11, 12, 13, 14]
    assert len(block.step_ms) == 5
