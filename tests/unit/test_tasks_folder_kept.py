"""Records of a folder, and the metric that compares two: what is lost or changed, and what is not."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from osgym_host.tasks import folder_record
from osgym_host.tasks.evaluator.inputs import InputFile, Unreadable
from osgym_host.tasks.evaluator.metrics.folders import KEPT_BY_NOBODY, WRITTEN_BY_PROGRAMS, check_folder_kept
from osgym_host.tasks.evaluator.metrics.text import check_text_lines
from osgym_host.tasks.evaluator.registry import Score

FILES = {
    ".bashrc": "alias ll='ls -l'\n",
    ".cache/thumbs/1": "cached\n",
    ".config/app/settings.ini": "size=3\n",
    ".config/google-chrome/Default/Cookies": "cookie\n",
    ".local/share/recently-used.xbel": "<xbel/>\n",
    "Documents/letter.txt": "Dear all\n",
    "Documents/old/letter.txt": "Dear one\n",
    "Documents/.~lock.letter.odt#": ",user,desktop;",
    "work/report.txt": "first\n",
}


@pytest.fixture
def home(tmp_path: Path) -> Path:
    """A home with files of a task, of a person and of programs."""
    home = tmp_path / "home"
    for name, text in FILES.items():
        (home / name).parent.mkdir(parents=True, exist_ok=True)
        (home / name).write_text(text)
    (home / "Music").mkdir()
    (home / "link").symlink_to("work")
    return home


def record(home: Path, role: str = "result") -> InputFile:
    """What the guest's Python prints about the folder."""
    argv = [sys.executable, "-I", "-c", folder_record._PROGRAM, str(home)]
    return InputFile(-1, "record", role, subprocess.run(argv, capture_output=True, check=True).stdout)


def write(name: str, text: str) -> Callable[[Path], object]:
    """Writes a file of the home."""

    def act(home: Path) -> None:
        (home / name).parent.mkdir(parents=True, exist_ok=True)
        (home / name).write_text(text)

    return act


def lost(name: str) -> Callable[[Path], object]:
    """Deletes a file or a folder of the home."""

    def act(home: Path) -> None:
        path = home / name
        if path.is_dir() and not path.is_symlink():
            shutil.rmtree(path)
        else:
            path.unlink()

    return act


def relinked(home: Path) -> None:
    (home / "link").unlink()
    (home / "link").symlink_to("Documents")


def emptied(home: Path) -> None:
    for path in home.iterdir():
        lost(path.name)(home)


HARMLESS: dict[str, Callable[[Path], object]] = {
    "nothing": lambda home: None,
    "the task's own file": write("work/report.txt", "second\n"),
    "the task's folder lost": lost("work"),
    "a new file": write("Documents/new.txt", "new\n"),
    "a changed setting": write(".config/app/settings.ini", "size=4\n"),
    "a recent file": write(".local/share/recently-used.xbel", "<xbel>letter.txt</xbel>\n"),
    "the cache lost": lost(".cache"),
    "a lock file lost": lost("Documents/.~lock.letter.odt#"),
    "a browser's file lost": lost(".config/google-chrome/Default/Cookies"),
    "something in the trash": write(".local/share/Trash/files/new.txt", "x\n"),
}
HARMFUL: dict[str, Callable[[Path], object]] = {
    "a file lost": lost("Documents/letter.txt"),
    "a file changed": write("Documents/letter.txt", "Dear All\n"),
    "a file emptied": write("Documents/letter.txt", ""),
    "a hidden file lost": lost(".bashrc"),
    "an empty folder lost": lost("Music"),
    "a folder lost": lost("Documents"),
    "all settings lost": lost(".config"),
    "a setting lost": lost(".config/app/settings.ini"),
    "settings emptied": write(".config/app/settings.ini", ""),
    "recent files lost": lost(".local"),
    "permissions": lambda home: (home / "Documents/letter.txt").chmod(0o600),
    "permissions of a folder": lambda home: (home / "Documents").chmod(0o700),
    "a link that leads elsewhere": relinked,
    "a file in place of a folder": lambda home: (lost("Music")(home), write("Music", "x")(home)),
    "moved": lambda home: (home / "Documents/letter.txt").rename(home / "letter.txt"),
    "swapped": lambda home: (home / "Documents/old/letter.txt").replace(home / "Documents/letter.txt"),
    "the home emptied": emptied,
}


