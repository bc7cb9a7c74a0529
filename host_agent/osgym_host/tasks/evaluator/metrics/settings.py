"""Metrics over JSON and the settings files of applications."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

from osgym_host.tasks.evaluator.inputs import (
    Argument,
    InputFile,
    Unreadable,
    as_file,
    as_text,
    parse_json,
    rules_of,
)
from osgym_host.tasks.evaluator.registry import Score, differ, metric, transform

_MISSING = object()


def _json(value: Argument) -> Any:
    if isinstance(value, InputFile):
        return value.json()
    return parse_json(value, None) if isinstance(value, str) else value


@transform("directory_tree")
def directory_tree(value: Argument) -> Any:
    """The names below a folder, from what the guest answered."""
    file = as_file(value, "result")
    found = file.json()
    tree = found.get("directory_tree") if isinstance(found, dict) else None
    if not isinstance(tree, dict):
        raise file.bad("it holds no directory_tree")
    return tree


def _at(value: Any, path: list[Any]) -> Any:
    for key in path:
        in_object = isinstance(value, dict) and key in value
        in_list = isinstance(value, list) and isinstance(key, int) and -len(value) <= key < len(value)
        if not (in_object or in_list):
            return _MISSING
        value = value[key]
    return value


def matches(value: Any, method: str, ref: Any) -> bool:
    """Whether a value fulfils a condition: eq ne lt le gt ge re approx[:tolerance].

    Raises:
        Unreadable: no such method.
    """
    name, _, argument = method.partition(":")
    if name in {"eq", "ne"}:
        return bool(value == ref) == (name == "eq")
    if name == "re":
        return isinstance(value, str) and re.search(ref, value) is not None
    if name not in {"lt", "le", "gt", "ge", "approx"}:
        raise Unreadable("expected", f"there is no method {method}")
    try:
        a, b = float(value), float(ref)
    except (TypeError, ValueError):
        return False
    if name == "approx":
        return abs(a - b) <= float(argument or 1e-6)
    return {"lt": a < b, "le": a <= b, "gt": a > b, "ge": a >= b}[name]


@metric()
def check_json(result: Argument, expected: Argument) -> Score:
    """Values at paths of a JSON file fulfil ``expect`` and none of ``unexpect``."""
    rules, value = rules_of(expected), _json(result)
    for wanted, conditions in ((True, rules.get("expect", [])), (False, rules.get("unexpect", []))):
        for condition in conditions:
            found = _at(value, condition["key"])
            holds = found is not _MISSING and matches(found, condition["method"], condition["ref"])
            if holds != wanted:
                shown = "nothing" if found is _MISSING else found
                return differ(f"the value at {condition['key']}", shown, condition)
    return Score(1.0)


@metric()
def check_direct_json_object(result: Argument, expected: Argument) -> Score:
    """Each key of ``rules.expected`` has its value; with ``expect_in_result``, it is in the value."""
    rules, value = rules_of(expected), _json(result)
    if not isinstance(value, dict):
        return Score(0.0, "the result is not an object")
    inside = bool(rules.get("expect_in_result", False))
    for key, wanted in rules["expected"].items():
        got = value.get(key)
        if not (_within(wanted, got) if inside else got == wanted):
            return differ(key, got, wanted)
    return Score(1.0)


def _within(wanted: Any, got: Any) -> bool:
    if got is None:
        return False
    choices = wanted if isinstance(wanted, list) else [wanted]
    if isinstance(got, list):
        return any(choice in got for choice in choices)
    if isinstance(wanted, list):
        return got in choices
    return isinstance(got, str) and str(wanted) in got


@metric()
def check_json_settings(result: Argument, expected: Argument) -> Score:
    """A settings file (JSON) has each setting of ``rules.expected``."""
    value = _json(result)
    if not isinstance(value, dict):
        return Score(0.0, "the settings are not an object")
    for key, wanted in rules_of(expected)["expected"].items():
        if value.get(key) != wanted:
            return differ(key, value.get(key), wanted)
    return Score(1.0)


@metric()
def check_json_keybindings(result: Argument, expected: Argument) -> Score:
    """A key binding file (JSON, perhaps after a line of comment) has ``rules.expected``."""
    text = as_text(result)
    value = parse_json(re.sub(r"^\s*//[^\n]*\n", "", text, count=1), None)
    wanted = rules_of(expected)["expected"]
    return Score(1.0) if isinstance(value, list) and wanted in value else differ("bindings", value, wanted)


def _entries(text: str) -> Iterator[list[str]]:
    for line in text.splitlines():
        words = line.strip().lstrip("(").rstrip(")").split()
        if words and not words[0].startswith("#"):
            yield words


@metric()
def check_config_status(result: Argument, expected: Argument) -> Score:
    """A GIMP settings file has ``(key value)``, or ``(key key2 … value)`` for a list of two keys."""
    rules = rules_of(expected)
    keys = rules["key"] if isinstance(rules["key"], list) else [rules["key"]]
    for words in _entries(as_text(result)):
        if words[: len(keys)] == keys and words[-1] == rules["value"]:
            return Score(1.0)
    return Score(0.0, f"{' '.join(keys)} is not {rules['value']}")


def _vlc(result: Argument, expected: Argument, key: str, rule: str, default: str) -> Score:
    wanted = str(rules_of(expected)[rule])
    got = default
    for line in as_text(result).splitlines():
        name, equals, value = line.strip().partition("=")
        if equals and name == key:
            got = value
    return Score(1.0) if got == wanted else differ(key, got, wanted)


@metric()
def check_qt_bgcone(result: Argument, expected: Argument) -> Score:
    """VLC's ``qt-bgcone``."""
    return _vlc(result, expected, "qt-bgcone", "expected_qt_bgcone", "1")


@metric()
def check_qt_max_volume(result: Argument, expected: Argument) -> Score:
    """VLC's ``qt-max-volume``."""
    return _vlc(result, expected, "qt-max-volume", "expected_qt_max_volume", "125")


@metric()
def check_qt_minimal_view(result: Argument, expected: Argument) -> Score:
    """VLC's ``qt-minimal-view``."""
    return _vlc(result, expected, "qt-minimal-view", "expected_qt_minimal_view", "0")


@metric()
def check_one_instance_when_started_from_file(result: Argument, expected: Argument) -> Score:
    """VLC's ``one-instance-when-started-from-file``."""
    key = "one-instance-when-started-from-file"
    return _vlc(result, expected, key, "expected_one_instance_when_started_from_file", "1")


@metric()
def check_auto_saving_time(result: Argument, expected: Argument) -> Score:
    """LibreOffice saves by itself every ``rules.minutes`` minutes."""
    file = as_file(result, "result")
    root = file.xml(file.data())
    oor = "{http://openoffice.org/2001/registry}"
    for item in root.iter("item"):
        if "Save/Document" not in item.get(f"{oor}path", ""):
            continue
        for prop in item.iter("prop"):
            if prop.get(f"{oor}name") == "AutoSaveTimeIntervall":
                got = (prop.findtext("value") or "").strip()
                wanted = str(rules_of(expected)["minutes"])
                return Score(1.0) if got == wanted else differ("minutes", got, wanted)
    return Score(0.0, "no interval is set")
