"""Keys that are pressed together mean the same in every grammar, however they are written, or are refused."""

from __future__ import annotations

import json
from typing import Any

import pytest

from osgym_protocol.grammars import CannotRender, Context, UnreadableAction, parse, render
from osgym_protocol.grammars.chords import (
    ChordError,
    listed_chord,
    split_chord,
    split_chords,
    split_spaced_chord,
)
from osgym_protocol.keysyms import KEYSYMS, find_key, key_keysym

CTX = Context((1920, 1080))
ONE_CHORD = {
    "ctrl+s": ("ctrl", "s"), "ctrl + s": ("ctrl", "s"), "ctrl+ s": ("ctrl", "s"), "Ctrl + S": ("ctrl", "s"),
    "CTRL+S": ("ctrl", "s"), "Ctrl-S": ("ctrl", "s"), "ctrl - s": ("ctrl", "s"), "Control_L+s": ("ctrl", "s"),
    "Cmd+C": ("super", "c"), "command+c": ("super", "c"), "⌘C": ("super", "c"), "⌘+C": ("super", "c"),
    "⌘-C": ("super", "c"), "meta+c": ("super", "c"), "win+c": ("super", "c"), "⌃⇧T": ("ctrl", "shift", "t"),
    "ctrl + shift + t": ("ctrl", "shift", "t"), "ctrl-shift-t": ("ctrl", "shift", "t"),
    "ctrl++": ("ctrl", "plus"), "ctrl + +": ("ctrl", "plus"), "ctrl+plus": ("ctrl", "plus"),
    "ctrl+-": ("ctrl", "minus"), "ctrl--": ("ctrl", "minus"), "ctrl+minus": ("ctrl", "minus"),
    "shift++": ("shift", "plus"), "+": ("plus",), "-": ("minus",), " ": ("space",), "super": ("super",),
    "Return": ("Return",), "enter": ("Return",), "KEY_ENTER": ("Return",), "XK_Return": ("Return",),
    "Keys.ENTER": ("Return",), "Key.enter": ("Return",), "⏎": ("Return",), "esc": ("Escape",),
    "page_down": ("Next",), "PageDown": ("Next",), "Page Down": ("Next",), "page-down": ("Next",),
    "PAGE_DOWN": ("Next",), "PgDn": ("Next",), "KEY_PAGEDOWN": ("Next",), "ctrl+Page Down": ("ctrl", "Next"),
    "up": ("Up",), "ArrowUp": ("Up",), "arrow_up": ("Up",), "Up Arrow": ("Up",), "UpArrow": ("Up",),
    "up_arrow": ("Up",), "↑": ("Up",), "KEY_UP": ("Up",), "alt+F4": ("alt", "F4"), "Alt-F4": ("alt", "F4"),
    "Caps Lock": ("Caps_Lock",), "Print Screen": ("Print",), "Space Bar": ("space",),
    "Option+f": ("alt", "f"),
    "KEY_LEFTCTRL+KEY_C": ("ctrl", "c"), "ctrl+shift": ("ctrl", "shift"), "a": ("a",),
}  # fmt: skip
REFUSED = {
    "": "name a key", "  ": "name a key", "ctrl+": "no key follows", "ctrl +": "no key follows",
    "+s": "missing beside", "ctrl++s": "missing beside", "++": "missing beside", "ctrl+++": "missing beside",
    "CTRL S": "joined by +", "alt f4": "joined by +", "c+ctrl": "must stand before",
    "tab+shift": "must stand before", "ctrl+ctrl": "twice", "a+a": "twice", "C-x": "unknown key",
    "ctrl-": "unknown key", "^c": "unknown key", "ctrl,c": "unknown key", "<ctrl>c": "unknown key",
    "{ENTER}": "unknown key", "VK_RETURN": "unknown key", "KEY_BACK": "unknown key",
    "fn+f5": "unknown key",
    "x" * 501: "at most", "a+b+c+d+e+f+g+h+i": "1 to 8 keys",
}  # fmt: skip


def _keysyms(keys: Any) -> list[int]:
    """Return what is pressed: in a chord a letter names its key."""
    return [key_keysym(key.lower() if len(keys) > 1 and len(key) == 1 else key) for key in keys]


@pytest.mark.parametrize("text", list(ONE_CHORD))
def test_a_chord_is_the_same_however_it_is_written(text: str) -> None:
    """Alone, among chords with blanks between, and where blanks separate the keys."""
    expected = _keysyms(ONE_CHORD[text])
    assert _keysyms(split_chord(text)) == expected
    assert [_keysyms(keys) for keys in split_chords(text.replace(" - ", "-"))] == [expected]
    assert _keysyms(split_spaced_chord(text.replace(" - ", "-"))) == expected
    assert _keysyms(listed_chord([text])) == expected


@pytest.mark.parametrize(("text", "why"), REFUSED.items())
def test_no_chord_for_certain(text: str, why: str) -> None:
    """It is refused with a remedy, never pressed in part."""
    with pytest.raises(ChordError, match=why.replace("+", r"\+")):
        split_chord(text)


def test_several_chords_with_blanks_between() -> None:
    """As in xdotool's syntax; a modifier alone among them is a chord that was written wrongly."""
    assert split_chords("ctrl+a Delete") == [["ctrl", "a"], ["Delete"]]
    assert split_chords("Tab Tab Page Down") == [["Tab"], ["Tab"], ["Page_Down"]]
    assert split_chords("Ctrl + K Ctrl + S") == [["Ctrl", "K"], ["Ctrl", "S"]]
    for wrong in ("ctrl s", "CTRL S", "alt f4", "a shift"):
        with pytest.raises(ChordError, match=r"joined by \+"):
            split_chords(wrong)


