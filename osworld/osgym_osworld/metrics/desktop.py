"""Metrics over the output of commands, windows and players, and over Thunderbird's files."""

from __future__ import annotations

import ast
import json
import re
from collections.abc import Iterator
from typing import Any
from urllib.parse import urlparse

from osgym_host.tasks.metric_plugin import (
    Argument,
    InputFile,
    Score,
    Unreadable,
    as_file,
    as_text,
    differ,
    metric,
    rules_of,
)
from osgym_osworld.metrics.settings import matches

_MAX_LIST_CHARS = 20_000
_PREFERENCE = re.compile(r'user_pref\("((?:[^"\\]|\\.)+)", (.+)\);')
_CONDITION = re.compile(r"\b(?:AND|OR) \([\w ]+,[\w ']+,(?:\"[^\"]+\"|[^)\"]+)\)|\bALL\b")


@metric()
def check_gnome_favorite_apps(result: Argument, expected: Argument) -> Score:
    """The list of desktop files that a command printed has those of ``rules.expected``, in any order."""
    text = as_text(result).strip().removeprefix("@as").strip()
    try:
        value = ast.literal_eval(text) if len(text) <= _MAX_LIST_CHARS else None
    except (ValueError, SyntaxError, RecursionError, MemoryError):
        value = None
    got = [str(name) for name in value] if isinstance(value, list) else None
    wanted = [str(name) for name in rules_of(expected)["expected"]]
    same = got is not None and sorted(got) == sorted(wanted)
    return Score(1.0) if same else differ("the applications", text, wanted)


@metric()
def is_in_vm_clickboard(result: Argument, expected: Argument) -> Score:
    """The expected value, a terminal's text, has all of ``result.expected``: OSWorld's order."""
    rules, text = (result, expected) if isinstance(result, dict) else (expected, result)
    wanted = rules_of(rules)["expected"]
    for part in wanted if isinstance(wanted, list) else [wanted]:
        if str(part) not in as_text(text):
            return Score(0.0, f"{part!r} is not in the text")
    return Score(1.0)


@metric()
def is_vlc_fullscreen(result: Argument, expected: Argument) -> Score:
    """The window is as large as the screen."""
    sizes = [(v.get("width"), v.get("height")) if isinstance(v, dict) else None for v in (result, expected)]
    same = sizes[0] is not None and sizes[0] == sizes[1]
    return Score(1.0) if same else differ("the window's size", sizes[0], sizes[1])


_FILE_ENTRIES = ("filename", "title", "uri", "location", "name")
_URL_ENTRIES = ("url", "URI", "location", "title", "filename")


@metric()
def is_vlc_playing(result: Argument, expected: Argument) -> Score:
    """VLC plays ``file_name`` (``type`` ``file_name``) or ``url`` (``type`` ``url``), by its status."""
    rules, file = rules_of(expected), as_file(result, "result")
    root = file.xml(file.data())
    state = root.findtext("state")
    if state != "playing":
        return differ("VLC's state", state, "playing")
    by_url = rules["type"] == "url"
    if not by_url and rules["type"] != "file_name":
        raise Unreadable("expected", f"unknown type {rules['type']}")
    wanted = str(rules["url"] if by_url else rules["file_name"])
    entries = {
        entry.get("name"): entry.text
        for entry in root.findall("information/category[@name='meta']/info")
        if entry.text
    }
    got = next((entries[name] for name in (_URL_ENTRIES if by_url else _FILE_ENTRIES) if name in entries), "")
    plays = _same_address(got, wanted) if by_url else got.endswith(wanted)
    return Score(1.0) if got and plays else differ("what VLC plays", got, wanted)


def _same_address(got: str, wanted: str) -> bool:
    """Return whether VLC shows a stream: the last part of its path, or an address of the host below it."""
    if wanted in got:
        return True
    try:
        a, b = urlparse(got), urlparse(wanted)
    except ValueError:
        return False
    return got == b.path.rpartition("/")[2] or ("://" in got and a.netloc == b.netloc and b.path in a.path)


@metric()
def check_thunderbird_prefs(result: Argument, expected: Argument) -> Score:
    """Preferences fulfil ``expect`` (all of it) and nothing of ``unexpect``: ``{name: {method, ref}}``."""
    rules, file = rules_of(expected), as_file(result, "result")
    found = dict(_preferences(file))
    for name, condition in rules.get("expect", {}).items():
        if name not in found or not matches(found[name], condition["method"], condition["ref"]):
            return differ(name, found.get(name), condition)
    for name, condition in rules.get("unexpect", {}).items():
        if name in found and matches(found[name], condition["method"], condition["ref"]):
            return differ(name, found[name], f"not {condition}")
    return Score(1.0)


