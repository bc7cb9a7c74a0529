"""Keys of a US keyboard, for guests of which nothing is known. Pure.

QEMU presses keys, not symbols: what a key types is the guest's affair. These maps hold for guests with
the US layout, which is what installers choose and images ship. What needs another layout, a dead key or
an input method is refused before anything is pressed.

Names of keys are those of QEMU's `QKeyCode` (qapi/ui.json).
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from osgym_protocol.keysyms import KEYSYMS, char_keysym

SHIFT = "shift"


class Untypable(ValueError):
    """Error for a symbol that no key of a US keyboard types."""


@dataclass(frozen=True, slots=True)
class Keystroke:
    """Key, with Shift where its symbol needs it."""

    qcode: str
    shift: bool = False


_PUNCTUATION = {
    "`": "grave_accent",
    "-": "minus",
    "=": "equal",
    "[": "bracket_left",
    "]": "bracket_right",
    "\\": "backslash",
    ";": "semicolon",
    "'": "apostrophe",
    ",": "comma",
    ".": "dot",
    "/": "slash",
    " ": "spc",
}
_SHIFTED = dict(zip('~!@#$%^&*()_+{}|:"<>?', "`1234567890-=[]\\;',./", strict=True))

_NAMED = {
    "Return": "ret",
    "Tab": "tab",
    "BackSpace": "backspace",
    "Escape": "esc",
    "Delete": "delete",
    "Insert": "insert",
    "Home": "home",
    "End": "end",
    "Prior": "pgup",
    "Next": "pgdn",
    "Left": "left",
    "Right": "right",
    "Up": "up",
    "Down": "down",
    "Print": "print",
    "Sys_Req": "sysrq",
    "Pause": "pause",
    "Break": "pause",
    "Menu": "compose",  # the key between right Alt and right Ctrl; QEMU's "menu" is another one
    "Help": "help",
    "Undo": "undo",
    "Redo": "again",
    "Find": "find",
    "Cancel": "stop",
    "Caps_Lock": "caps_lock",
    "Num_Lock": "num_lock",
    "Scroll_Lock": "scroll_lock",
    "Shift_L": "shift",
    "Shift_R": "shift_r",
    "Control_L": "ctrl",
    "Control_R": "ctrl_r",
    "Alt_L": "alt",
    "Alt_R": "alt_r",
    "ISO_Level3_Shift": "alt_r",
    "Mode_switch": "alt_r",
    "Super_L": "meta_l",
    "Super_R": "meta_r",
    "Meta_L": "meta_l",
    "Meta_R": "meta_r",
    "Hyper_L": "meta_l",
    "Hyper_R": "meta_r",
    "KP_Enter": "kp_enter",
    "KP_Add": "kp_add",
    "KP_Subtract": "kp_subtract",
    "KP_Multiply": "kp_multiply",
    "KP_Divide": "kp_divide",
    "KP_Decimal": "kp_decimal",
    "KP_Separator": "kp_comma",
    "KP_Equal": "kp_equals",
    # With Num Lock off the digits' keys are these; the state of Num Lock is the guest's.
    "KP_Insert": "kp_0",
    "KP_End": "kp_1",
    "KP_Down": "kp_2",
    "KP_Next": "kp_3",
    "KP_Left": "kp_4",
    "KP_Begin": "kp_5",
    "KP_Right": "kp_6",
    "KP_Home": "kp_7",
    "KP_Up": "kp_8",
    "KP_Prior": "kp_9",
    "KP_Delete": "kp_decimal",
    "Henkan_Mode": "henkan",
    "Muhenkan": "muhenkan",
    "XF86AudioLowerVolume": "volumedown",
    "XF86AudioRaiseVolume": "volumeup",
    "XF86AudioMute": "audiomute",
    "XF86AudioPlay": "audioplay",
    "XF86AudioStop": "audiostop",
    "XF86AudioPrev": "audioprev",
    "XF86AudioNext": "audionext",
    "XF86Mail": "mail",
    "XF86Calculator": "calculator",
    "XF86Explorer": "computer",
    "XF86HomePage": "ac_home",
    "XF86Back": "ac_back",
    "XF86Forward": "ac_forward",
    "XF86Refresh": "ac_refresh",
    "XF86Reload": "ac_refresh",
    "XF86Favorites": "ac_bookmarks",
    "XF86Copy": "copy",
    "XF86Cut": "cut",
    "XF86Paste": "paste",
    "XF86Open": "open",
    "XF86Sleep": "sleep",
}
"""Keys of a PC keyboard by the names of their keysyms."""

EXTENDED = frozenset(
    (
        *("ctrl_r", "alt_r", "meta_l", "meta_r", "compose", "print", "sysrq", "kp_enter", "kp_divide"),
        *("insert", "delete", "home", "end", "pgup", "pgdn", "left", "right", "up", "down"),
    )
)
"""Keys whose PS/2 scan codes have a further byte."""


def _strokes() -> dict[int, Keystroke]:
    strokes: dict[int, Keystroke] = {}
    for char in "abcdefghijklmnopqrstuvwxyz":
        strokes[ord(char)] = Keystroke(char)
        strokes[ord(char.upper())] = Keystroke(char, shift=True)
    for char in "0123456789":
        strokes[ord(char)] = Keystroke(char)
        strokes[KEYSYMS[f"KP_{char}"]] = Keystroke(f"kp_{char}")
    for char, qcode in _PUNCTUATION.items():
        strokes[ord(char)] = Keystroke(qcode)
    for char, plain in _SHIFTED.items():
        strokes[ord(char)] = Keystroke(_PUNCTUATION.get(plain, plain), shift=True)
    for number in range(1, 13):
        strokes[KEYSYMS[f"F{number}"]] = Keystroke(f"f{number}")
    for name, qcode in _NAMED.items():
        strokes[KEYSYMS[name]] = Keystroke(qcode)
    strokes[KEYSYMS["ISO_Left_Tab"]] = Keystroke("tab", shift=True)
    return strokes


STROKES = _strokes()
"""Key of a US keyboard by keysym."""
_NAMES = {value: name for name, value in reversed(KEYSYMS.items())}


def stroke(keysym: int) -> Keystroke:
    """Return the key for a symbol.

    Raises:
        Untypable: A US keyboard has none; the message says what could not be typed.
    """
    found = STROKES.get(keysym)
    if found is None:
        raise Untypable(
            f"{_name(keysym)} is on no key of a US keyboard, and this guest has no agent that could type it"
        )
    return found


def strokes_of(text: str) -> list[Keystroke]:
    """Return the keys that type a text, one after the other.

    Raises:
        Untypable: Names the first character that a US keyboard lacks.
    """
    return [stroke(char_keysym(char)) for char in text]


def queue_bytes(strokes: Iterable[Keystroke]) -> int:
    """Return the largest number of bytes that these keys put into the queue of a PS/2 keyboard."""
    total = 0
    for each in strokes:
        total += 5 if each.qcode in EXTENDED else 3
        total += 3 if each.shift else 0
    return total


def _name(keysym: int) -> str:
    if keysym in _NAMES and keysym >= 0xFF00:
        return _NAMES[keysym]
    char = chr(keysym & 0xFFFFFF if keysym & 0x01000000 else keysym)
    return f"{char!r} (U+{ord(char):04X})"
