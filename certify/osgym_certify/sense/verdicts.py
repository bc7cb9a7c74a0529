"""Checks of the evaluator: what cannot fail, what the untouched desktop passes, weak evidence. Pure."""

from __future__ import annotations

import fnmatch
import json
import re
from collections.abc import Collection, Iterator, Mapping
from typing import Any

from osgym_certify.sense.base import Code, Finding, RawCheck, Severity, View, quoted
from osgym_certify.sense.untouched import passes
from osgym_host.tasks.registry import GETTERS
from osgym_host.tasks.schema import Conjunction
from osgym_protocol.codes import Evidence
from osgym_protocol.plugins import PluginError

_DEMANDS: Mapping[str, tuple[str, ...]] = {
    "check_accessibility_tree": (),
    "check_csv": ("expect", "unexpect"),
    "check_direct_json_object": ("expected",),
    "check_document_text": ("paragraphs", "include", "exclude"),
    "check_formulas": ("cells",),
    "check_image_properties": ("size", "mode", "format", "grey", "picture"),
    "check_include_exclude": ("include", "exclude"),
    "check_json": ("expect", "unexpect"),
    "check_list": ("expect", "unexpect"),
    "check_slides_text": ("count", "slides", "include", "exclude"),
    "check_text_formats": ("formats",),
    "check_window_titles": ("include", "exclude"),
    "check_xlsx_cells": ("cells",),
    "check_xml_parts": ("parts",),
    "file_contains": ("expected",),
}
"""Keys of a metric's rules, without all of which it holds of every result."""
_CONSTANT = re.compile(r"^\s*(?:\S*/)?(?:echo|printf|true|false)\b[^|;&`$<>]*$")
_LISTS = frozenset({"paragraphs", "slides", "lines"})
"""Rules whose empty list is a demand: that nothing is there."""


def verdicts(view: View, known_ends: Collection[str] | None) -> Iterator[Finding]:
    """Yield the findings about the evaluator and about allowed ends."""
    for check in view.checks:
        yield from _cannot_fail(check)
    yield from _untouched(view)
    yield from _infeasible(view)
    yield from _guest_evidence(view)
    yield from _unknown_ends(view, known_ends)


def _cannot_fail(check: RawCheck) -> Iterator[Finding]:
    field = f"evaluator.expected{check.place}"
    if check.func == "infeasible":
        return
    if check.expected.get("type") == "rule" and _is_empty(check.func, check.rules):
        text = (
            f"{field}.rules demands nothing of {check.func}, which then always holds: add what must be there"
        )
        yield Finding(Code.CANNOT_FAIL, Severity.WRONG, text)
    elif check.result and _source(check.result) == _source(check.expected):
        text = f"{field} reads what evaluator.result{check.place} reads: compare with what nobody can change"
        yield Finding(Code.CANNOT_FAIL, Severity.WRONG, text)
    elif _CONSTANT.match(check.command):
        text = (
            f"evaluator.result{check.place}.command prints the same at each check ({quoted(check.command)}): "
            "ask for what the task changes"
        )
        yield Finding(Code.CANNOT_FAIL, Severity.WRONG, text)
    elif check.func == "compare_table" and check.options.get("rules") == []:
        text = f"evaluator.options{check.place}.rules is empty, so compare_table always holds: add rules"
        yield Finding(Code.CANNOT_FAIL, Severity.WRONG, text)


def _is_empty(func: str, rules: Any) -> bool:
    if not rules and rules != 0:
        return True
    keys = _DEMANDS.get(func)
    if not keys or not isinstance(rules, Mapping):
        return False
    return not any(rules.get(key) or (key in _LISTS and rules.get(key) == []) for key in keys)


def _source(getter: Mapping[str, Any]) -> str:
    """Return what a getter reads, whatever name its copy has; a rule reads nothing."""
    return json.dumps({key: value for key, value in getter.items() if key != "dest"}, sort_keys=True)


def _untouched(view: View) -> Iterator[Finding]:
    evaluator = view.task.evaluator
    if evaluator.infeasible:
        return
    earned = [passes(check, view) for check in view.checks]
    remedy = "check what the task changes"
    match evaluator.conj:
        case Conjunction.AND if all(earned):
            text = f"evaluator.func: every check holds of the desktop as the set-up leaves it: {remedy}"
            yield Finding(Code.UNTOUCHED, Severity.WRONG, text)
            return
        case Conjunction.OR if any(earned):
            place = view.checks[earned.index(True)].place
            text = f"evaluator.func{place} holds of the desktop as the set-up leaves it: {remedy}"
            yield Finding(Code.UNTOUCHED, Severity.WRONG, text)
            return
    silent = [check for check in view.checks if not check.keeps]
    if silent and all(map(_expects_nothing, silent)):
        text = (
            f"evaluator.expected{silent[0].place}.rules.expected is empty, so a command that fails passes as "
            "well: have the command print a word on success"
        )
        yield Finding(Code.UNTOUCHED, Severity.DOUBTFUL, text)


def _expects_nothing(check: RawCheck) -> bool:
    rules = check.rules if isinstance(check.rules, Mapping) else {}
    return (
        check.func == "exact_match" and bool(check.command) and str(rules.get("expected", "x")).strip() == ""
    )


def _infeasible(view: View) -> Iterator[Finding]:
    funcs = [check.func for check in view.checks]
    if "infeasible" not in funcs or len(funcs) == 1:
        return
    if view.task.evaluator.conj is not Conjunction.AND:
        text = 'evaluator.conj makes "infeasible" one of several right ends: use "and", or infeasible alone'
        yield Finding(Code.INFEASIBLE_MIXED, Severity.WRONG, text)
        return
    for check in view.checks:
        if passes(check, view) is False:
            text = (
                f"evaluator.func{check.place} demands a change, and evaluator.func also says that the task "
                "is infeasible: have it check only that nothing changed"
            )
            yield Finding(Code.INFEASIBLE_MIXED, Severity.WRONG, text)


def _guest_evidence(view: View) -> Iterator[Finding]:
    kinds = [str(check.result["type"]) for check in view.checks if check.result and not check.keeps]
    if kinds and all(map(_asks_guest, kinds)):
        text = (
            f"evaluator.result asks programs of the desktop only ({', '.join(sorted(set(kinds)))}), which a "
            "policy can replace: read a file as well (vm_file)"
        )
        yield Finding(Code.GUEST_EVIDENCE, Severity.DOUBTFUL, text)


def _asks_guest(kind: str) -> bool:
    try:
        found = GETTERS.find(kind)
    except PluginError:
        return False
    return found is not None and found.evidence is Evidence.GUEST


def _unknown_ends(view: View, known_ends: Collection[str] | None) -> Iterator[Finding]:
    if known_ends is None:
        return
    for place, allowed in enumerate(view.task.osgym.allows):
        if not any(fnmatch.fnmatchcase(name, allowed.end) for name in known_ends):
            text = (
                f"osgym.allows[{place}].end matches no end state of a certificate ({quoted(allowed.end)}): "
                "correct the name, or remove the entry"
            )
            yield Finding(Code.UNKNOWN_END, Severity.DOUBTFUL, text)
