"""Hostile outputs: a short series of what `make fuzz-grammars` does at length, and long outputs."""

from __future__ import annotations

import subprocess
import sys
import time
from pathlib import Path

import pytest
from tests.support.grammar_fuzz import SCREEN, Context, check

from osgym_protocol.grammars import GRAMMARS

ROOT = Path(__file__).parents[2]


@pytest.mark.parametrize("grammar", GRAMMARS)
def test_nothing_but_the_refusal(grammar: str) -> None:
    """2,000 outputs from a seed: read or refused, and nothing opened, imported or run meanwhile."""
    argv = [sys.executable, "-m", "tests.support.grammar_fuzz", "--grammar", grammar, "--cases", "2000"]
    done = subprocess.run(argv, capture_output=True, text=True, timeout=120, cwd=ROOT)
    assert done.returncode == 0, done.stderr[-3000:]
    counts = dict(pair.split("=") for pair in done.stdout.split()[2:])
    assert int(counts["read"]) > 50  # the mutations leave some intact: the reading is exercised too
    assert int(counts["refused"]) > 200


LONG = [
    ("osgym", "&click(" * 14_000 + ")"),
    ("osgym", "type(" + ")" * 90_000),
    ("osgym", "click(1,2)" + " " * 90_000 + "& x"),
    ("osgym", "& " * 50_000),
    ("uitars", "Action: type(content='" + "')" * 100_000),
    ("uitars", "Action: type(content='" + "\\" * 200_000),
    ("uitars", "Action: type(content='" + "'\n" * 100_000),
    ("uitars", "Action: type(content='" + "'x" * 100_000 + "')"),
    ("uitars", "Action: type(content='" + "')x" * 60_000 + "')"),
    ("uitars", "Action: hotkey(key='" + "+ " * 100_000 + "')"),
    ("qwen", "<tool_call><function=computer_use><parameter=text>" + "</parameter> " * 15_000),
    ("anthropic", '{"action": "key", "text": "' + "ctrl + " * 30_000 + '"}'),
    ("uitars", "Action: type(content='')" + "\n" * 200_000 + "x"),
    ("uitars", "Action: click(start_box='" + " " * 190 + "1')"),
    ("uitars", "Action:" * 30_000),
    ("glm", "WAIT()" * 40_000),
    ("glm", "left_click(" * 20_000),
    ("glm", "Memory:\n" * 30_000),
    ("glm", "type(content='" + "')x" * 60_000 + "')"),
    ("qwen", "<tool_call>" * 20_000),
    ("qwen", "<tool_call>{}</tool_call>" * 9_000),
    ("pyautogui", "pyautogui.press('a', " * 10_000),
    ("pyautogui", "[" * 200_000),
    ("pyautogui", "x=" * 100_000 + "1"),
    ("pyautogui", "a = ('b' * 99999)\n" * 10_000),
    ("pyautogui", "```\n" * 50_000),
    ("pyautogui", "x = " + "1 + " * 900 + "1"),
    ("computer13", "```json\n" * 30_000),
    ("openai", '{"a":' * 50_000),
    ("openai", "[" * 100_000 + "]" * 100_000),
]


@pytest.mark.parametrize(("grammar", "output"), LONG, ids=range(len(LONG)))
def test_no_output_takes_long(grammar: str, output: str) -> None:
    """The time to read grows with the length, not with its square: the longest outputs take a moment."""
    began = time.process_time()
    for name in (grammar, "auto"):
        check(output, Context(SCREEN), name)
    assert time.process_time() - began < 2.0
