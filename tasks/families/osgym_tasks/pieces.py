"""Building blocks of families: set-up steps, actions and checks in OSWorld's format."""

from __future__ import annotations

import base64
import hashlib
import shlex
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

HOME = "/home/user"
DONE: list[dict[str, Any]] = [{"op": "done"}]
FAIL: list[dict[str, Any]] = [{"op": "fail"}]
"""Last step of an oracle where the evaluator is one of `infeasible`."""
NO_ROOT = """sed -i /NOPASSWD/d /etc/sudoers /etc/sudoers.d/*
passwd -q -l user
"""
"""Shell commands, run as root, after which nobody at the desktop can become root."""


def upload(files: Mapping[str, str | bytes]) -> dict[str, Any]:
    """Write texts or bytes to files, by absolute path."""
    listed = [
        {"path": path, "text": data}
        if isinstance(data, str)
        else {"path": path, "data_base64": base64.b64encode(data).decode()}
        for path, data in files.items()
    ]
    return {"type": "upload_file", "parameters": {"files": listed}}


def execute(*argv: str) -> dict[str, Any]:
    """Run a command before the first screen."""
    return {"type": "execute", "parameters": {"command": list(argv)}}


def launch(window: str, *argv: str, wait_s: int = 30) -> list[dict[str, Any]]:
    """Start an application and wait for a window with this in its title."""
    wait = {
        "command": ["true"],
        "verification": {"window_exists": window},
        "max_wait_time": wait_s,
        "check_interval": 0.1,
    }
    return [
        {"type": "launch", "parameters": {"command": list(argv)}},
        {"type": "execute_with_verification", "parameters": wait},
    ]


def without_last_wait(actions: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Return a step without the pause at its end, for a policy that waits for final screens anyway."""
    kept = list(actions)
    while len(kept) > 1 and kept[-1]["op"] == "wait":
        kept.pop()
    return kept


def place(window_class: str, x_px: int, y_px: int, width_px: int, height_px: int) -> list[dict[str, Any]]:
    """Move the window of a class (`name.Class`, as `wmctrl -lx` shows it), and make it the active one."""
    box = f"0,{x_px},{y_px},{width_px},{height_px}"
    return [
        execute("wmctrl", "-x", "-r", window_class, "-e", box),
        execute("wmctrl", "-x", "-a", window_class),
    ]


def key(*keys: str) -> dict[str, Any]:
    return {"op": "key", "keys": list(keys)}


def switch() -> list[dict[str, Any]]:
    """Return a step that goes to the previously used window, and gives it time to take keys."""
    return [key("alt", "tab"), {"op": "wait", "duration_ms": 700}]


def line(text: str) -> list[dict[str, Any]]:
    """Return a step that types a line and ends it with Enter."""
    return [{"op": "type", "text": text, "press_enter": True}]


def vm_file(path: str) -> dict[str, Any]:
    """Return the getter of a file of the desktop."""
    return {"type": "vm_file", "path": path, "dest": path.rpartition("/")[2]}


@dataclass(frozen=True, slots=True)
class Kept:
    """Output or file that a set-up step kept under this name, in place of rules.

    Attributes:
        options: Options of the metric.
    """

    name: str
    options: Mapping[str, Any] = field(default_factory=dict)


def keep_file(path: str, name: str) -> dict[str, Any]:
    """Keep a file as it is at this step of the set-up, for a check with `Kept`."""
    return {"type": "keep_file", "parameters": {"path": path, "dest": name}}


def every(*checks: tuple[str, Mapping[str, Any], Any]) -> dict[str, Any]:
    """Check that all of these hold: a metric, the getter of its result, and its rules or a `Kept` output."""
    options = [dict(rules.options) if isinstance(rules, Kept) else {} for _, _, rules in checks]
    return {
        "func": [func for func, _, _ in checks],
        "conj": "and",
        "result": [dict(getter) for _, getter, _ in checks],
        "expected": [
            {"type": "cache_file", "path": rules.name}
            if isinstance(rules, Kept)
            else {"type": "rule", "rules": rules}
            for _, _, rules in checks
        ],
        **({"options": options} if any(options) else {}),
    }


def infeasible(*unchanged: tuple[str, Mapping[str, Any], Any]) -> dict[str, Any]:
    """Check that the policy gave up, as is right where a task cannot be done, and that these checks hold.

    Args:
        unchanged: Checks, as `every` takes them, of changes that the check of the home does not see: in local
            services, outside the home, or files that were added.
    """
    checks = every(*unchanged)
    return {
        **checks,
        "func": ["infeasible", *checks["func"]],
        "result": [{}, *checks["result"]],
        "expected": [{}, *checks["expected"]],
        **({"options": [{}, *checks["options"]]} if "options" in checks else {}),
    }


def checkpoints(
    parts: Sequence[tuple[float, tuple[str, Mapping[str, Any], Any]]],
    conditions: Sequence[tuple[str, Mapping[str, Any], Any]] = (),
) -> dict[str, Any]:
    """Give credit for each part that holds, by its weight, if all conditions hold.

    Args:
        parts: Weight and check, as `every` takes it; none may hold before the policy acts.
    """
    weights = [*(weight for weight, _ in parts), *(0 for _ in conditions)]
    checks = every(*(check for _, check in parts), *conditions)
    return {**checks, "conj": "partial", "weights": weights}


def output_check(argv: Sequence[str], text: str) -> tuple[str, dict[str, Any], dict[str, Any]]:
    """Return the check, for `every`, that a command prints this text, byte for byte."""
    return "exact_match", {"type": "vm_command_line", "command": list(argv)}, {"expected": text}


def outputs(expected: Mapping[tuple[str, ...], str]) -> dict[str, Any]:
    """Check that all of these commands print these texts in the end, byte for byte."""
    return every(*(output_check(argv, text) for argv, text in expected.items()))


def text_check(path: str, text: str, **rules: Any) -> tuple[str, dict[str, Any], dict[str, Any]]:
    """Return the check, for `every`, that a file has these lines; their line ends do not count.

    Args:
        text: Lines, each ended by a line feed.
        rules: Further rules of `check_text_lines`.
    """
    return "check_text_lines", vm_file(path), {"lines": text.removesuffix("\n").split("\n"), **rules}


def form_counts(why: str) -> dict[str, str]:
    """Return what `Draft.allows` where line ends and the byte order mark of a text count, for this reason."""
    return {"text: line ends changed to *": why, "text: byte order mark *": why}


def tree_check(
    root: str, files: Mapping[str, str | bytes], *, are_texts: bool = False, left_out: str | None = None
) -> tuple[str, dict[str, Any], dict[str, Any]]:
    """Return the check, for `every`, that a folder holds these files with these contents, and no others.

    Args:
        are_texts: All files are texts, whose last line may lack its end.
        left_out: Name of a file in the folder that is not compared.
    """
    contents = {path: data.encode() if isinstance(data, str) else data for path, data in files.items()}
    sums = sorted(f"{hashlib.sha256(data).hexdigest()}  ./{path}\n" for path, data in contents.items())
    found = "-exec sha256sum {} +"
    if are_texts:
        found = r"""-exec sh -c 'echo "$(sed "\$a\\" "$0" | sha256sum | cut -c -64)  $0"' {} \;"""
    which = "" if left_out is None else f"! -path {shlex.quote(f'./{left_out}')} "
    look = f"cd {shlex.quote(root)} && find . -type f {which}{found} | LC_ALL=C sort"
    return output_check(("bash", "-c", look), "".join(sums))
