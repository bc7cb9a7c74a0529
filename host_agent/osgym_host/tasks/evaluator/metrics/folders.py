"""Metrics over what a whole folder holds: that nothing in it was lost or changed by the way.

`WRITTEN_BY_PROGRAMS`, `KEPT_BY_NOBODY` and `TEMPORARY_NAMES` are what programs write by themselves in a home.
"""

from __future__ import annotations

from fnmatch import fnmatchcase
from typing import Any

from osgym_host.tasks.evaluator.inputs import Argument, InputFile, as_file
from osgym_host.tasks.evaluator.registry import Score, metric

WRITTEN_BY_PROGRAMS = (
    ".ICEauthority",
    ".Xauthority",
    ".bash_history",
    ".config",  # settings and window sizes that every program saves when it ends
    ".dbus",
    ".gnupg",
    ".lesshst",
    ".local/share",  # recent files, the trash, bookmarks of file dialogs
    ".local/state",
    ".pki",  # certificates that browsers know
    ".python_history",
    ".sudo_as_admin_successful",
    ".viminfo",
    ".wget-hsts",
    ".xsession-errors",
)
"""Paths below a home whose files programs rewrite unasked: they may change, but not be lost or emptied."""
KEPT_BY_NOBODY = (
    ".cache",
    ".config/*.lock",
    ".config/*.new",
    ".config/*.tmp",
    ".config/*/*.lock",
    ".config/*/*.new",
    ".config/*/*.tmp",
    ".config/GIMP",  # dialogs of the session, swap files
    ".config/chromium",  # databases that a browser renames and deletes
    ".config/google-chrome",
    ".config/libreoffice",  # lock, registry and backup files
    ".config/pulse",
    ".local/share/*.new",
    ".local/share/gvfs-metadata",
    ".thumbnails",
)
"""Patterns of paths below a home that programs also delete unasked: nothing about them counts."""
TEMPORARY_NAMES = (".goutputstream-*", ".~lock.*#", "*.swp")
"""Patterns of names, anywhere, that programs delete when they close or have saved a file."""
_MAX_NAMED = 5


@metric()
def check_folder_kept(result: Argument, expected: Argument, may_change: list[str] | None = None) -> Score:
    """All that ``record_folder`` kept is there and unchanged, apart from the paths ``may_change``.

    A path of ``may_change`` is absolute and stands for itself and all below it. Files that were added do not
    count: what a folder of the task may hold is for another metric.
    """
    before, after = _entries(as_file(expected, "expected")), _entries(as_file(result, "result"))
    root = _record(as_file(expected, "expected"))["folder"].rstrip("/")
    allowed = [path.rstrip("/").removeprefix(f"{root}/") for path in may_change or ()]
    wrong = [
        f"{path} {problem}"
        for path, entry in sorted(before.items())
        if not any(_is_in(path, one) for one in allowed) and (problem := _problem(path, entry, after))
    ]
    if not wrong:
        return Score(1.0)
    more = f" and {len(wrong) - _MAX_NAMED} more" if len(wrong) > _MAX_NAMED else ""
    return Score(0.0, f"in {root}: {', '.join(wrong[:_MAX_NAMED])}{more}")


def _record(file: InputFile) -> dict[str, Any]:
    found = file.json()
    if not isinstance(found, dict) or not isinstance(found.get("entries"), dict):
        raise file.bad("it is no record of a folder")
    return found


def _entries(file: InputFile) -> dict[str, list[Any]]:
    entries = _record(file)["entries"]
    if not all(isinstance(entry, list) and entry for entry in entries.values()):
        raise file.bad("an entry of the record is wrong")
    return dict(entries)


def _problem(path: str, entry: list[Any], after: dict[str, list[Any]]) -> str:
    """Return what is wrong with a recorded path now; an empty text if nothing is."""
    name = path.rpartition("/")[2]
    if any(_is_in(path, pattern) for pattern in KEPT_BY_NOBODY):
        return ""
    if any(fnmatchcase(name, pattern) for pattern in TEMPORARY_NAMES):
        return ""
    now = after.get(path)
    if now is None:
        return "is gone"
    if any(_is_in(path, one) for one in WRITTEN_BY_PROGRAMS):
        emptied = entry[0] == now[0] == "file" and entry[3:4] != [0] and now[3:4] == [0]
        return "is empty" if emptied else "" if entry[0] == now[0] else f"is a {now[0]}"
    return "" if now == entry else "has changed"


def _is_in(path: str, pattern: str) -> bool:
    """Return whether a path, or a folder that it lies in, matches; ``*`` stands for part of one name."""
    parts, wanted = path.split("/"), pattern.split("/")
    return len(parts) >= len(wanted) and all(map(fnmatchcase, parts, wanted))
