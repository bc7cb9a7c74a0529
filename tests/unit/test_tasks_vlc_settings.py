"""The check of VLC's settings: what VLC saved itself is told from lines that others wrote."""

from __future__ import annotations

import pytest

from osgym_host.tasks.evaluator.inputs import InputFile
from osgym_osworld.metrics.vlc_settings import check_vlc_settings

BEFORE = "[qt]\nqt-privacy-ask=0\nqt-updates-notif=0\n[core]\nhttp-port=8080\none-instance=0\n"
SAVED = """\ufeff###
###  vlc 3.0.24
###

[qt] # Qt interface

# Ask for network policy at start (boolean)
qt-privacy-ask=0

# Systray icon (boolean)
#qt-system-tray=1

[core] # core program

# HTTP server port (integer)
#http-port=8080

# Allow only one running instance (boolean)
#one-instance=0

# Use only one instance when started from file manager (boolean)
one-instance-when-started-from-file=0
"""
LOST = ["qt-updates-notif"]
DEFAULTS = ["http-port", "one-instance"]
CHANGED = {"one-instance-when-started-from-file": 0}


def score(after: str, changed: dict[str, int] | None = None) -> float:
    """The score for a file of settings after a change of one setting."""
    files = (
        InputFile(-1, "vlcrc", role, text.encode())
        for role, text in (("result", after), ("expected", BEFORE))
    )
    asked = CHANGED if changed is None else changed
    return check_vlc_settings(*files, changed=asked, lost=LOST, defaults=DEFAULTS).score


def test_what_vlc_saves_is_right() -> None:
    """Defaults are comments there; a setting that this VLC does not know is lost by every way to save."""
    assert score(SAVED) == 1.0
    assert (
        score(SAVED.replace("#qt-system-tray=1", "qt-system-tray=0"), {**CHANGED, "qt-system-tray": 0}) == 1.0
    )
    assert score(SAVED, {**CHANGED, "one-instance": 0}) == 1.0


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("from-file=0", "from-file=1"),
        ("one-instance-when-started-from-file=0", "#one-instance-when-started-from-file=0"),
        ("#one-instance=0", "one-instance=1"),
        ("#qt-system-tray=1", "qt-system-tray=0"),
        ("#http-port=8080", "#http-port=9090"),
        ("#http-port=8080", ""),
        ("qt-privacy-ask=0", "#qt-privacy-ask=1"),
        ("qt-privacy-ask=0", "#qt-privacy-ask=0"),
        ("# Ask for network policy at start (boolean)\n", ""),
    ],
)
def test_another_change_is_wrong(old: str, new: str) -> None:
    """Also where the value that was asked for is there."""
    assert old in SAVED
    assert score(SAVED.replace(old, new)) == 0.0


def test_lines_of_others_are_wrong() -> None:
    """Appended to the file of before, or to what VLC wrote; a file that lacks the setting, too."""
    appended = "one-instance-when-started-from-file=0\n"
    assert score(BEFORE) == 0.0
    assert score(BEFORE + appended) == 0.0
    assert score(SAVED.replace("from-file=0", "from-file=1") + appended) == 0.0
    assert score(SAVED[: SAVED.index("# Use only one")]) == 0.0
