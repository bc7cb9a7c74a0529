"""Fields of a request. A missing field, or one of the wrong kind, is a 400 that names it."""

from __future__ import annotations

from typing import Any

from osgym_guest.http import bad as bad
from osgym_guest.osworld.process import Command
from osgym_guest.osworld.session import DesktopSession


def text(data: dict[str, Any], name: str) -> str:
    """Return a required, non-empty string."""
    value = data.get(name)
    if not isinstance(value, str) or not value:
        raise bad(f"{name} is required, as a string")
    if "\0" in value:
        raise bad(f"{name} has a NUL character in it")
    return value


def number(data: dict[str, Any], name: str, default: float, *, low: float, high: float) -> float:
    """Return an optional number between `low` and `high`."""
    value = data.get(name, default)
    if isinstance(value, bool) or not isinstance(value, (int, float)) or not low <= value <= high:
        raise bad(f"{name} must be a number from {low:g} to {high:g}")
    return float(value)


def flag(data: dict[str, Any], name: str) -> bool:
    """Return an optional boolean, also from the strings that people write for one."""
    value = data.get(name, False)
    if isinstance(value, str):
        return value.strip().lower() in ("true", "1", "yes", "on")
    return bool(value)


def command(data: dict[str, Any], session: DesktopSession) -> tuple[Command, bool]:
    """Return the command of a request, with words expanded, and whether a shell runs it."""
    shell = flag(data, "shell")
    value = data.get("command")
    if isinstance(value, str) and not shell:
        import shlex

        try:
            value = shlex.split(value)
        except ValueError as exc:
            raise bad(f"command cannot be split into words: {exc}") from exc
    words = [value] if isinstance(value, str) else value
    if not isinstance(words, list) or not words or not all(isinstance(word, str) for word in words):
        raise bad("command is required, as a string or a list of strings")
    if not words[0] or any("\0" in word for word in words):
        raise bad("command has an empty name or a NUL character in it")
    if isinstance(value, str):
        return value, shell
    return [session.expand_home(word) if word.startswith("~/") else word for word in words], shell
