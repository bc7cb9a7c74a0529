"""Chords: keys that are pressed together, from the texts and lists in which models write them. Pure.

Names of keys are those of :mod:`osgym_protocol.keysyms`. ``Cmd`` and ``⌘`` are the Super key: that is the key
in the same place, and the one that Google's sample and other public key maps press for these names on Linux.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence

from osgym_protocol.grammars.base import shown
from osgym_protocol.keysyms import KEYSYMS, MODIFIERS, SYMBOLS, find_key, key_keysym, key_name
from osgym_protocol.limits import MAX_KEYS

_MAX_CHARS = 500
"""Length of a text with keys: enough for many repeated keys, and quick to read."""
_PLUS = re.compile(r"\s*\+\s*")
_HYPHEN = re.compile(r"\s*-\s*")
_TWO_WORDS = re.compile(
    r"\b(?:page\s+(?:up|down)|(?:caps|num|scroll)\s+lock|print\s+screen|space\s+bar|back\s+space"
    r"|arrow\s+(?:up|down|left|right)|(?:up|down|left|right)\s+arrow)\b",
    re.IGNORECASE,
)
_MODIFIER_KEYSYMS = frozenset(KEYSYMS[name] for name in MODIFIERS)
_JOINED = "keys that are pressed together are joined by +, as in 'ctrl+s'"


class ChordError(ValueError):
    """A text or a list that names no keys for certain; the message has the reason and the remedy."""


def split_chord(text: str) -> list[str]:
    """Return the keys of one chord: ``ctrl+s``, ``Ctrl + S``, ``Ctrl-S``, ``⌘C``, ``ctrl++``, ``Page Down``.

    Raises:
        ChordError: It is not one chord for certain.
    """
    return check_chord(_keys_of(_checked(text)))


def split_chords(text: str) -> list[list[str]]:
    """Return the chords of a text in xdotool's syntax, in which blanks separate them (``ctrl+a Delete``).

    Raises:
        ChordError: One of them is no chord for certain, or is a modifier alone among others.
    """
    text = _checked(text)
    chords = [check_chord(_keys_of(part)) for part in _PLUS.sub("+", text).split() or [text]]
    if len(chords) > 1 and any(_is_modifier(keys[-1]) for keys in chords):
        raise ChordError(_JOINED)
    return chords


def split_spaced_chord(text: str) -> list[str]:
    """Return the keys of one chord whose keys are separated by blanks, by ``+`` or by both.

    ``ctrl c``, ``ctrl + c`` and ``ctrl+c`` are the same; ``ctrl +`` is Ctrl and the plus key.

    Raises:
        ChordError: It is not one chord for certain.
    """
    text = _checked(text)
    words = text.split()
    if len(words) > 1 and words[-1] == "+" and not any("+" in word for word in words[:-1]):
        words[-1] = "plus"
    else:
        text = _PLUS.sub("+", text)
        words = text.split() or [text]
    keys = [_keys_of(word) for word in words]
    if len(words) > 1 and any(len(one) > 1 for one in keys):  # "ctrl+a delete" is two chords
        raise ChordError("it must be one chord, its keys separated by blanks or by +, not by both")
    return check_chord([key for one in keys for key in one])


def listed_chord(keys: Sequence[object]) -> list[str]:
    """Return the keys of a list; a list of one text may hold a whole chord (``["ctrl+c"]``).

    Raises:
        ChordError: It is empty, too long, or names no keys for certain.
    """
    if not 1 <= len(keys) <= MAX_KEYS:
        raise ChordError(f"it must be a list of 1 to {MAX_KEYS} keys")
    names = [key for key in keys if isinstance(key, str) and key]
    if len(names) != len(keys):
        raise ChordError("a key must be a name")
    return split_chord(names[0]) if len(names) == 1 else check_chord(names)


def check_chord(names: Iterable[str]) -> list[str]:
    """Return the names of a chord's keys, after a check that they can be pressed together.

    Raises:
        ChordError: A key is unknown or repeated, ``+`` stands between two keys, or a modifier stands behind
            another key, which would be pressed without it.
    """
    keys = [key_name(name) for name in names]
    if not 1 <= len(keys) <= MAX_KEYS:
        raise ChordError(f"a chord has 1 to {MAX_KEYS} keys")
    if "+" in keys[:-1]:
        raise ChordError("a + stands between the keys: leave it out, or write 'plus' for the plus key")
    pressed: list[int] = []
    for key in keys:
        try:
            keysym = key_keysym(key)
        except KeyError as exc:
            raise ChordError(str(exc.args[0])) from None
        if keysym in pressed:
            raise ChordError(
                f"the key {shown(key)} occurs twice in one chord: press it again in an action of its own"
            )
        if keysym in _MODIFIER_KEYSYMS and not _MODIFIER_KEYSYMS.issuperset(pressed):
            raise ChordError(f"the modifier {shown(key)} must stand before the key that it modifies")
        pressed.append(keysym)
    return keys


def _checked(text: str) -> str:
    """Return a text without blanks around it and within names; a blank alone is the space bar.

    Raises:
        ChordError: It is empty or too long.
    """
    if len(text) > _MAX_CHARS:
        raise ChordError(f"the key name has {len(text)} characters; at most {_MAX_CHARS} are allowed")
    if text == " ":
        return "space"
    text = text.strip()
    if not text:
        raise ChordError("it must name a key")
    return _TWO_WORDS.sub(lambda found: "_".join(found.group().split()), text)


def _keys_of(text: str) -> list[str]:
    """Return the names in a text without further blanks; they may be unknown keys."""
    if find_key(text) is not None:
        return [text]
    parts = _PLUS.split(text)
    if parts[-2:] == ["", ""] and len(parts) > 2:  # ctrl++
        parts = [*parts[:-2], "plus"]
    if parts[-1] == "" and len(parts) > 1:
        raise ChordError("no key follows the last +: write 'plus' for the plus key")
    if "" in parts:
        raise ChordError("a key is missing beside a +: write 'plus' for the plus key")
    return [key for part in parts for key in _keys_of_part(part)]


def _keys_of_part(text: str) -> list[str]:
    """Return the names in a text without ``+``: modifiers with hyphens or as signs (``⌘``), and a key."""
    if find_key(text) is not None:
        return [text]
    held: list[str] = []
    while text and text[0] in SYMBOLS and _is_modifier(text[0]):
        held, text = [*held, text[0]], text[1:].strip()
    if held:
        rest = text.removeprefix("-") or text
        return held + (_keys_of_part(rest) if rest else [])
    parts = _HYPHEN.split(text)
    if parts[-2:] == ["", ""] and len(parts) > 2:  # ctrl--
        parts = [*parts[:-2], "minus"]
    if len(parts) > 1 and all(map(_is_modifier, parts[:-1])) and find_key(parts[-1]) is not None:
        return parts
    if any(sign.isspace() for sign in text):
        raise ChordError(_JOINED)
    return [text]


def _is_modifier(name: str) -> bool:
    return find_key(name) in _MODIFIER_KEYSYMS
