"""Task templates: the set-ups whose result later episodes may clone, and their keys. Pure.

Only what the task file says is looked at: what a program or a script that it starts does inside is not seen.
A task whose state must be made anew each time for such a reason says `"osgym": {"template": false}`.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Mapping, Sequence
from typing import Any

from osgym_host.tasks.schema import Task
from osgym_host.tasks.steps import CommandParameters, ExecuteVerifiedParameters, UploadParameters

KEY_VERSION = 1
"""Goes up when what a template holds changes its meaning."""

REPEATABLE = frozenset(
    {
        "activate_window",
        "change_wallpaper",
        "chrome_close_tabs",
        "chrome_open_tabs",
        "close_window",
        "command",
        "execute",
        "execute_with_verification",
        "keep_file",
        "launch",
        "open",
        "record_folder",
        "sleep",
        "upload_file",
    }
)
"""Setup steps that leave the same behind each time (commands only when `_VARIES` finds nothing in them)."""
NOT_REPEATABLE: Mapping[str, str] = {
    "download": "the content of a web address may change or expire",
    "update_browse_history": "its visits are dated relative to now",
}
"""Setup steps that do not, with the reason."""
_VARIES = re.compile(
    r"\b(?:date|uuidgen|mktemp|shuf|openssl\s+rand|strftime|localtime|gmtime|datetime|faketime)\b"
    r"|\$\{?(?:RANDOM|SRANDOM|EPOCH\w+|SECONDS|BASHPID|\$)"
    r"|\bsort\s+(?:-\w*R|--random-sort)"
    r"|/dev/u?random\b|/proc/sys/kernel/random\b"
    r"|\b(?:random|secrets|uuid)\.|\bimport\s+(?:random|secrets|uuid)\b|\bfrom\s+(?:random|secrets|uuid)\b"
    r"|\btime\.(?:time|monotonic|now)|\bDate\.now\b|\bMath\.random\b|\bnow\("
)
"""Words by which commands get random values or the time. A needless match costs one set-up."""


def why_no_template(task: Task | None, *, has_clock: bool, connects: bool) -> str | None:
    """Return why the state after this set-up cannot be cloned for later episodes; None if it can.

    Args:
        has_clock: The desktop is given a time, by the task or its client.
        connects: Replicas of this host may connect out: what they loaded or hold open is of its time.
    """
    if task is None or not task.config:
        return "there is no set-up"
    if not task.osgym.template:
        return "the task says osgym.template: false"
    if has_clock or task.osgym.clock is not None:
        return "the episode sets the desktop's clock"
    if connects:
        return "replicas of this host have egress"
    for index, step in enumerate(task.config):
        if step.type in NOT_REPEATABLE:
            return f"step {index}, {step.type}: {NOT_REPEATABLE[step.type]}"
        if step.type not in REPEATABLE:
            return f"step {index}: an extension's step may not have the same result each time"
        if found := _VARIES.search(_commands(step.parameters)):
            return f"step {index}, {step.type}: {found.group()[:40]} has another value each time"
    return None


def _commands(parameters: Any) -> str:
    if not isinstance(parameters, CommandParameters):
        return ""
    command = parameters.command
    text = command if isinstance(command, str) else "\n".join(command)
    if isinstance(parameters, ExecuteVerifiedParameters):
        text += "\n" + (parameters.verification.command_success or "")
    return text


def host_files(task: Task) -> list[str]:
    """Return the names of the host's files that the set-up uploads, as the task gives them."""
    return [
        file.local_path
        for step in task.config
        if isinstance(step.parameters, UploadParameters)
        for file in step.parameters.files
        if file.local_path is not None
    ]


def template_key(
    given: Mapping[str, Any], *, image_digest: str, screen: tuple[int, int], files: Sequence[Sequence[int]]
) -> str:
    """Return the key of the template that set-ups with the same result share (hexadecimal).

    Id, instruction and evaluator of a task have no part in it.

    Args:
        given: The task as its client sent it.
        image_digest: Of what the replicas are clones of: an image, or a snapshot of one.
        screen: Width and height in pixels.
        files: What tells each of `host_files` from another one of its name, in their order.
    """
    parts = {
        "version": KEY_VERSION,
        "image": image_digest,
        "screen": list(screen),
        "files": [list(marks) for marks in files],
        **{name: given.get(name) for name in ("config", "osgym", "x_osgym", "snapshot")},
    }
    text = json.dumps(parts, sort_keys=True, separators=(",", ":"))
    return hashlib.sha256(text.encode()).hexdigest()
