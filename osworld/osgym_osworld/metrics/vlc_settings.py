"""Metric over all settings of VLC: those that a task changes, and those that it leaves alone."""

from __future__ import annotations

import re
from typing import Any

from osgym_host.tasks.metric_plugin import Argument, InputFile, Score, as_file, differ, metric, reader

_EXPLAINED = re.compile(r"# .* \((?:boolean|integer|float|string)\b[^)]*\)")
"""Comment that VLC writes above each setting."""


@metric()
def check_vlc_settings(
    result: Argument,
    expected: Argument,
    changed: dict[str, Any] | None = None,
    lost: list[str] | None = None,
    defaults: list[str] | None = None,
) -> Score:
    """VLC saved its settings with the values ``changed``; all others are those of the expected file.

    VLC's file has a comment above each setting, and writes a setting that has its default as a comment, too.
    A file with lines that VLC did not write, such as appended ones, is wrong, as is one that lacks a setting
    of before; ``lost`` has those that this VLC does not know, and so does not save. Of the settings of before
    only those of ``defaults`` may stand in a comment, which have their default.
    """
    wanted = {name: str(value) for name, value in (changed or {}).items()}
    before, _ = _settings(as_file(expected, "expected"))
    file = as_file(result, "result")
    after, comments = _settings(file)
    unexplained = _unexplained(file)
    if unexplained:
        return Score(0.0, f"VLC did not write the line {unexplained[:80]!r}")
    known = {**comments, **after}
    for name, value in {**before, **wanted}.items():
        if name in known and known[name] != value:
            return differ(name, known[name], value)
    missing = sorted({*wanted, *before} - {*known, *(lost or ())})
    if missing:
        return Score(0.0, f"the file has no setting {missing[0]}")
    # What nothing has set had its default, so another value of it is no default and no comment.
    silent = sorted(set(wanted) - set(after) - set(before))
    silent += sorted({*before} - {*wanted, *after, *(defaults or ()), *(lost or ())})
    if silent:
        return Score(0.0, f"{silent[0]} stands in a comment only")
    others = sorted(set(after) - set(before) - set(wanted))
    return Score(0.0, f"{others[0]} was set to {after[others[0]]!r}") if others else Score(1.0)


@reader
def _settings(file: InputFile) -> tuple[dict[str, str], dict[str, str]]:
    """Return the values that are set, and the defaults that stand in comments."""
    is_set: dict[str, str] = {}
    defaults: dict[str, str] = {}
    for line in file.text().splitlines():
        name, equals, value = line.strip().partition("=")
        if equals and re.fullmatch(r"[\w-]{1,100}", name):
            is_set[name] = value
        elif equals and re.fullmatch(r"#[\w-]{1,100}", name):
            defaults[name[1:]] = value
    return is_set, defaults


@reader
def _unexplained(file: InputFile) -> str:
    """Return the first setting without VLC's comment above it; an empty text if all have one."""
    above = ""
    for line in file.text().splitlines():
        if line.strip() and not line.startswith(("#", "[", "\ufeff")) and not _EXPLAINED.fullmatch(above):
            return line.strip()
        above = line.strip()
    return ""
