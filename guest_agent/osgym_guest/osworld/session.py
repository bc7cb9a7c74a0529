"""Desktop session in which commands run: environment, home and paths of its user."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from osgym_guest.osworld.starter import SessionStarter

# Of a golden image: where it and its administrator put programs, and nobody else without becoming root.
PROGRAM_FOLDERS = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin:/usr/local/games:/usr/games"
# Variables by which a program loads or runs what is not its own.
_LOADING_PREFIXES = ("BASH_FUNC_", "LD_", "NODE_", "PERL", "PYTHON", "RUBY")
_LOADING_NAMES = frozenset({"BASH_ENV", "ENV", "GCONV_PATH", "GTK_MODULES", "GTK_PATH", "IFS"})
MAX_LINKS = 40
"""Bound of the links in one path, as in Linux (path_resolution(7))."""
# Variables of the agent that are nobody else's business.
_PRIVATE_PREFIXES = ("OSGYM_", "LISTEN_")


@dataclass(frozen=True)
class DesktopSession:
    """Environment of the commands in a session.

    Attributes:
        env: Environment variables, among them DISPLAY, HOME and DBUS_SESSION_BUS_ADDRESS.
        home: Home and working directory.
        starter: Starts programs in namespaces below the agent's; None where there are none.
        root: Folder at which the agent sees the programs' root; None where both have the same.
    """

    env: Mapping[str, str]
    home: Path
    starter: SessionStarter | None = None
    root: Path | None = None

    @staticmethod
    def from_environment(environ: Mapping[str, str]) -> DesktopSession:
        """Return the session of the agent itself, without variables that are private to the agent."""
        env = {name: value for name, value in environ.items() if not name.startswith(_PRIVATE_PREFIXES)}
        home = env.setdefault("HOME", "/home/user")
        env.setdefault("DISPLAY", ":0")
        env.setdefault("PATH", "/usr/local/bin:/usr/bin:/bin:/usr/local/games:/usr/games")
        env["PWD"] = home
        below = environ.get("OSGYM_SESSION_SOCKET")
        root = environ.get("OSGYM_SESSION_ROOT")
        return DesktopSession(
            env, Path(home), SessionStarter(below) if below else None, Path(root) if root else None
        )

    def isolated_env(self) -> dict[str, str]:
        """Return the environment of a check's command: the image's programs, no preloaded libraries."""
        env = {
            name: value
            for name, value in self.env.items()
            if not name.startswith(_LOADING_PREFIXES) and name not in _LOADING_NAMES
        }
        return {**env, "PATH": PROGRAM_FOLDERS}

    def expand_home(self, text: str) -> str:
        """Return `text` with a leading ``~`` or ``~/`` replaced by the home directory."""
        if text == "~" or text.startswith("~/"):
            return str(self.home) + text[1:]
        return os.path.expanduser(text)  # noqa: PTH111  (a Path would lose a trailing slash)

    def path(self, text: str) -> Path:
        """Return a path as a client wrote it: ``~`` and ``$VAR`` expanded, relative to the home directory."""
        return self.home / _expand_variables(self.expand_home(text), self.env)

    def file(self, path: Path) -> Path:
        """Return the agent's path of a file of the programs; paths in /proc are the agent's own."""
        if self.root is None or not path.is_absolute() or path.parts[1:2] == ("proc",):
            return path
        return _below(self.root, path)

    def program(self, name: str) -> str | None:
        """Return the path, as programs know it, of a program; None if there is none."""
        folders = self.env.get("PATH", os.defpath).split(":")
        for folder in folders if "/" not in name else [""]:
            path = os.path.join(folder, name)  # noqa: PTH118  (an absolute name stays as it is)
            if os.access(self.file(Path(path)), os.X_OK) and self.file(Path(path)).is_file():
                return path
        return None


def _below(root: Path, path: Path) -> Path:
    """Resolve a path with its links as a program does that has `root` as its root.

    With more than `MAX_LINKS` links, the result is a path at which nothing can be, as for the program.
    """
    left = list(reversed(path.parts[1:]))
    at: list[str] = []
    links = 0
    while left:
        name = left.pop()
        if name == "..":
            del at[-1:]
            continue
        at.append(name)
        try:
            target = Path(root, *at).readlink()
        except OSError:  # no link, or nothing there
            continue
        links += 1
        if links > MAX_LINKS:
            return root / "dev" / "null" / "too many links"
        at = [] if target.is_absolute() else at[:-1]
        left += reversed(target.parts[1:] if target.is_absolute() else target.parts)
    return Path(root, *at)


def _expand_variables(text: str, env: Mapping[str, str]) -> str:
    """Replace ``$NAME`` and ``${NAME}``; unknown names stay as they are."""
    if "$" not in text:
        return text
    import re

    def value(match: re.Match[str]) -> str:
        return env.get(match[1] or match[2], match[0])

    return re.sub(r"\$(?:(\w+)|\{([^}]*)\})", value, text, flags=re.ASCII)