@pytest.mark.parametrize(
    ("act", "kept"),
    [(act, 1.0) for act in HARMLESS.values()] + [(act, 0.0) for act in HARMFUL.values()],
    ids=[*HARMLESS, *HARMFUL],
)
def test_what_is_lost_or_changed(home: Path, act: Callable[[Path], object], kept: float) -> None:
    """Only losses and changes outside the own paths of the task count, and only of files that stay."""
    before = record(home, "expected")
    act(home)
    verdict = check_folder_kept(record(home), before, [f"{home}/work"])
    assert verdict.score == kept, verdict.note
    assert bool(verdict.note) is (kept == 0)


def test_a_path_stands_for_itself_and_all_below_it_only(home: Path) -> None:
    """A name that begins alike is another one, and the whole home may be named."""
    write("work-old/a.txt", "a\n")(home)
    before = record(home, "expected")
    lost("work-old")(home)
    assert check_folder_kept(record(home), before, [f"{home}/work"]).score == 0.0
    assert check_folder_kept(record(home), before, [f"{home}/work-old/"]).score == 1.0
    assert check_folder_kept(record(home), before).score == 0.0


def test_names_of_any_bytes_are_recorded(home: Path) -> None:
    """Names with line ends, and such as are not UTF-8."""
    for name in (b"a\nb", b"caf\xe9"):
        Path(os.fsdecode(os.fsencode(home) + b"/" + name)).write_text("x")
    before = record(home, "expected")
    assert check_folder_kept(record(home), before).score == 1.0
    os.remove(os.fsencode(home) + b"/caf\xe9")
    assert check_folder_kept(record(home), before).score == 0.0


@pytest.mark.parametrize("text", ["[]", "{}", '{"entries": {"a": 3}}', "x"])
def test_a_wrong_record_is_the_fault_of_its_side(home: Path, text: str) -> None:
    """A forged record of the guest is a wrong result."""
    with pytest.raises(Unreadable) as raised:
        check_folder_kept(InputFile(-1, "record", "result", text.encode()), record(home, "expected"))
    assert raised.value.role == "result"


def test_the_lists_of_exceptions_say_what_they_mean() -> None:
    """Each is a hidden path below the home, named once."""
    every = [*WRITTEN_BY_PROGRAMS, *KEPT_BY_NOBODY]
    assert len(set(every)) == len(every)
    assert all(path.startswith(".") and not path.endswith("/") for path in every)


@pytest.mark.parametrize(
    ("data", "folders", "score"),
    [
        (b"12\n34\n", False, 1.0),
        (b"12\n34", False, 1.0),
        (b"12\r\n34\r\n", False, 1.0),
        (b"\xef\xbb\xbf12\n34\n", False, 1.0),
        (b"12\n34\n\n", False, 0.0),
        (b"12\n\n34\n", False, 0.0),
        (b"12 34\n", False, 0.0),
        (b"34\n12\n", False, 0.0),
        (b"12\n", False, 0.0),
        (b"12\n34\n56\n", False, 0.0),
        (b"12\n34/\n", False, 0.0),
        (b"12\n34/\n", True, 1.0),
        (b"", False, 0.0),
    ],
)
def test_lines_by_any_line_ends(data: bytes, folders: bool, score: float) -> None:
    """The last line's end is optional; lines themselves are compared exactly."""
    rules = {"lines": ["12", "34"], "folders": folders}
    verdict = check_text_lines(InputFile(-1, "f", "result", data), rules)
    assert isinstance(verdict, Score) and verdict.score == score
    assert bool(verdict.note) is (score == 0)


@pytest.mark.parametrize(
    ("data", "line_end", "mark", "score"),
    [
        (b"12\r34\r", "\r", False, 1.0),
        (b"12\r34", "\r", False, 1.0),
        (b"\xef\xbb\xbf12\r\n34\r\n", "\r\n", True, 1.0),
        (b"12\r34\n", "\r", False, 0.0),
        (b"12\r\n34\r\n", "\n", False, 0.0),
        (b"12\n34\n", "\r\n", False, 0.0),
        (b"12\n34\n", "\n", True, 0.0),
        (b"\xef\xbb\xbf12\n34\n", "\n", False, 0.0),
        (b"12\r35\r", "\r", False, 0.0),
    ],
)
def test_lines_by_one_line_end(data: bytes, line_end: str, mark: bool, score: float) -> None:
    """Where a task asks for them, line ends and the byte order mark count, but for the last line's end."""
    rules = {"lines": ["12", "34"], "line_end": line_end, "byte_order_mark": mark}
    verdict = check_text_lines(InputFile(-1, "f", "result", data), rules)
    assert verdict.score == score
    assert bool(verdict.note) is (score == 0)


def test_an_empty_file_has_no_lines() -> None:
    """And may be right."""
    assert check_text_lines(InputFile(-1, "f", "result", b""), {"lines": []}).score == 1.0
    assert check_text_lines(InputFile(-1, "f", "result", b"x"), {"lines": []}).score == 0.0
