"""Metrics over text, lists and names of files."""

from __future__ import annotations

import codecs
import re
from collections.abc import Mapping
from typing import Any

from osgym_host.tasks.evaluator.inputs import Argument, as_file, as_text, rules_of
from osgym_host.tasks.evaluator.registry import Score, differ, metric, value_reader


def _strings(value: Any) -> list[str]:
    return [str(v) for v in value] if isinstance(value, list) else [] if value is None else [str(value)]


@metric(takes_result=False, needs_expected=False)
def infeasible(result: Argument, expected: Argument) -> Score:
    """Giving up is right. The host decides it by the end of the episode; other checks must hold besides."""
    raise NotImplementedError


@metric()
def exact_match(result: Argument, expected: Argument) -> Score:
    """The result equals ``rules.expected``."""
    wanted = rules_of(expected)["expected"]
    got = as_text(result) if isinstance(wanted, str) else result
    return Score(1.0) if got == wanted else differ("the result", got, wanted)


@metric()
def match_in_list(result: Argument, expected: Argument) -> Score:
    """The result is one of ``rules.expected``."""
    wanted = rules_of(expected)["expected"]
    got = as_text(result)
    if isinstance(wanted, str) and not got:  # the empty text is part of every text
        return differ("the result", got, wanted)
    return Score(1.0) if got in wanted else differ("the result", got, wanted)


@metric()
def is_in_list(result: Argument, expected: Argument) -> Score:
    """``rules.expected`` is in the result, a list."""
    wanted = rules_of(expected)["expected"]
    found = isinstance(result, list | str) and wanted in result
    return Score(1.0) if found else differ("the result", result, wanted)


@metric()
def literal_match(
    result: Argument, expected: Argument, type: str = "str", ignore_case: bool = False
) -> Score:
    """Result and expected value are equal; with ``type`` ``list``, item by item."""

    def normal(value: Any) -> Any:
        if type == "list":
            return [normal_text(v) for v in value] if isinstance(value, list) else None
        return normal_text(value)

    def normal_text(value: Any) -> str:
        text = as_text(value)
        return text.lower() if ignore_case else text

    got, wanted = normal(result), normal(expected)
    return Score(1.0) if got is not None and got == wanted else differ("the result", got, wanted)


@metric()
def fuzzy_match(result: Argument, expected: Argument) -> float:
    """Similarity of the text to ``rules.expected``: 1 − insertions and deletions ÷ both lengths."""
    got, wanted = as_text(result), str(rules_of(expected)["expected"])
    return similarity(got[:100_000], wanted[:100_000])


def _common_head(a: str, b: str) -> int:
    return next((i for i, (x, y) in enumerate(zip(a, b, strict=False)) if x != y), min(len(a), len(b)))


def similarity(a: str, b: str) -> float:
    """Return twice the length of the longest common subsequence over the sum of lengths (bit-parallel).

    Equal ends are part of such a subsequence, and cost nothing.
    """
    if a == b:
        return 1.0
    length = len(a) + len(b)
    head = _common_head(a, b)
    a, b = a[head:], b[head:]
    tail = _common_head(a[::-1], b[::-1])
    a, b = a[: len(a) - tail], b[: len(b) - tail]
    masks: dict[str, int] = {}
    for i, char in enumerate(a):
        masks[char] = masks.get(char, 0) | (1 << i)
    full = (1 << len(a)) - 1
    row = full
    for char in b:
        match = row & masks.get(char, 0)
        row = ((row + match) | (row - match)) & full
    common = len(a) - row.bit_count() + head + tail
    return 2 * common / length


@metric()
def check_include_exclude(result: Argument, expected: Argument) -> Score:
    """The text has all of ``include`` and none of ``exclude``."""
    rules, text = rules_of(expected), as_text(result)
    for wanted in _strings(rules.get("include")):
        if wanted not in text:
            return Score(0.0, f"{wanted!r} is not in the result")
    for unwanted in _strings(rules.get("exclude")):
        if unwanted in text:
            return Score(0.0, f"{unwanted!r} is in the result")
    return Score(1.0)


@metric()
def check_list(result: Argument, expected: Argument) -> Score:
    """Each pattern of ``expect`` matches some line, none of ``unexpect`` any."""
    rules, lines = rules_of(expected), as_text(result).splitlines()
    for pattern in _strings(rules.get("expect")):
        if not any(re.search(pattern, line) for line in lines):
            return Score(0.0, f"no line matches {pattern!r}")
    for pattern in _strings(rules.get("unexpect")):
        if any(re.search(pattern, line) for line in lines):
            return Score(0.0, f"a line matches {pattern!r}")
    return Score(1.0)


@metric()
def file_contains(result: Argument, expected: Argument) -> Score:
    """The file has each string of ``rules.expected``."""
    text = as_file(result, "result").text()
    for wanted in _strings(rules_of(expected).get("expected")):
        if wanted not in text:
            return Score(0.0, f"{wanted!r} is not in the file")
    return Score(1.0)


