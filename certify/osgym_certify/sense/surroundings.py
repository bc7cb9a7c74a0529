"""Checks that a task does not depend on the date, the network, the screen or the locale. Pure."""

from __future__ import annotations

import ipaddress
import re
from collections.abc import Iterator, Mapping
from typing import Any

from osgym_certify.sense.base import Code, Finding, Severity, View, command_text, leaves, quoted

_QUOTED = re.compile(r"\"[^\"]*\"|“[^”]*”|'[^']{2,}'(?!\w)")
_DATES = re.compile(
    r"(?<![\w./-])(today|tonight|tomorrow|yesterday|right now|(?:this|(?<!the )next|(?<!the )last|coming) "
    r"(?:week|month|year|weekend|monday|tuesday|wednesday|thursday|friday|saturday|sunday)|"
    r"(?:current|present) (?:date|time|day|month|year)|\w+ (?:days?|weeks?|months?) (?:ago|from now))"
    r"(?![\w/]|\.\w)",
    re.IGNORECASE,
)
_TIME_CALLS = re.compile(
    r"\bdate\s+(?:-[du]\b|\+|--)|\bdatetime\.(?:now|today|utcnow)|\bdate\.today|\btime\.time\("
)
_URL = re.compile(r"\b(?:https?|ftp)://(\[[0-9a-fA-F:]+\]|[^\s/\"'<>:\\?#)]+)")
_INSTALLS = re.compile(r"\b(?:apt(?:-get)?|pip3?|npm|snap)\s+install\b(?!\s+[/~.])|\bgit\s+clone\b|\bwget\b")
_SITES = frozenset(
    {
        "cloud_file",
        "info_from_website",
        "gotoRecreationPage_and_get_html_content",
        "pdf_from_url",
        "page_info",
    }
)
_POINTS = re.compile(
    r"\bpyautogui\.(?:\w*[cC]lick|moveTo|dragTo|move|drag)\(\s*(?:x\s*=\s*)?-?\d|\bxdotool\b[^;|&]*\bmousemove\b"
    r"[^;|&]*\s\d"
)
_SIZES = frozenset({"vm_screen_size", "vm_window_size"})
_PLACE = re.compile(
    r"\bcoordinates?\b|\(\s*\d{2,4}\s*,\s*\d{2,4}\s*\)|\bat \d{2,4}\s*[,x×]\s*\d{2,4}\b", re.IGNORECASE
)
_SORTS = re.compile(r"(?:^|[|;&(]\s*)sort\b|\bdate\s+['\"]?\+[^'\"]*%[aAbBcxXpr]")
_SETS_LOCALE = re.compile(r"\b(?:LC_ALL|LC_COLLATE|LC_TIME|LANG)=")


def surroundings(view: View) -> Iterator[Finding]:
    """Yield a finding for each thing outside the task that its result depends on."""
    yield from _clock(view)
    yield from _network(view)
    yield from _screen(view)
    yield from _locale(view)


def _clock(view: View) -> Iterator[Finding]:
    if view.task.osgym.clock is not None:
        return
    remedy = "set osgym.clock to a fixed time, or name the date"
    if word := _DATES.search(_QUOTED.sub(" ", view.instruction)):
        yield Finding(Code.CLOCK, Severity.DOUBTFUL, f"instruction says {quoted(word[0])}: {remedy}")
    for check in view.checks:
        for name, getter in (("result", check.result), ("expected", check.expected)):
            field = f"evaluator.{name}{check.place}"
            if getter.get("type") == "rule_relativeTime":
                text = f"{field} counts days from the day of the check (rule_relativeTime): {remedy}"
                yield Finding(Code.CLOCK, Severity.DOUBTFUL, text)
            elif call := _TIME_CALLS.search(command_text(getter.get("command", ""))):
                text = f"{field}.command asks for the time by {quoted(call[0])}: {remedy}"
                yield Finding(Code.CLOCK, Severity.DOUBTFUL, text)


def _network(view: View) -> Iterator[Finding]:
    for step in view.steps:
        if step.type == "download":
            text = (
                f"{step.place} downloads files of which the task has no digest, so they may change or go: "
                "upload them with the task (upload_file)"
            )
            yield Finding(Code.NETWORK, Severity.DOUBTFUL, text)
        elif step.type != "upload_file":
            yield from _sites(step.place, step.parameters)
    for check in view.checks:
        for name, getter in (("result", check.result), ("expected", check.expected)):
            if getter.get("type") in _SITES or "command" in getter:
                yield from _sites(f"evaluator.{name}{check.place}", getter)


def _sites(field: str, parameters: Mapping[str, Any]) -> Iterator[Finding]:
    """Yield one finding for the sites of a step or a getter."""
    commands = command_text(parameters.get("command", ""))
    texts = [str(value) for _, value in leaves(parameters, field)]
    sites = {site for text in texts for site in _URL.findall(text) if not _is_local(site)}
    sites |= {f"{found} …" for found in _INSTALLS.findall(commands)}
    if sites:
        named = ", ".join(map(quoted, sorted(sites)[:5]))
        text = (
            f"{field} needs the internet ({named}): bring the content with the task, or serve a recorded site"
        )
        yield Finding(Code.NETWORK, Severity.DOUBTFUL, text)


def _is_local(site: str) -> bool:
    site = site.rpartition("@")[2].strip("[]").casefold()
    try:
        return ipaddress.ip_address(site).is_loopback
    except ValueError:
        return site == "localhost" or site.endswith((".localhost", ".example", ".test", ".invalid"))


def _screen(view: View) -> Iterator[Finding]:
    remedy = "ask for the element by its name, or compare what does not depend on the screen"
    texts = [(step.place, step.command) for step in view.steps]
    texts += [(f"evaluator.result{check.place}.command", check.command) for check in view.checks]
    for field, text in texts:
        if found := _POINTS.search(text):
            message = f"{field} points at pixels ({quoted(found[0])}): {remedy}"
            yield Finding(Code.SCREEN, Severity.DOUBTFUL, message)
    for check in view.checks:
        if (kind := check.result.get("type")) in _SIZES:
            message = f"evaluator.result{check.place} depends on the size of the screen ({kind}): {remedy}"
            yield Finding(Code.SCREEN, Severity.DOUBTFUL, message)
    if found := _PLACE.search(_QUOTED.sub(" ", view.instruction)):
        message = f"instruction names a place on the screen ({quoted(found[0])}): {remedy}"
        yield Finding(Code.SCREEN, Severity.DOUBTFUL, message)


def _locale(view: View) -> Iterator[Finding]:
    for check in view.checks:
        for name, getter in (("result", check.result), ("expected", check.expected)):
            command = command_text(getter.get("command", ""))
            if (found := _SORTS.search(command)) and not _SETS_LOCALE.search(command):
                text = (
                    f"evaluator.{name}{check.place}.command depends on the locale ({quoted(found[0])}): "
                    "set LC_ALL=C in the command"
                )
                yield Finding(Code.LOCALE, Severity.DOUBTFUL, text)
