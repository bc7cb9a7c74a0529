"""Chords as models write them, pressed in a real editor on a real desktop."""

from __future__ import annotations

import json
from typing import Any

from tests.support.waiting import until

from osgym_sdk import AsyncEpisode

NOTE = "/tmp/note.txt"


def _qwen(**arguments: Any) -> str:
    return f"<tool_call>{json.dumps({'name': 'computer_use', 'arguments': arguments})}</tool_call>"


SAYS: list[tuple[str, Any, Any]] = [
    ("anthropic", {"action": "type", "text": "one\n"}, {"action": "key", "text": "Ctrl + S"}),
    ("openai", {"type": "type", "text": "two\r\n"}, {"type": "keypress", "keys": ["CTRL + S"]}),
    ("gemini", {"name": "type", "args": {"text": "three\n", "press_enter": True}},
     {"name": "hotkey", "args": {"keys": "Control + S"}}),
    ("qwen", _qwen(action="type", text="four\n"), _qwen(action="key", keys=["ctrl+s"])),
    ("uitars", "Action: type(content='five\\n')", "Action: hotkey(key='ctrl + s')"),
    ("glm", "type(content='six\\n')", "key(keys='Ctrl-S')"),
    ("computer13", {"action_type": "TYPING", "text": "seven\n"},
     {"action_type": "HOTKEY", "keys": "ctrl + s"}),
    ("pyautogui", "pyautogui.write('eight\\n')", "pyautogui.hotkey('Left Ctrl', 's')"),
]  # fmt: skip


async def test_blanks_in_a_chord_press_no_keys_of_their_own(episode: AsyncEpisode) -> None:
    """Each grammar types a line and saves it: the file holds the lines, without a + or an s too many."""
    await episode.write_file(NOTE, "")
    await episode.execute(f"mousepad {NOTE} >/dev/null 2>&1 &")

    async def is_open() -> bool:
        return any("note.txt" in window.title for window in await episode.windows())

    await until(is_open, what="the editor opens")
    expected = ""
    for line, (grammar, typed, saved) in zip(
        ("one", "two", "three", "four", "five", "six", "seven", "eight"), SAYS, strict=True
    ):
        await episode.step(typed, grammar=grammar)
        await episode.step(saved, grammar=grammar)
        expected += f"{line}\n"

        async def is_saved(text: bytes = expected.encode()) -> bool:
            return await episode.read_file(NOTE) == text

        await until(is_saved, what=f"the line of {grammar} is saved")
