"""Check that the instruction names what the evaluator compares, unless the set-up shows it. Pure."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from pathlib import PurePosixPath

from osgym_certify.sense.base import Code, Finding, RawCheck, Severity, View, leaves, quoted
from osgym_certify.sense.texts import Known, known_of, numbers_of, words_of

_CONTENT = frozenset(
    {
        "check_document_text", "check_list", "check_moved_jpgs", "check_slides_text", "check_text_formats",
        "check_text_lines", "check_xlsx_cells", "compare_answer", "compare_config", "exact_match",
        "file_contains", "fuzzy_match", "is_in_list", "literal_match", "match_in_list",
        "check_direct_json_object", "check_json", "check_window_titles", "is_extension_installed",
    }
)  # fmt: skip
"""Metrics whose rules are texts that somebody writes or reads, not keys of a program's settings."""
_PATTERNS = frozenset({"check_list", "check_window_titles"})
"""Metrics whose rules are regular expressions."""
_KEYS = re.compile(r"\.(key|type|method|match|conj|timezone|encoding)(\[\d+\])?$|\.(unexpect|exclude)\b")
"""Paths of rules that say how values are compared, or what must not be there."""
_COMPUTED = re.compile(r"\bu?int(?:16|32|64)\b|\b(?=\w*\d)[0-9a-fA-F]{16,}\b|[A-Za-z0-9+/]{32,}={0,2}")
"""Names of types that gsettings prints, digests, and contents in base64."""
_DESKTOP_ID = re.compile(r"[\w.-]+\.desktop\b")
_SHORT = 3
"""Letters of the shortest word that must be named."""
_COMMON = frozenset(
    {
        "and", "com", "default", "desktop", "directory", "disabled", "documents", "done", "enabled", "exists",
        "expected", "false", "file", "files", "for", "found", "from", "home", "http", "https", "localhost",
        "missing", "none", "not", "null", "off", "okay", "org", "result", "succeed", "success", "the", "true",
        "undefined", "user", "with", "yes",
    }
)  # fmt: skip
"""Words that programs print of themselves."""
_PATH = re.compile(r"(?<![\w.])(?:~|/home/[\w-]+)(?:/[\w.@%+-]+)+")
_FILE_NAME = re.compile(r"(?<![\w.@-])[A-Za-z][\w-]*\.[a-z][a-z0-9]{1,4}(?![\w.(-])")
_FILE_FIELD = re.compile(r"\.(?:ppt_file_)?path(?:\[\d+\])?$")
_HOME = re.compile(r"^(?:~|/home/[^/]+)/?")
_FILES = frozenset({"vm_file", "content_from_vm_file", "list_directory", "audio_in_slide"})


def unnamed(view: View) -> Iterator[Finding]:
    """Yield a finding for each file and each value that a policy cannot know."""
    if view.task.evaluator.infeasible:
        return
    known = known_of(view)
    for check in view.checks:
        if not check.keeps:
            yield from _files(view, check, known)
            yield from _values(view, check, known)


def _files(view: View, check: RawCheck, known: Known) -> Iterator[Finding]:
    field = f"evaluator.result{check.place}"
    if check.result.get("type") in _FILES:
        found = [str(text) for name, text in leaves(check.result, field) if _FILE_FIELD.search(name)]
        severity = Severity.WRONG
    else:
        found = [path.rstrip(".") for path in _PATH.findall(check.command)]
        severity = Severity.DOUBTFUL  # the command may make the file itself
    for path in dict.fromkeys(found):
        if _is_own(path) or _is_shown(path, view):
            continue
        stem = PurePosixPath(path).stem
        if all(map(known.has, words_of(stem))) and numbers_of(stem) <= known.numbers:
            severity = Severity.DOUBTFUL  # the words are there, perhaps as the name
        yield Finding(
            Code.UNNAMED_FILE,
            severity,
            f"{field} reads {quoted(path)}, and neither the instruction nor the set-up has the name "
            f"{quoted(PurePosixPath(path).name)}: name it in the instruction",
        )