def test_keys_with_blanks_between() -> None:
    """As UI-TARS writes them; a plus at the end is the plus key, and two chords are refused."""
    assert split_spaced_chord("ctrl c") == ["ctrl", "c"]
    assert split_spaced_chord("ctrl + c") == ["ctrl", "c"]
    assert split_spaced_chord("ctrl +") == ["ctrl", "plus"]
    assert split_spaced_chord("ctrl page down") == ["ctrl", "page_down"]
    for wrong, why in (("ctrl+a delete", "one chord"), ("down down", "twice"), ("c ctrl", "before")):
        with pytest.raises(ChordError, match=why):
            split_spaced_chord(wrong)


@pytest.mark.parametrize(
    ("keys", "why"),
    [
        (["ctrl", "+", "c"], "stands between"), (["c", "ctrl"], "before"), (["ctrl", "ctrl"], "twice"),
        (["ctrl+c", "enter"], "unknown key"), ([], "1 to 8"), ([""], "must be a name"),
        ([1, "a"], "must be a name"), (["a"] * 9, "1 to 8"), (["ctrl", "copy"], "unknown key"),
    ],
)  # fmt: skip
def test_lists_that_are_no_chord(keys: list[Any], why: str) -> None:
    """A list is checked as a text is."""
    with pytest.raises(ChordError, match=why):
        listed_chord(keys)


def _said(grammar: str, text: str) -> Any:
    """Return the output that presses `text` in a grammar."""
    return {
        "anthropic": {"action": "key", "text": text},
        "openai": {"type": "keypress", "keys": [text]},
        "gemini": {"name": "key_combination", "args": {"keys": text}},
        "qwen": {"action": "key", "keys": [text]},
        "uitars": f"Action: hotkey(key={text!r})",
        "computer13": {"action_type": "HOTKEY", "keys": text},
        "glm": f"key(keys={text!r})",
    }[grammar]


@pytest.mark.parametrize("grammar", ["anthropic", "openai", "gemini", "qwen", "uitars", "computer13", "glm"])
@pytest.mark.parametrize(
    "text", ["Ctrl + S", "ctrl+s", "Ctrl-S", "⌘C", "ctrl + +", "Page Down", "KEY_ENTER", "Up Arrow"]
)
def test_every_grammar_reads_a_chord_alike(grammar: str, text: str) -> None:
    """The blanks in "Ctrl + S" press no keys of their own."""
    [action] = parse(_said(grammar, text), CTX, grammar).actions
    keys = ONE_CHORD[text]
    assert (action["op"], _keysyms(action["keys"])) == ("key", _keysyms(keys))


@pytest.mark.parametrize(
    ("grammar", "output"),
    [
        ("anthropic", {"action": "key", "text": "ctrl s"}),
        ("anthropic", {"action": "left_click", "coordinate": [1, 2], "text": "ctrl shift"}),
        ("anthropic", {"action": "hold_key", "text": "ctrl+", "duration": 1}),
        ("openai", {"type": "keypress", "keys": ["CTRL", "+", "C"]}),
        ("gemini", {"name": "hotkey", "args": {"keys": ["c", "ctrl"]}}),
        ("gemini", {"name": "press_key", "args": {"key": "ctrl c"}}),
        ("qwen", {"action": "key", "keys": ["ctrl+c", "enter"]}),
        ("uitars", "Action: hotkey(key='ctrl+')"),
        ("osgym", "hotkey(ctrl, +, c)"),
        ("osgym", "hotkey(c, ctrl)"),
        ("osgym", "press(ctrl + s)"),
        ("computer13", {"action_type": "HOTKEY", "keys": ["ctrl", "+", "c"]}),
        ("computer13", {"action_type": "PRESS", "key": "ctrl+c"}),
        ("pyautogui", "pyautogui.hotkey('ctrl', '+', 'c')"),
        ("pyautogui", "pyautogui.hotkey('ctrl+c')"),
        ("opencua", "pyautogui.hotkey(['c', 'ctrl'])"),
    ],
)
def test_what_would_press_other_keys_is_refused(grammar: str, output: Any) -> None:
    """Nothing is pressed of what was probably meant otherwise."""
    with pytest.raises(UnreadableAction) as caught:
        parse(output, CTX, grammar)
    assert caught.value.grammar == grammar


def test_names_reach_guests_as_they_know_them() -> None:
    """Other spellings and signs become X names, also where keys stand alone; known names stay."""
    assert parse("pyautogui.keyDown('⌘')\npyautogui.press('Page Up')", CTX, "pyautogui").actions == (
        {"op": "key_down", "key": "Super_L"},
        {"op": "key", "keys": ["Prior"], "repeat": 1},
    )
    held = {"type": "click", "x": 1, "y": 2, "button": "left", "keys": ["Left Ctrl"]}
    assert parse(json.dumps(held), CTX, "openai").actions[0]["modifiers"] == ["Control_L"]


def test_words_for_signs_are_the_keys_and_not_look_alikes() -> None:
    """`hyphen` and `multiply` in X are a soft hyphen and a ×, which no model means by a key."""
    assert find_key("hyphen") == KEYSYMS["minus"] and find_key("equals") == KEYSYMS["equal"]
    assert find_key("multiply") == KEYSYMS["KP_Multiply"]
    assert find_key("×") == 0xD7


def test_a_chord_that_would_be_refused_is_not_rendered() -> None:
    """What is written for a data set is read back."""
    with pytest.raises(CannotRender, match="must stand before"):
        render([{"op": "key", "keys": ["a", "ctrl"]}], CTX, "openai")
