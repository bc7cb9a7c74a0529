"""Metrics over JSON and the settings files of applications."""

from __future__ import annotations

import fnmatch
import re
from collections.abc import Iterator, Mapping
from functools import reduce
from operator import or_
from typing import Any

from osgym_host.tasks.metric_plugin import (
    Argument,
    InputFile,
    Score,
    Unreadable,
    as_file,
    as_text,
    differ,
    is_installed,
    metric,
    parse_json,
    reader,
    rules_of,
)
from osgym_osworld.packages import needs

_MISSING = object()
_VLC_SLIDER = "153;210;153;20;210;20;255;199;15;245;39;29"
"""VLC's colours where none are set."""
_BLACKISH = 100


def _json(value: Argument) -> Any:
    if isinstance(value, InputFile):
        return value.json()
    return parse_json(value, None) if isinstance(value, str) else value


def _at(value: Any, path: list[Any]) -> Any:
    for key in path:
        in_object = isinstance(value, dict) and key in value
        in_list = isinstance(value, list) and isinstance(key, int) and -len(value) <= key < len(value)
        if not (in_object or in_list):
            return _MISSING
        value = value[key]
    return value


_ORDERS = frozenset({"lt", "le", "gt", "ge"})
_METHODS = frozenset({"eq", "ne", "re", "approx", "spreadsheet_range", "str_list_eq", "str_set_eq"}) | _ORDERS
_RANGES = frozenset(f"range.{left}{right}" for left in "te" for right in "te")
_FLAGS = {
    name: flag
    for flag in (re.ASCII, re.IGNORECASE, re.MULTILINE, re.DOTALL, re.VERBOSE)
    for name in (str(flag.name), {"DOTALL": "S", "VERBOSE": "X"}.get(str(flag.name), str(flag.name)[0]))
}
_NAME_CHARS = 80


def unsupported_method(condition: object) -> str | None:
    """Return the method of a condition that `matches` lacks; None if it has the method."""
    method = condition.get("method", "eq") if isinstance(condition, dict) else None
    if not isinstance(method, str):
        return f"method {str(method)[:_NAME_CHARS]}"
    name = method.partition(":")[0]
    known = name in _METHODS | _RANGES or (
        name.startswith("re.") and all(flag in _FLAGS for flag in name.split(".")[1:])
    )
    return None if known else f"method {name[:_NAME_CHARS]}"


def matches(value: Any, method: str, ref: Any) -> bool:
    """Return whether a value fulfils a condition: eq ne lt le gt ge, approx[:tolerance], re[.FLAG…], …

    ``range.te`` (t for less than, e for less or equal) is between ``ref``'s two; ``str_list_eq`` and
    ``str_set_eq`` compare what stands between commas; ``spreadsheet_range`` holds the first range of
    ``ref`` and lies within the second.

    Raises:
        Unreadable: no such method.
    """
    if unsupported_method({"method": method}):
        raise Unreadable("expected", f"unknown method {method}")
    name, _, argument = method.partition(":")
    if name in {"eq", "ne"}:
        return bool(value == ref) == (name == "eq")
    if name == "re" or name.startswith("re."):
        flags = [_FLAGS[flag] for flag in name.split(".")[1:]]
        return isinstance(value, str) and re.search(ref, value, reduce(or_, flags, re.NOFLAG)) is not None
    if name in {"str_list_eq", "str_set_eq"}:
        words = str(value).strip("\"'").split(",")
        return words == list(ref) if name == "str_list_eq" else set(words) == set(ref)
    if name == "spreadsheet_range":
        return _holds_range(value, *ref)
    return _in_order(value, name, argument, ref)


def _in_order(value: Any, name: str, argument: str, ref: Any) -> bool:
    try:
        a = float(value)
        if name in _RANGES:
            low, high = float(ref[0]), float(ref[1])
            return (low < a or (low == a and name[6] == "e")) and (a < high or (a == high and name[7] == "e"))
        b = float(ref)
    except (TypeError, ValueError):
        return False
    if name == "approx":
        return abs(a - b) <= float(argument or 1e-6)
    return {"lt": a < b, "le": a <= b, "gt": a > b, "ge": a >= b}[name]


def _holds_range(value: Any, inner: str, outer: str) -> bool:
    """Return whether ranges of cells hold those of ``inner`` and lie within those of ``outer``."""
    from openpyxl.worksheet.cell_range import MultiCellRange

    got = MultiCellRange(str(value)).ranges
    least, most = MultiCellRange(str(inner)).ranges, MultiCellRange(str(outer)).ranges
    return all(any(a.issubset(b) for b in got) for a in least) and all(
        any(a.issubset(b) for b in most) for a in got
    )


def _yaml_reader(options: Mapping[str, Any]) -> list[str]:
    return needs("yaml")(options) if options.get("is_yaml") else []