def _is_own(path: str) -> bool:
    """Return whether a path is a program's own: in a hidden folder, or outside the home."""
    inside = _HOME.match(path)
    return inside is None or any(part.startswith(".") for part in path.split("/"))


def _is_shown(path: str, view: View) -> bool:
    """Return whether the instruction has the name, the set-up has it, or `postconfig` makes the file."""
    name = PurePosixPath(path).name.casefold()
    if name in view.instruction.casefold():
        return True
    texts = [str(value).casefold() for step in view.steps for _, value in leaves(step.parameters, "")]
    if any(name in text for text in texts):
        return True
    converts = any("--convert-to" in step.command for step in view.postconfig)
    sources = [PurePosixPath(text).stem for text in texts if text.startswith("/")]
    return converts and any(name.startswith(source) for source in sources if source)


def _values(view: View, check: RawCheck, known: Known) -> Iterator[Finding]:
    if check.rules is None:
        return
    field = f"evaluator.expected{check.place}.rules"
    values = [(name, value) for name, value in leaves(check.rules, field) if not _KEYS.search(name)]
    found = [list(_value(name, value, view, check, known)) for name, value in values]
    if check.func != "match_in_list" or all(found):  # of alternatives, one is enough
        for findings in found:
            yield from findings


def _value(
    name: str, value: str | int | float, view: View, check: RawCheck, known: Known
) -> Iterator[Finding]:
    text = _COMPUTED.sub(" ", str(value))
    if check.func in _CONTENT and isinstance(value, str):
        yield from _words(name, text, check, known, words_of(view.typed))
    yield from _numbers(name, text, view, known)


def _words(name: str, text: str, check: RawCheck, known: Known, typed: set[str]) -> Iterator[Finding]:
    """Yield a finding for a text with words that nothing in the task has."""
    if check.func in _PATTERNS:
        text = re.sub(r"\\.|[\[\](){}^$*+?|]", " ", text)
    text = _without_desktop_ids(text.replace("\\n", " "), known)
    missing = sorted(
        word
        for word in words_of(text) - _COMMON - words_of(check.command)
        if len(word) >= _SHORT and not known.has(word) and not known.makes(word)
    )
    if not missing:
        shown = known.text + check.command.casefold()
        missing = sorted(name for name in _FILE_NAME.findall(text) if name.casefold() not in shown)
    if missing:
        is_file = check.result.get("type") in _FILES  # a command may print words of its own
        is_certain = not known.opaque and (is_file or not typed.isdisjoint(missing))
        severity = Severity.WRONG if is_certain else Severity.DOUBTFUL
        yield Finding(
            Code.UNNAMED_VALUE,
            severity,
            f"{name} compares {quoted(text)}, and neither the instruction nor the set-up has "
            f"{_listed(missing)}: name the value in the instruction",
        )


def _without_desktop_ids(text: str, known: Known) -> str:
    """Return a text without names of desktop files if a word of one of them is known."""
    ids = {one: words_of(one.removesuffix(".desktop")) for one in _DESKTOP_ID.findall(text)}
    return (
        _DESKTOP_ID.sub(" ", text) if any(known.has(word) for one in ids.values() for word in one) else text
    )


def _numbers(name: str, text: str, view: View, known: Known) -> Iterator[Finding]:
    """Yield a finding for a number that is not named, and that nothing in the task can give."""
    found = numbers_of(text) - known.numbers - {"0", "1"}
    if not found or known.data or len(numbers_of(view.instruction)) > 1:
        return
    yield Finding(
        Code.UNNAMED_VALUE,
        Severity.DOUBTFUL,
        f"{name} compares {_listed(found)}, and the task has no numbers from which to compute it: name the "
        "number in the instruction",
    )


def _listed(values: Iterable[str]) -> str:
    return ", ".join(map(quoted, sorted(values)[:5]))
