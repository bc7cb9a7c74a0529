"""Warm programs: those that can run before a task needs them, and their scripts. Pure.

Such a process shows no window. The command that a task's set-up starts the application with finds it, as a
second start on anybody's desktop does, hands it what to open and ends.
"""

from __future__ import annotations

import shlex
from collections.abc import Sequence
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class WarmProgram:
    """Program that can run without a window until it is needed.

    Attributes:
        name: Name for people; at most one process of it is started.
        commands: Names that tasks start it by.
        start: Command of the start without a window; options of the setting follow.
        is_up: Shell condition that holds once a second start would find it.
        processes: Names of its processes, as `pkill` compares them: an extended regular expression.
        folders: Folders that it writes, below the user's home.
        leftovers: Shell patterns of files that its end leaves elsewhere.
        options: Options of a task's command that a running instance accepts.
        implied: Options without effect, since every start has them.
        has_no_sandbox: True if CRIU can dump a desktop in which it runs.
        takes_options: True if an operator may set options of its start.
        fixed: Prefixes of options that an operator must not set, since it is not found or writes elsewhere.
        suffixes: Suffixes of files that `open` gives to it, and that commands may name.
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
    fixed: tuple[str, ...] = ()
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
    fixed=("--user-data-dir", "--disk-cache-dir", "--headless", "--no-startup-window"),
)
NAMES = {"calc": OFFICE, "writer": OFFICE, "impress": OFFICE, "chromium": CHROMIUM}
"""Names that the setting `warm_apps` may have."""


@dataclass(frozen=True, slots=True)
class WarmApp:
    """Program with the options of its start."""

    program: WarmProgram
    options: frozenset[str] = frozenset()

    def takes(self, command: Sequence[str]) -> bool:
        """Return whether a task's command opens a window of the running program as if it had started it.

        A start with other options would not get them; one with nothing to open shows something else.
        """
        if not command or command[0] not in self.program.commands:
            return False
        words = set(command[1:]) - self.program.implied
        options = {word for word in words if word.startswith("-")}
        if self.program.takes_options:
            return options == self.options
        files = words - options
        named = all(file.lower().endswith(self.program.suffixes) for file in files)
        return bool(words) and options <= self.program.options and named


def parse_warm_apps(entries: Sequence[str]) -> tuple[WarmApp, ...]:
    """Parse the setting: names of `NAMES`, some with options: `chromium --remote-debugging-port=1337`.

    Raises:
        ValueError: A name is unknown, takes no options, or comes with two sets of options.
    """
    found: dict[str, WarmApp] = {}
    for entry in entries:
        name, *options = shlex.split(entry) or [""]
        program = NAMES.get(name)
        if program is None:
            raise ValueError(f"{name!r} cannot be a warm application; valid names: {', '.join(NAMES)}")
        for word in options:
            if not program.takes_options or not word.startswith("--") or word.startswith(program.fixed):
                raise ValueError(f"{name} cannot be started with {word!r} here")
        app = WarmApp(program, frozenset(options) - program.implied)
        if found.setdefault(program.name, app) != app:
            raise ValueError(f"{program.name} runs only once in a desktop: give it one set of options")
    return tuple(found.values())


_END_S = 5
"""Longest wait for a killed program to end."""
_KEPT = '"${XDG_RUNTIME_DIR:-/tmp}"/osgym-warm'
"""Folder with copies of the programs' folders before their start, and times of the folders above."""
_ABOVE = (".", ".config", ".cache")


def start_script(app: WarmApp) -> str:
    """Return the script that copies the program's folders before its start."""
    kept = f"{_KEPT}/{app.program.name}"
    lines = ["set -e", 'cd "$HOME"', f"mkdir -p {_KEPT}/times {kept}.part"]
    for number, path in enumerate(_ABOVE):
        time = f"{_KEPT}/times/{number}"
        lines.append(f"test -e {time} || test ! -e {path} || touch -r {path} {time}")
    lines += [f"test ! -e {path} || cp -a --parents {path} {kept}.part/" for path in app.program.folders]
    lines.append(f"mv {kept}.part {kept}")
    return "\n".join(lines)


def start_command(app: WarmApp) -> list[str]:
    return [*app.program.start, *sorted(app.options)]


def hand_over_script(used: Sequence[WarmApp], unused: Sequence[WarmApp]) -> str:
    """Return the script that ends unused programs without a trace before a desktop is leased."""
    lines = ['cd "$HOME" || exit 1', *(line for app in unused for line in _end_lines(app.program))]
    if not used:
        lines += _times_back()
    if used or unused:
        lines.append(f"rm -rf {_KEPT}")
    return "\n".join(lines)


def end_script(app: WarmApp) -> str:
    """Return the script that ends one program without a trace, started or not; others stay."""
    kept = f"{_KEPT}/{app.program.name}"
    lines = ['cd "$HOME" || exit 1', *_end_lines(app.program), f"rm -rf {kept} {kept}.part"]
    lines += [f'if test "$(ls {_KEPT})" = times; then', *_times_back(), f"rm -rf {_KEPT}", "fi"]
    return "\n".join(lines)


def _times_back() -> list[str]:
    """Restore the times of the folders above those that programs wrote."""
    times = [(f"{_KEPT}/times/{number}", path) for number, path in enumerate(_ABOVE)]
    return [f"test ! -e {time} || touch -r {time} {path}" for time, path in times]


def _end_lines(program: WarmProgram) -> list[str]:
    """Kill the program, wait, and restore its folders if their copies show that it was started."""
    kept = f"{_KEPT}/{program.name}"
    back = [f'test ! -e {path} || cp -a --parents {path} "$HOME"/ || exit 4' for path in program.folders]
    return [
        f"if test -d {kept}; then",
        f"pkill -KILL -x '{program.processes}'",
        f"timeout {_END_S} pidwait -x '{program.processes}'",
        "test $? -lt 2 || exit 2",
        f"rm -rf {' '.join((*program.folders, *program.leftovers))} || exit 3",
        f"cd {kept} || exit 4",
        *back,
        'cd "$HOME" || exit 1',
        "fi",
    ]
