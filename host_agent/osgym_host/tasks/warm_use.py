"""Choice of the running programs that a task's set-up can use instead of starting them. Pure.

Only where nothing that comes before could have changed what the program read at its start: else it is ended
and the set-up starts it as ever.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import PurePosixPath

from osgym_host.core.warm_apps import WarmApp
from osgym_host.tasks.schema import Step, Task
from osgym_host.tasks.steps import (
    CommandParameters,
    DownloadParameters,
    ExecuteVerifiedParameters,
    PathParameters,
    UploadParameters,
)

_HARMLESS_STEPS = frozenset(
    {"activate_window", "change_wallpaper", "close_window", "keep_file", "record_folder", "sleep"}
)
_HARMLESS_COMMANDS = frozenset(
    {"featherpad", "galculator", "gimp", "mousepad", "pcmanfm", "ristretto", "sleep", "true", "vlc", "wmctrl"}
)
"""Programs that change no settings of the office suite or the browser when they are just started."""
_OPTIONS_HARMLESS = frozenset({"sleep", "true", "wmctrl"})
"""Those of them that cannot be told to do anything else by an option, as GIMP can by `--batch`."""


def used_apps(task: Task | None, apps: Sequence[WarmApp], *, has_clock: bool) -> list[WarmApp]:
    """Return those of `apps` that the set-up of a task opens and may take as they are.

    Args:
        has_clock: The desktop is given a time, by the task or its client: what runs has another.
    """
    if task is None or has_clock or task.osgym.clock is not None:
        return []
    used: list[WarmApp] = []
    for step in task.config:
        opened = [app for app in apps if _opens(step, app)]
        used += [app for app in opened if app not in used]
        if not opened and not _is_harmless(step):
            break
    return used


def _opens(step: Step, app: WarmApp) -> bool:
    parameters = step.parameters
    if step.type == "open" and isinstance(parameters, PathParameters):
        return parameters.path.lower().endswith(app.program.suffixes) if app.program.suffixes else False
    if step.type != "launch" or not isinstance(parameters, CommandParameters) or parameters.shell:
        return False
    return not isinstance(parameters.command, str) and app.takes(parameters.command)


def _is_harmless(step: Step) -> bool:
    """Return whether a step changes no program's settings, as far as the task file shows it."""
    parameters = step.parameters
    if isinstance(parameters, UploadParameters | DownloadParameters):
        return all(_is_plain(file.path) for file in parameters.files)
    if isinstance(parameters, ExecuteVerifiedParameters) and parameters.verification.command_success:
        return False
    if isinstance(parameters, CommandParameters):
        command = parameters.command
        if parameters.shell or isinstance(command, str) or command[0] not in _HARMLESS_COMMANDS:
            return False
        return command[0] in _OPTIONS_HARMLESS or not any(word.startswith("-") for word in command[1:])
    return step.type in _HARMLESS_STEPS


def _is_plain(path: str) -> bool:
    """Return whether a path is in the user's home, but in no hidden folder, where settings are."""
    parts = PurePosixPath(path).parts
    return parts[:2] == ("/", "home") and not any(part.startswith(".") for part in parts)