@reader
def _yaml(file: InputFile) -> Any:
    """Return the content as YAML of plain values: tags of others make it unreadable."""
    import yaml

    return yaml.safe_load(file.text())


@metric(unsupported=_yaml_reader)
def check_json(result: Argument, expected: Argument, is_yaml: bool = False) -> Score:
    """Values at paths of a JSON file (``is_yaml``: YAML) fulfil ``expect`` and none of ``unexpect``."""
    rules = rules_of(expected)
    value = _yaml(as_file(result, "result")) if is_yaml else _json(result)
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
def check_play_and_exit(result: Argument, expected: Argument) -> Score:
    """VLC's ``play-and-exit``."""
    return _vlc(result, expected, "play-and-exit", "expected_play_and_exit", "0")


def registry_value(file: InputFile, path: str, name: str) -> str | None:
    """Return a setting of LibreOffice's ``registrymodifications.xcu``; None when it is not set.

    Args:
        path: The end of the item's path.

    Raises:
        Unreadable: malformed.
    """
    oor = "{http://openoffice.org/2001/registry}"
    for item in file.xml(file.data()).iter("item"):
        if item.get(f"{oor}path", "").endswith(path):
            for prop in item.iter("prop"):
                if prop.get(f"{oor}name") == name:
                    return (prop.findtext("value") or "").strip()
    return None


@metric()
def check_auto_saving_time(result: Argument, expected: Argument) -> Score:
    """LibreOffice saves by itself every ``rules.minutes`` minutes."""
    got = registry_value(as_file(result, "result"), "Save/Document", "AutoSaveTimeIntervall")
    wanted = str(rules_of(expected)["minutes"])
    if got is None:
        return Score(0.0, "no interval is set")
    return Score(1.0) if got == wanted else differ("minutes", got, wanted)


@metric()
def find_default_font(result: Argument, expected: Argument) -> Score:
    """Writer's default font is ``font_name``."""
    path = "/org.openoffice.Office.Writer/DefaultFont"
    got, wanted = registry_value(as_file(result, "result"), path, "Standard"), rules_of(expected)["font_name"]
    return Score(1.0) if got == wanted else differ("the default font", got, wanted)


@metric()
def check_libre_locale(result: Argument, expected: Argument) -> Score:
    """LibreOffice's locale matches a pattern of ``locale_set``, as file names do."""
    file = as_file(result, "result")
    got = registry_value(file, "L10N", "ooSetupSystemLocale")
    got = registry_value(file, "L10N", "ooLocale") if got is None else got
    wanted = rules_of(expected)["locale_set"]
    matched = got is not None and any(fnmatch.fnmatchcase(got, pattern) for pattern in wanted)
    return Score(1.0) if matched else differ("the locale", got, wanted)


@metric()
def check_qt_slider_colours(result: Argument, expected: Argument) -> Score:
    """VLC's slider: colours that ``match``, or that are all ``blackish`` (each channel below 100)."""
    got, rules = _VLC_SLIDER, rules_of(expected)
    for line in as_text(result).splitlines():
        if "qt-slider-colours" in line:
            got = line.rpartition("=")[2].strip()
    if rules["type"] == "match":
        wanted = rules["expected_qt_slider_colours"]
        return Score(1.0) if got == wanted else differ("the colours", got, wanted)
    if rules["type"] != "blackish":
        raise Unreadable("expected", f"there is no type {rules['type']} of colours")
    channels = got.split(";")
    whole = len(channels) // 3 * 3
    dark = all(c.strip().isdigit() for c in channels) and all(int(c) < _BLACKISH for c in channels[:whole])
    return Score(1.0) if dark else differ("the colours", got, "blackish")


@metric()
def is_vlc_recordings_folder(result: Argument, expected: Argument) -> Score:
    """VLC's recordings go to ``recording_file_path``."""
    wanted = rules_of(expected)["recording_file_path"]
    for line in as_text(result).splitlines():
        if not line.startswith("#") and "input-record-path" in line:
            got = line.rpartition("=")[2].strip()
            return Score(1.0) if got == wanted else differ("the folder", got, wanted)
    return Score(0.0, "no folder is set")


@metric()
def check_global_key_play_pause(result: Argument, expected: Argument) -> Score:
    """VLC has (``"1"``) or has not (``"0"``) a global key that plays and pauses."""
    got, wanted = "0", str(rules_of(expected)["expected_global_key_play_pause"])
    for line in as_text(result).splitlines():
        if "global-key-play-pause=" in line:
            got = "1" if line.rpartition("=")[2].strip() else "0"
    return Score(1.0) if got == wanted else differ("the key", got, wanted)


def warm_up() -> None:
    if is_installed("yaml"):
        import yaml

        assert yaml.safe_load("a: [1, b, 2001-01-01]")
