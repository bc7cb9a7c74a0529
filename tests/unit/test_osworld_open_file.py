"""When a file counts as open: which window of which moment is its own."""

from __future__ import annotations

from pathlib import Path

import pytest

from osgym_guest.osworld import open_file
from osgym_guest.osworld.open_file import OpenTarget, has_word, wait_for_window
from osgym_guest.osworld.session import DesktopSession
from osgym_guest.osworld.windows import DesktopWindow, DesktopWindows

REPORT = OpenTarget(["xdg-open", "report.ods"], Path("/home/user/report.ods"), ("report.ods", "report"))
EDITOR = DesktopWindow(1, "notes - Editor", "editor", "Editor")
SPLASH = DesktopWindow(2, "LibreOffice", "soffice", "Soffice")
SHEET = DesktopWindow(3, "report.ods - LibreOffice Calc", "libreoffice", "libreoffice-calc")
PAGE = DesktopWindow(4, "Some title", "chromium", "Chromium")


class Film(DesktopWindows):
    """Windows as they show at each look, the last picture standing; some of them are no application's."""

    def __init__(self, *pictures: list[DesktopWindow], odd: frozenset[int] = frozenset()) -> None:
        super().__init__(DesktopSession({}, Path("/")))
        self._pictures = list(pictures)
        self._odd = odd

    async def list(self) -> list[DesktopWindow]:
        return self._pictures.pop(0) if len(self._pictures) > 1 else self._pictures[0]

    async def is_ordinary(self, window: DesktopWindow) -> bool:
        return window.id not in self._odd


@pytest.fixture(autouse=True)
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    """The same waits, a hundred times shorter."""
    monkeypatch.setattr(open_file, "POLL_S", 0.001)
    monkeypatch.setattr(open_file, "UNNAMED_S", 0.03)


async def found(film: Film, target: OpenTarget = REPORT, *, ended: int | None = None) -> DesktopWindow | None:
    before = {window.identity for window in await film.list()}
    return await wait_for_window(film, target, lambda: ended, before, 0.3)


async def test_the_window_named_after_the_file_is_it() -> None:
    """It is taken as soon as it shows, with the splash screen before it passed over."""
    assert await found(Film([EDITOR], [EDITOR, SPLASH], [EDITOR, SPLASH, SHEET])) == SHEET


async def test_a_splash_screen_is_never_it() -> None:
    """Neither by its type nor, however long it stays, by its name."""
    report_splash = DesktopWindow(9, "report", "x", "X")
    assert await found(Film([], [report_splash], odd=frozenset({9}))) is None
    assert await found(Film([], [SPLASH])) is None


async def test_a_window_with_another_title_counts_after_a_while() -> None:
    """A browser shows the title of the page, not of the file."""
    assert await found(Film([EDITOR], [EDITOR, PAGE])) == PAGE


async def test_a_window_that_was_there_counts_when_the_program_handed_over() -> None:
    """An application that runs already shows the file in the window it has, and its starter ends."""
    assert await found(Film([SHEET]), ended=0) == SHEET


async def test_an_id_that_is_used_again_is_another_window() -> None:
    """X gives the id of a window that closed to the next: it is new, whatever was there before."""
    reused = DesktopWindow(EDITOR.id, "report.ods - Calc", "libreoffice", "libreoffice-calc")
    assert await found(Film([EDITOR], [], [reused])) == reused
    same_program = DesktopWindow(EDITOR.id, "report.ods - Editor", "editor", "Editor")
    assert await found(Film([EDITOR], [], [same_program])) == same_program


async def test_a_program_that_fails_without_a_window_ends_the_wait() -> None:
    """A crash is known at once; nobody waits for the time to run out."""
    assert await found(Film([EDITOR]), ended=1) is None


async def test_an_application_is_known_by_title_or_class() -> None:
    """A program started by name need not have that name in its title."""
    gimp = OpenTarget(["/usr/bin/gimp"], None, ("gimp",))
    window = DesktopWindow(5, "GNU Image Manipulation Program", "gimp", "Gimp")
    assert await found(Film([], [PAGE], [PAGE, window]), gimp) == window


@pytest.mark.parametrize(
    ("text", "word", "there"),
    [
        ("p.html - Editor", "p", True),
        ("Chromium page", "p", False),
        ("top p", "p", True),
        ("*report.ods (modified)", "report.ods", True),
        ("myreport.ods", "report.ods", False),
        ("", "x", False),
    ],
)
def test_names_are_found_as_words(text: str, word: str, there: bool) -> None:
    """A short name within a longer word is no match."""
    assert has_word(text, word) is there
