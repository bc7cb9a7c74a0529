"""What families are put together from: set-up steps, actions and checks in OSWorld's format."""

from __future__ import annotations

import hashlib
import shlex
from collections.abc import Mapping
from typing import Any

HOME = "/home/user"
DONE: list[dict[str, Any]] = [{"op": "done"}]


def upload(files: Mapping[str, str]) -> dict[str, Any]:
    """Put texts there, by absolute path."""
    listed = [{"path": path, "text": text} for path, text in files.items()]
    return {"type": "upload_file", "parameters": {"files": listed}}


def execute(*argv: str) -> dict[str, Any]:
    """Run a command before the first screen."""
    return {"type": "execute", "parameters": {"command": list(argv)}}


def launch(window: str, *argv: str) -> list[dict[str, Any]]:
    """Start an application and wait for a window with this in its title."""
    wait = {
        "command": ["true"],
        "verification": {"window_exists": window},
        "max_wait_time": 30,
        "check_interval": 0.1,
    }
    return [
        {"type": "launch", "parameters": {"command": list(argv)}},
        {"type": "execute_with_verification", "parameters": wait},
    ]


def key(*keys: str) -> dict[str, Any]:
    """Press keys together."""
    return {"op": "key", "keys": list(keys)}


def line(text: str) -> list[dict[str, Any]]:
    """A step that types a line and ends it with Enter."""
    return [{"op": "type", "text": text, "press_enter": True}]


def outputs(expected: Mapping[tuple[str, ...], str]) -> dict[str, Any]:
    """Check that commands print these texts in the end, all of them, byte for byte."""
    return {
        "func": ["exact_match"] * len(expected),
        "conj": "and",
        "result": [{"type": "vm_command_line", "command": list(argv)} for argv in expected],
        "expected": [{"type": "rule", "rules": {"expected": text}} for text in expected.values()],
    }


def tree_outputs(root: str, files: Mapping[str, str]) -> dict[str, Any]:
    """Check that a folder holds these files, by path within it, with these texts, and no others."""
    sums = sorted(f"{hashlib.sha256(text.encode()).hexdigest()}  ./{path}\n" for path, text in files.items())
    look = f"cd {shlex.quote(root)} && find . -type f -exec sha256sum {{}} + | LC_ALL=C sort"
    return outputs({("bash", "-c", look): "".join(sums)})