@metric(accepts_empty=True)
def compare_config(result: Argument, expected: Argument) -> Score:
    """The file's whole text equals ``rules.expected``."""
    got, wanted = as_text(result), str(rules_of(expected)["expected"])
    return Score(1.0) if got == wanted else differ("the file", got, wanted)


@metric(accepts_empty=True)
def compare_answer(result: Argument, expected: Argument) -> Score:
    """The text equals ``rules.expected``."""
    return compare_config(result, expected)


def _other_form(data: bytes, rules: Mapping[str, Any]) -> str:
    """Return how line ends or the byte order mark differ from the rules; an empty text if they do not."""
    is_marked = data.startswith(codecs.BOM_UTF8)
    if is_marked != bool(rules.get("byte_order_mark")):
        return f"the file has {'a' if is_marked else 'no'} byte order mark"
    others = set(re.findall(rb"\r\n|\r|\n", data)) - {str(rules["line_end"]).encode()}
    return f"a line ends with {min(others)!r}, not {rules['line_end']!r}" if others else ""


@metric(accepts_empty=True)
def check_text_lines(result: Argument, expected: Argument) -> Score:
    """The file's lines are ``rules.lines``, by any line ends or ``line_end``; ``folders``: no last slash.

    A missing end of the last line, DOS line ends and a byte order mark are right as well. With ``line_end``
    all lines end with it, and the file begins with a byte order mark only if ``byte_order_mark`` is true.
    """
    rules = rules_of(expected)
    text = as_text(result)
    if "line_end" in rules:
        text = text.replace("\r", "\n")
        if problem := _other_form(as_file(result, "result").data(), rules):
            return Score(0.0, problem)
    got = text.removesuffix("\n").split("\n")
    if rules.get("folders"):
        got = [line.rstrip("/") if line.strip("/") else line for line in got]
    wanted = list(rules["lines"]) or [""]
    if got == wanted:
        return Score(1.0)
    number = next((n for n, pair in enumerate(zip(got, wanted, strict=False)) if pair[0] != pair[1]), None)
    if number is None:
        return differ("the number of lines", len(got), len(wanted))
    return differ(f"line {number + 1}", got[number], wanted[number])


@metric()
def compare_text_file(
    result: Argument, expected: Argument, ignore_blanks: bool = False, ignore_case: bool = False
) -> Score:
    """Two text files are equal; blanks of any kind and case may be made not to count."""

    def normal(text: str) -> str:
        if ignore_blanks:
            text = re.sub(r"\s+", " ", text).strip()
        return text.lower() if ignore_case else text

    got = normal(as_file(result, "result").text())
    wanted = normal(as_file(expected, "expected").text())
    return Score(1.0) if got == wanted else differ("the text", got, wanted)


@metric(needs_expected=False)
def is_utc_0(result: Argument, expected: Argument) -> bool:
    """``timedatectl`` says the time zone has no offset."""
    lines = [line for line in as_text(result).splitlines() if "Time zone:" in line]
    return any(line.rstrip().endswith("+0000)") for line in lines)


@metric()
def is_extension_installed(result: Argument, expected: Argument) -> Score:
    """``rules.expected`` is (``contain``) or is not (``not_contain``) in the text."""
    rules = rules_of(expected)
    wanted = str(rules["expected"])
    found = wanted in as_text(result)
    if found == (rules.get("type", "contain") == "contain"):
        return Score(1.0)
    return Score(0.0, f"{wanted!r} is {'' if found else 'not '}in the result")


@value_reader
def directory_tree(value: Argument) -> Any:
    """Return the names below a folder, from the guest agent's answer."""
    file = as_file(value, "result")
    found = file.json()
    tree = found.get("directory_tree") if isinstance(found, dict) else None
    if not isinstance(tree, dict):
        raise file.bad("it holds no directory_tree")
    return tree


@metric()
def check_moved_jpgs(result: Argument, expected: Argument) -> Score:
    """The folder has exactly the names of ``rules.expected``."""
    children = result.get("children", []) if isinstance(result, dict) else []
    got = sorted(str(node.get("name")) for node in children if isinstance(node, dict))
    wanted = sorted(_strings(rules_of(expected).get("expected")))
    return Score(1.0) if got == wanted else differ("the folder", got, wanted)


@metric()
def check_window_titles(result: Argument, expected: Argument) -> Score:
    """Each pattern of ``include`` matches a window's title, none of ``exclude`` any."""
    rules, titles = rules_of(expected), _strings(result)
    for pattern in _strings(rules.get("include")):
        if not any(re.search(pattern, title) for title in titles):
            return differ(f"no window's title matches {pattern!r}", titles, pattern)
    for pattern in _strings(rules.get("exclude")):
        if any(re.search(pattern, title) for title in titles):
            return Score(0.0, f"a window's title matches {pattern!r}")
    return Score(1.0)
