"""Programs of the matrix: one for each GUI toolkit, and terminals with a real shell."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

WITNESSES = Path(__file__).resolve().parent / "witnesses"
INSIDE = "/home/user/witness"
"""Folder of the witnesses in a replica."""
LOG = f"{INSIDE}/log.jsonl"


@dataclass(frozen=True, slots=True)
class Toolkit:
    """One row of the matrix.

    Attributes:
        name: Name such as `gtk3`.
        command: Command that starts the program in the folder of the witnesses; `{log}` is the file that it
            writes.
        counts: Names that the toolkit has for the three presses of a triple click.
        shell: True for a terminal that runs a shell instead of a witness program.
        everywhere: True for a program that runs on the images `small` and `full` without the addition.
        saves_by: Chord that ends its Save As dialog, where Enter does nothing there.
    """

    name: str
    command: tuple[str, ...]
    counts: tuple[int, ...] = (1, 2, 3)
    shell: bool = False
    everywhere: bool = False
    saves_by: tuple[str, ...] = ()
    start_s: float = 20.0


def _python(name: str, **about: bool | tuple[int, ...] | tuple[str, ...]) -> Toolkit:
    return Toolkit(name, ("/usr/bin/python3", f"{name}.py", "{log}"), **about)  # type: ignore[arg-type]


def _terminal(name: str, *command: str) -> Toolkit:
    return Toolkit(name, command, shell=True, everywhere=True)


def _office(mode: str) -> Toolkit:
    command = ("/usr/bin/python3", "libreoffice.py", "{log}", "--mode", mode)
    return Toolkit(mode, command, start_s=60.0)


RCFILE = f"{INSIDE}/bashrc"
TOOLKITS = {
    toolkit.name: toolkit
    for toolkit in (
        _python("gtk2"),
        _python("gtk3"),
        _python("gtk4"),
        _python("qt5", counts=(1, 2, 1)),
        _python("qt6", counts=(1, 2, 1)),
        _python("tk", everywhere=True),
        # a module wx.py would hide the toolkit's own
        Toolkit("wx", ("/usr/bin/python3", "wxwidgets.py", "{log}"), counts=(1, 2, 1)),
        _python("x11", everywhere=True),
        _python("sdl"),
        Toolkit("swing", ("java", "Witness.java", "{log}"), start_s=60.0),
        _python("chromium", saves_by=("alt", "s")),
        _office("writer"),
        _office("calc"),
        _terminal("xterm", "xterm", "-u8", "-e", "bash", "--rcfile", RCFILE),
        _terminal("xfce4-terminal", "xfce4-terminal", "--disable-server", "-x", "bash", "--rcfile", RCFILE),
    )
}


def chosen(names: str) -> list[Toolkit]:
    """Return the toolkits of a list with commas; of an empty one all whose witness is there.

    Raises:
        ValueError: A toolkit of this name is unknown; the message lists the known ones.
    """
    if not names:
        return [toolkit for toolkit in TOOLKITS.values() if _present(toolkit)]
    wanted = names.split(",")
    if unknown := [name for name in wanted if name not in TOOLKITS]:
        raise ValueError(f"unknown toolkit {unknown[0]!r}; valid toolkits: {', '.join(TOOLKITS)}")
    return [TOOLKITS[name] for name in wanted]


def _present(toolkit: Toolkit) -> bool:
    files = [word for word in toolkit.command if word.endswith((".py", ".java"))]
    return all((WITNESSES / name).is_file() for name in files)
