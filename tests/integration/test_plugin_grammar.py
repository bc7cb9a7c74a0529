"""An action grammar of a stranger's distribution: installed, detected, read and written back."""

from __future__ import annotations

import subprocess
import sys

import pytest
from tests.support.plugin_packages import install_plugin


@pytest.fixture(scope="module")
def environment(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    """The grammar of xdotool commands, installed."""
    return install_plugin("xdotool_grammar", tmp_path_factory.mktemp("grammar"))


def run(code: str, environment: dict[str, str]) -> str:
    """Run Python with the grammar installed; return what it printed."""
    head = "from osgym_sdk.grammars import GRAMMARS, Context, Ending, UnreadableAction, parse, render\n"
    argv = [sys.executable, "-c", head + code]
    done = subprocess.run(argv, env={**environment}, capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_its_outputs_are_detected_and_read(environment: dict[str, str]) -> None:
    """Points of the image become pixels of the screen; a wrong line is refused with its number."""
    code = """
context = Context((1920, 1080), (960, 540))
parsed = parse("xdotool mousemove 10 20 click 1\\nxdotool key ctrl+s\\nexit 0", context)
print(parsed.grammar, [tuple(action.values()) for action in parsed.actions], parsed.ending.value)
print("xdotool" in GRAMMARS, "osgym" in GRAMMARS)
try:
    parse("xdotool key a\\nrm -rf /", context)
except UnreadableAction as error:
    print(error.position, error.why)
"""
    assert run(code, environment).splitlines() == [
        "xdotool [('move', 21, 41), ('click', 'left'), ('key', ['ctrl', 's'])] done",
        "True True",
        "line 2 this is no command of xdotool",
    ]


def test_what_is_written_is_read_back(environment: dict[str, str]) -> None:
    """By the same actions."""
    code = """
context = Context((1920, 1080))
actions = [{"op": "move", "x": 3, "y": 4}, {"op": "click", "button": "right"}]
text = render(actions, context, "xdotool", Ending.FAIL)
print(text.replace("\\n", "; "))
print(list(parse(text, context).actions) == actions)
"""
    assert run(code, environment).splitlines() == ["xdotool mousemove 3 4; xdotool click 3; exit 1", "True"]
