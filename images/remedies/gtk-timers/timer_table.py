"""GTK's fixed waits: which are brought forward, and whether an image's libraries have them as they should."""

from __future__ import annotations

import re
import struct
import sys
from dataclasses import dataclass
from pathlib import Path

sys.path.append(str(Path(__file__).resolve().parents[1] / "libreoffice-timers"))

from timer_sites import NotApplicableError, SharedLibrary

SET_NAME = "g_source_set_name_by_id"
ADD_TIMEOUT = "gdk_threads_add_timeout"
GLIB_FUNCTIONS = (
    SET_NAME, "g_main_context_find_source_by_id", "g_source_get_ready_time", "g_source_set_ready_time",
    "g_get_monotonic_time",
)  # fmt: skip


@dataclass(frozen=True, slots=True)
class NamedTimer:
    """A timer of GTK 3: the name that GTK gives it, its wait in GTK, the wait that is left of it."""

    name: str
    delay_ms: int
    due_ms: int


@dataclass(frozen=True, slots=True)
class UnnamedTimer:
    """A timer of GTK 2: its wait, the type of the object it is for, the wait that is left of it."""

    delay_ms: int
    type_name: str
    due_ms: int


@dataclass(frozen=True, slots=True)
class ProgramTimer:
    """A timer of one program, known by its wait, that shall never come: what it changes is nobody's doing."""

    program: str
    delay_ms: int


# All of these fire once. A wait that lets typing or a pointer come to rest keeps a little of it.
NAMED_TIMERS = (
    # Return in a dialog: the button is shown pressed, and then does what it does
    NamedTimer("[gtk+] button_activate_timeout", 250, 1),
    # the submenu of the entry under the pointer
    NamedTimer("[gtk+] gtk_menu_item_popup_timeout", 225, 1),
    # an entry that the pointer came to while another's submenu was open, where it might have been going
    NamedTimer("[gtk+] gtk_menu_stop_navigating_submenu_cb", 1000, 30),
    # what completes the text typed into an entry
    NamedTimer("[gtk+] gtk_entry_completion_timeout", 100, 10),
    # the file chooser looks at the path that was typed
    NamedTimer("[gtk+] location_changed_timeout_cb", 150, 10),
    # the file chooser shows the files that it has found
    NamedTimer("[gtk+] thaw_func", 50, 5),
    # what is found for the text typed into a search entry
    NamedTimer("[gtk+] gtk_search_entry_changed_timeout_cb", 150, 10),
    # the tool tip of what is under the pointer
    NamedTimer("[gtk+] tooltip_popup_timeout", 500, 10),
)

SITES = {250: 2, 300: 2}
"""In how many places GTK 2 waits so long, all for objects: a `GtkButton` and a `GtkRecentManager`; a
`GtkEntryCompletion` and a `GtkRange`. Of each two the second is left alone."""

UNNAMED_TIMERS = (
    UnnamedTimer(250, "GtkButton", 1),
    # the setting gtk-menu-popup-delay; set to zero, a click on an entry closes what the pointer just opened
    UnnamedTimer(225, "GtkMenuItem", 1),
    # what completes the text typed into an entry
    UnnamedTimer(300, "GtkEntryCompletion", 10),
)

PROGRAM_TIMERS = tuple(
    ProgramTimer(program, delay_ms)
    for program in ("gimp", "gimp-2.10")
    # a message in the status bar gives way; the border of a selection moves on (remedy gimp-quiet: at 10 s)
    for delay_ms in (8_000, 10_000)
)

_CALL_REACH_BYTES = 32


def check_gtk3(gtk: SharedLibrary, glib: SharedLibrary) -> None:
    """See to it that GTK 3 names its timers as the table says, by a call that can be answered in its place.

    Raises:
        NotApplicableError: it does not; the message says in what.
    """
    missing = [name for name in GLIB_FUNCTIONS if name not in glib.symbols]
    if missing:
        raise NotApplicableError(f"{glib.path.name} has no {', '.join(missing)}")
    if SET_NAME in gtk.symbols or not gtk.entries_of(SET_NAME):
        raise NotApplicableError(f"{gtk.path.name} does not call {SET_NAME}")
    missing = [timer.name for timer in NAMED_TIMERS if gtk.data.count(f"\0{timer.name}\0".encode()) != 1]
    if missing:
        raise NotApplicableError(f"{gtk.path.name} has no timer {', '.join(missing)}")


def unnamed_timers(gtk: SharedLibrary) -> tuple[UnnamedTimer, ...]:
    """Return the timers of GTK 2 that can be told from others; none when the library is not as expected.

    Timers of another wait may be for something that is no object, whose type must not be asked for. So the
    fixed waits must stand in exactly the places that are known.
    """
    if ADD_TIMEOUT in gtk.symbols:
        return ()
    targets = gtk.entries_of(ADD_TIMEOUT)
    found = dict.fromkeys(SITES, 0)
    for base, code in gtk.code():
        for delay_ms in SITES:
            for match in re.finditer(re.escape(b"\xbf" + struct.pack("<I", delay_ms)), code):
                calls = range(match.end(), min(match.end() + _CALL_REACH_BYTES, len(code) - 5))
                found[delay_ms] += any(
                    code[at] == 0xE8 and _target(base, code, at) in targets for at in calls
                )
    return UNNAMED_TIMERS if found == SITES else ()


def _target(base: int, code: bytes, at: int) -> int:
    """The target of the `call rel32` whose opcode stands at `at`."""
    distance: int = struct.unpack_from("<i", code, at + 1)[0]
    return base + at + 5 + distance


def header(unnamed: tuple[UnnamedTimer, ...]) -> str:
    """The generated timers.h."""
    named = "".join(f'{{"{timer.name}", {timer.due_ms}}}, ' for timer in NAMED_TIMERS)
    others = "".join(f'{{{timer.delay_ms}, "{timer.type_name}", {timer.due_ms}}}, ' for timer in unnamed)
    programs = "".join(f'{{"{timer.program}", {timer.delay_ms}}}, ' for timer in PROGRAM_TIMERS)
    return (
        f"#define NAMED_TIMERS {named}\n#define UNNAMED_TIMERS {others}\n#define PROGRAM_TIMERS {programs}\n"
    )
