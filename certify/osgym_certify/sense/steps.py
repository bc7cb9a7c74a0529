"""Checks of set-up and postconfig steps: waits, passwords, commands that need a shell. Pure."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from pathlib import PurePosixPath
from typing import Any

from osgym_certify.sense.base import Code, Finding, Severity, View, quoted

_WITHOUT_WINDOW = frozenset(
    {"bash", "chmod", "cp", "kill", "killall", "mkdir", "mv", "nohup", "pkill", "python", "python3", "rm",
     "sh", "socat", "ssh-agent", "sudo", "touch", "xsel"}
)  # fmt: skip
_WAITS = frozenset(
    {"activate_window", "chrome_close_tabs", "chrome_open_tabs", "close_window", "execute_with_verification"}
)
_WAITING_COMMAND = re.compile(
    r"\bxdotool\b.*--sync|\b(?:until|while|for)\b.*\b(?:wmctrl|xdotool|xprop|pgrep)\b", re.S
)
_SLEEPS = re.compile(r"\bsleep\s*\(?\s*\d")
_LOOPS = re.compile(r"\b(?:for|while|until)\b")
_PASSWORD = re.compile(r"\{CLIENT_PASSWORD\}|\bsudo\s+(?:-\w+\s+)*-\w*S|\|\s*sudo\b")
_OPERATORS = frozenset({"|", "||", "&&", ";", ">", ">>", "<", "2>", "2>&1", "&"})
_OPERATOR = re.compile(r"\s(?:\||\|\||&&|>|>>)\s")
_SHELLS = frozenset({"bash", "dash", "sh", "zsh", "env", "sudo", "su", "python", "python3"})


def steps(view: View) -> Iterator[Finding]:
    """Yield the findings about the task's steps and commands."""
    yield from _unawaited(view)
    yield from _sleeps(view)
    yield from _passwords(view)
    yield from _without_shell(view)


def _unawaited(view: View) -> Iterator[Finding]:
    for place, step in enumerate(view.setup):
        if step.type != "launch" or not step.command.strip():
            continue
        program = PurePosixPath(step.command.split()[0]).name
        later = view.setup[place + 1 :]
        if program in _WITHOUT_WINDOW or any(_waits(one.type, one.command, one.parameters) for one in later):
            continue
        sleeps = any(one.type == "sleep" for one in later)
        how = "only sleeps" if sleeps else "does not wait"
        text = (
            f"{step.place} launches {quoted(program)}, and the set-up {how} for its window: "
            "add execute_with_verification with window_exists"
        )
        yield Finding(Code.NO_WAIT, Severity.DOUBTFUL, text)


def _waits(kind: str, command: str, parameters: Mapping[str, Any]) -> bool:
    return kind in _WAITS or bool(parameters.get("until")) or _WAITING_COMMAND.search(command) is not None


def _sleeps(view: View) -> Iterator[Finding]:
    for step in view.postconfig:
        slept = _SLEEPS.search(step.command)
        if step.type == "sleep" or (slept and not _LOOPS.search(step.command)):
            text = (
                f"{step.place} waits for a fixed time, which is too short on a busy host: "
                "wait for the event (execute_with_verification, or execute with until)"
            )
            yield Finding(Code.SLEEP, Severity.DOUBTFUL, text)


def _passwords(view: View) -> Iterator[Finding]:
    commands = [(f"{step.place}.parameters.command", step.command) for step in view.steps]
    commands += [(f"evaluator.result{check.place}.command", check.command) for check in view.checks]
    for field, command in commands:
        if found := _PASSWORD.search(command):
            text = (
                f"{field} needs the password of the desktop's user ({quoted(found[0])}), which a desktop may "
                "not have: do it without sudo"
            )
            yield Finding(Code.PASSWORD, Severity.DOUBTFUL, text)


def _without_shell(view: View) -> Iterator[Finding]:
    commands = [(f"{step.place}.parameters", step.parameters) for step in view.steps]
    commands += [(f"evaluator.result{check.place}", check.result) for check in view.checks]
    for field, parameters in commands:
        if found := _operator(parameters):
            text = (
                f"{field}.command gives {quoted(found)} to the program as an argument, since no shell reads "
                'it: add "shell": true and write the command as one text'
            )
            yield Finding(Code.NO_SHELL, Severity.WRONG, text)


def _operator(parameters: Mapping[str, Any]) -> str:
    """Return the operator of a shell in a command that no shell reads, or an empty text."""
    command = parameters.get("command", "")
    if str(parameters.get("shell", "")).casefold() == "true":
        return ""
    if isinstance(command, str):
        found = _OPERATOR.search(command)
        first = command.split()[0] if command.split() else ""
        return found[0].strip() if found and PurePosixPath(first).name not in _SHELLS else ""
    words = [str(word) for word in command]
    if not words or PurePosixPath(words[0]).name in _SHELLS:
        return ""
    return next((word for word in words[1:] if word in _OPERATORS), "")