def _preferences(file: InputFile) -> Iterator[tuple[str, Any]]:
    for line in file.text().splitlines():
        found = _PREFERENCE.fullmatch(line.strip())
        if found:
            try:
                yield found[1], json.loads(found[2])
            except (ValueError, RecursionError) as error:
                raise file.bad(f"the preference {found[1][:80]}: {error}") from error


@metric()
def check_thunderbird_filter(result: Argument, expected: Argument) -> Score:
    """Some filter has all of each entry of ``expect``; none has all of one of ``unexpect``.

    Of a filter count ``name``, ``enabled``, ``type``, ``action``, ``actionValue`` and ``condition``, a list.
    """
    rules, filters = rules_of(expected), _filters(as_file(result, "result").text())

    def found(pattern: dict[str, Any]) -> bool:
        return any(all(f.get(key) == value for key, value in pattern.items()) for f in filters)

    for pattern in rules.get("expect", []):
        if not found(pattern):
            return differ("no filter is as expected", filters, pattern)
    for pattern in rules.get("unexpect", []):
        if found(pattern):
            return Score(0.0, f"a filter is {pattern}")
    return Score(1.0)


def _filters(text: str) -> list[dict[str, Any]]:
    filters: list[dict[str, Any]] = []
    current: dict[str, Any] = {}
    for line in text.splitlines():
        name, equals, quoted = line.partition("=")
        value = quoted.strip()[1:-1].replace('\\"', '"').replace("\\\\", "\\")
        if not equals:
            continue
        if name == "name":
            current = {"name": value}
        elif name in {"enabled", "type", "action", "actionValue"}:
            current[name] = value
        elif name == "condition":
            current["condition"] = _CONDITION.findall(value)
            filters.append(current)
    return filters


_MESSAGE = re.compile(r"^From (?:- )?.*\n", re.MULTILINE)
_STATUS = re.compile(r"^X-Mozilla-Status2?:.*\n?", re.MULTILINE)
_LABELS = re.compile(r"^X-Mozilla-Keys:.*\n?", re.MULTILINE)
_DELETED = re.compile(r"^X-Mozilla-Status: 000[89]", re.MULTILINE)


@metric()
def check_thunderbird_folder(
    result: Argument,
    expected: Argument,
    ignore_status: bool = False,
    ignore_keys: bool = False,
    remove_deleted: bool = True,
    remove_duplicate: bool = True,
) -> Score:
    """Each folder of Thunderbird (an mbox file), or message, has the expected messages, in any order.

    OSWorld's own leaves out every message that is not empty, and so finds all folders the same.

    Args:
        result: One file or several.
        expected: As many.
        ignore_status: Marks such as read and starred do not count.
        ignore_keys: Labels do not count.
        remove_deleted: Messages that are marked as deleted do not count.
        remove_duplicate: Neither does how often a message is there.
    """
    sides = [value if isinstance(value, list) else [value] for value in (result, expected)]
    if len(sides[0]) != len(sides[1]):
        raise Unreadable("expected", f"{len(sides[0])} folders are asked for, {len(sides[1])} expected")
    for one, other in zip(*sides, strict=True):
        kept = []
        for value, role in ((one, "result"), (other, "expected")):
            mails = _mails(as_file(value, role), remove_deleted)
            if ignore_status:
                mails = [_STATUS.sub("", mail) for mail in mails]
            if ignore_keys:
                mails = [_LABELS.sub("", mail) for mail in mails]
            mails = [mail.strip() for mail in mails]
            kept.append(sorted(set(mails) if remove_duplicate else mails))
        if kept[0] != kept[1]:
            name = as_file(one, "result").name
            return differ(f"the messages of {name}", _heads(kept[0]), _heads(kept[1]))
    return Score(1.0)


def _mails(file: InputFile, remove_deleted: bool) -> list[str]:
    found = [mail for mail in _MESSAGE.split(file.text()) if mail.strip()]
    return [mail for mail in found if not (remove_deleted and _DELETED.search(mail))]


def _heads(mails: list[str]) -> list[str]:
    subjects = (re.search(r"^Subject: .*", mail, re.MULTILINE) for mail in mails[:20])
    return [found[0] if found else "no subject" for found in subjects]
