"""The remedies' bake programs: what they install, what they refuse, and that they can be repeated."""

from __future__ import annotations

import os
import shutil
import struct
import subprocess
from pathlib import Path
from xml.etree import ElementTree

import pytest

IMAGES = Path(__file__).resolve().parents[2] / "images"
REMEDIES = IMAGES / "remedies"
DOES_NOT_APPLY = 10


def bake(name: str, root: Path) -> subprocess.CompletedProcess[str]:
    """Run one remedy on a root file system."""
    return subprocess.run(
        [REMEDIES / name / "bake"],
        env={**os.environ, "ROOTFS": str(root)},
        capture_output=True,
        text=True,
        timeout=60,
    )


@pytest.mark.parametrize("name", ["libreoffice-timers", "libreoffice-tips", "gimp-quiet", "still-cursor"])
def test_does_not_apply_without_the_application(name: str, tmp_path: Path) -> None:
    """An image without the application is baked without its remedy, and left untouched."""
    done = bake(name, tmp_path)
    assert done.returncode == DOES_NOT_APPLY, done.stderr
    assert "does not apply" in done.stderr
    assert not list(tmp_path.iterdir())


def test_every_remedy_is_documented() -> None:
    """Each folder has a bake program and a README, and is in the overview's table."""
    overview = (REMEDIES / "README.md").read_text()
    folders = [path for path in REMEDIES.iterdir() if path.is_dir() and path.name != "__pycache__"]
    assert folders
    for folder in folders:
        assert os.access(folder / "bake", os.X_OK)
        assert (folder / "README.md").is_file()
        assert f"[{folder.name}]({folder.name}/)" in overview


def test_gimp_settings_are_added_once(tmp_path: Path) -> None:
    """The two lines stand at the end of GIMP's settings, also after a second bake."""
    settings = tmp_path / "etc/gimp/2.0/gimprc"
    settings.parent.mkdir(parents=True)
    settings.write_text("# (show-tooltips yes)\n# (marching-ants-speed 200)\n")
    for _ in range(2):
        assert bake("gimp-quiet", tmp_path).returncode == 0
    lines = settings.read_text().splitlines()
    assert lines[2:] == ["(show-tooltips no)", "(marching-ants-speed 10000)"]


def test_gimp_without_the_setting_fails_the_bake(tmp_path: Path) -> None:
    """A GIMP that does not know a setting any more is noticed, not silently accepted."""
    settings = tmp_path / "etc/gimp/2.0/gimprc"
    settings.parent.mkdir(parents=True)
    settings.write_text("# (show-tooltips yes)\n")
    done = bake("gimp-quiet", tmp_path)
    assert done.returncode == 1
    assert "marching-ants-speed" in done.stderr


def test_tips_are_off_in_the_registry(tmp_path: Path) -> None:
    """The registry file is well-formed and turns all three tips off; an unknown schema is refused."""
    registry = tmp_path / "etc/libreoffice/registry"
    registry.mkdir(parents=True)
    (registry / "main.xcd").write_text('<prop oor:name="Tip"/><prop oor:name="ExtendedTip"/>')
    assert bake("libreoffice-tips", tmp_path).returncode == 1
    (registry / "main.xcd").write_text(
        '<prop oor:name="Tip"/><prop oor:name="ExtendedTip"/><prop oor:name="ShowTipOfTheDay"/>'
    )
    assert bake("libreoffice-tips", tmp_path).returncode == 0
    tree = ElementTree.parse(registry / "osgym-tips.xcd")
    assert [value.text for value in tree.iter("value")] == ["false"] * 3


def test_still_desktop_reads_the_image_files(tmp_path: Path) -> None:
    """The image's own files pass the check, and a setting that is turned round does not."""
    shutil.copytree(IMAGES / "files/etc", tmp_path / "etc")
    (tmp_path / "usr/lib/chromium").mkdir(parents=True)
    done = bake("still-desktop", tmp_path)
    assert done.returncode == 0, done.stderr
    settings = tmp_path / "etc/gtk-3.0/settings.ini"
    settings.write_text(settings.read_text().replace("gtk-cursor-blink=false", "gtk-cursor-blink=true"))
    done = bake("still-desktop", tmp_path)
    assert done.returncode == 1
    assert "gtk-cursor-blink=false" in done.stderr


def _cursor(delays_ms: list[int]) -> bytes:
    """An Xcursor file of two nominal sizes with a picture of one pixel for each delay."""
    pictures = [(size, delay) for size in (24, 32) for delay in delays_ms]
    head = struct.pack("<4sIII", b"Xcur", 16, 0x10000, len(pictures))
    table, chunks = b"", b""
    for number, (size, delay) in enumerate(pictures):
        table += struct.pack("<III", 0xFFFD0002, size, 16 + 12 * len(pictures) + len(chunks))
        chunks += struct.pack("<IIIIIIIIII", 36, 0xFFFD0002, size, 1, 1, 1, 0, 0, delay, number)
    return head + table + chunks


def test_animated_cursors_stand_still(tmp_path: Path) -> None:
    """The first picture of each size is left, others are as they were, and a second bake finds nothing."""
    cursors = tmp_path / "usr/share/icons/theme/cursors"
    cursors.mkdir(parents=True)
    still = _cursor([0])
    (cursors / "arrow").write_bytes(still)
    (cursors / "watch").write_bytes(_cursor([30, 30, 30]))
    (cursors / "wait").symlink_to("watch")
    assert "1 of 2" in bake("still-cursor", tmp_path).stdout
    assert (cursors / "arrow").read_bytes() == still
    watch = (cursors / "watch").read_bytes()
    sizes = [struct.unpack_from("<III", watch, 16 + 12 * number)[1:] for number in range(2)]
    assert [size for size, _ in sizes] == [24, 32]
    assert [struct.unpack_from("<10I", watch, place)[8:] for _, place in sizes] == [(0, 0), (0, 3)]
    assert "0 of 2" in bake("still-cursor", tmp_path).stdout


def test_a_broken_cursor_fails_the_bake(tmp_path: Path) -> None:
    """A file of another kind is noticed, and left."""
    cursors = tmp_path / "usr/share/icons/theme/cursors"
    cursors.mkdir(parents=True)
    (cursors / "watch").write_bytes(b"GIF89a, not a cursor")
    assert bake("still-cursor", tmp_path).returncode == 1
    assert (cursors / "watch").read_bytes() == b"GIF89a, not a cursor"
