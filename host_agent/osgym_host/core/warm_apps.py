"""Programs that run in warm replicas before anybody asks for them: which can, and the scripts for them. Pure.

Such a process shows no window. The command that a task's set-up starts the application with finds it, as a
second start on anybody's desktop does, hands it what to open and ends.
"""

from __future__ import annotations

import shlex
from collections.abc import Sequence
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class WarmProgram:
    """A program that can run without a window until it is needed.

    Attributes:
        name: For people; at most one process of it is started.
        commands: Names that tasks start it by.
        start: How it is started without a window; options of the setting follow.
        is_up: Shell condition that holds once a second start would find it.
        processes: Names of its processes, as `pkill` compares them: an extended regular expression.
        folders: Where it writes, below the user's home.
        leftovers: What its end leaves elsewhere, as patterns of the shell.
        options: Options of a task's command that it takes when it runs already.
        implied: Options that say nothing, since every start has them.
        has_no_sandbox: Whether a desktop in which it runs can be dumped by CRIU.
        takes_options: Whether an operator may name options that it is started with.
        suffixes: Files that `open` gives to it.
    """

    name: str
    commands: frozenset[str]
    start: tuple[str, ...]
    is_up: str
    processes: str
    folders: tuple[str, ...]
    leftovers: tuple[str, ...]
    options: frozenset[str] = frozenset()
    implied: frozenset[str] = frozenset()
    has_no_sandbox: bool = False
    takes_options: bool = False
    suffixes: tuple[str, ...] = ()


OFFICE = WarmProgram(
    name="libreoffice",
    commands=frozenset({"libreoffice", "soffice", "localc", "lowriter", "loimpress"}),
    start=("soffice", "--nodefault", "--nologo", "--norestore"),
    is_up="ls /tmp/OSL_PIPE_*_SingleOfficeIPC_*",
    processes=r"soffice\.bin|oosplash",
    folders=(".config/libreoffice",),
    leftovers=("/tmp/OSL_PIPE_*", "/tmp/lu*.tmp"),  # noqa: S108 (inside a replica)
    options=frozenset({"--calc", "--writer", "--impress"}),
    implied=frozenset({"--nologo", "--norestore"}),
    has_no_sandbox=True,
    suffixes=(".xlsx", ".xls", ".ods", ".docx", ".doc", ".odt", ".pptx", ".ppt", ".odp"),
)
CHROMIUM = WarmProgram(
    name="chromium",
    commands=frozenset({"google-chrome"}),
    start=("google-chrome", "--no-startup-window", "--keep-alive-for-test"),
    is_up='test -S "$HOME/.config/google-chrome/SingletonSocket"',
    processes="chrome|chrome_crashpad",
    folders=(".config/google-chrome", ".config/chromium", ".cache/google-chrome"),
    leftovers=("/tmp/org.chromium.Chromium.*", "/tmp/.org.chromium.Chromium.*"),  # noqa: S108
    implied=frozenset({"--no-first-run", "--no-default-browser-check"}),
    takes_options=True,
)
NAMES = {"calc": OFFICE, "writer": OFFICE, "impress": OFFICE, "chromium": CHROMIUM}
"""What the setting `warm_apps` may name."""


@dataclass(frozen=True, slots=True)
class WarmApp:
    """A program with the options that it is started with."""

    program: WarmProgram
    options: frozenset[str] = frozenset()

    def takes(self, command: Sequence[str]) -> bool:
        """Whether this command of a task opens a window of it as if it had started the program.

        A start with other options would not get them; one with nothing to open shows something else.
        """
        if not command or command[0] not in self.program.commands:
            return False
        options = {word for word in command[1:] if word.startswith("-")} - self.program.implied
        if self.program.takes_options:
            return options == self.options
        return options <= self.program.options and len(command) > 1


def parse_warm_apps(entries: Sequence[str]) -> tuple[WarmApp, ...]:
    """Read the setting: names of `NAMES`, each perhaps with options: `chromium --remote-debugging-port=1337`.

    Raises:
        ValueError: A name is unknown, takes no options, or comes with two sets of options.
    """
    found: dict[str, WarmApp] = {}
    for entry in entries:
        name, *options = shlex.split(entry) or [""]
        program = NAMES.get(name)
        if program is None:
            raise ValueError(f"{name!r} cannot be kept open; these can: {', '.join(NAMES)}")
        if wrong := [word for word in options if not program.takes_options or not word.startswith("--")]:
            raise ValueError(f"{name} cannot be started with {wrong[0]!r} here")
        app = WarmApp(program, frozenset(options) - program.implied)
        if found.setdefault(program.name, app) != app:
            raise ValueError(f"{program.name} runs once in a desktop: give it one set of options")
    return tuple(found.values())


_END_S = 5
"""How long a program may take to end once it is killed."""
_KEPT = '"${XDG_RUNTIME_DIR:-/tmp}"/osgym-warm'
"""Copies of what programs had in their folders before they were started. It lies in the desktop's memory."""


def start_script(app: WarmApp) -> str:
    """Return what is run in the desktop before the program is started: its folders are copied."""
    kept = f"{_KEPT}/{app.program.name}"
    lines = ["set -e", 'cd "$HOME"', f"mkdir -p {kept}"]
    lines += [f"test ! -e {path} || cp -a --parents {path} {kept}/" for path in app.program.folders]
    return "\n".join(lines)


def start_command(app: WarmApp) -> list[str]:
    """Return the command that starts the program without a window."""
    return [*app.program.start, *sorted(app.options)]


def hand_over_script(used: Sequence[WarmApp], unused: Sequence[WarmApp]) -> str:
    """Return what is run in the desktop before it is somebody's: unused programs end without a trace."""
    lines = ['cd "$HOME" || exit 1']
    for app in unused:
        program = app.program
        lines += [
            f"pkill -KILL -x '{program.processes}'",
            f"timeout {_END_S} pidwait -x '{program.processes}'",
            "test $? -lt 2 || exit 2",
            f"rm -rf {' '.join((*program.folders, *program.leftovers))} || exit 3",
            f"cp -a {_KEPT}/{program.name}/. ./ || exit 4",
        ]
    if used or unused:
        lines.append(f"rm -rf {_KEPT}")
    return "\n".join(lines)
