"""The remedies' bake programs: what they install, what they refuse, and that they can be repeated."""

from __future__ import annotations

import os
import shutil
import struct
import subprocess
from pathlib import Path
from xml.etree import ElementTree

import pytest

from osgym_host.images.errors import ImageError
from osgym_host.images.store import ImageStore, default_data_dir

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


@pytest.mark.parametrize(
    "name", ["gtk-timers", "libreoffice-timers", "libreoffice-tips", "gimp-quiet", "still-cursor"]
)
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


def small_image() -> Path:
    """The root file system of the small golden image."""
    try:
        return ImageStore(default_data_dir()).resolve("small").rootfs
    except ImageError as error:
        pytest.skip(f"missing: golden image small: {error}")


def gtk_root(image: Path, root: Path) -> Path:
    """As much of an image as the remedy for GTK's timers needs; return its GTK 3."""
    libraries = Path("usr/lib/x86_64-linux-gnu")
    (root / libraries).mkdir(parents=True)
    (root / "etc").mkdir()
    needed = [
        "libgtk-3",
        "libgtk-x11-2.0",
        "libglib-2.0",
        "libpcre2-8",
        "libffi",
        "libm",
        "libc",
        "libz",
        "libexpat",
    ]
    for name in needed:
        for path in (image / libraries).glob(f"{name}.so.*"):
            shutil.copy(path, root / libraries / path.name)
    (root / "usr/bin").mkdir()
    shutil.copy(image / "usr/bin/python3.11", root / "usr/bin/python3")
    (root / "usr/lib/python3.11").symlink_to(image / "usr/lib/python3.11")
    (root / "lib64").mkdir()
    shutil.copy(image / libraries / "ld-linux-x86-64.so.2", root / "lib64")
    return root / libraries / "libgtk-3.so.0"


@pytest.mark.skipif(shutil.which("cc") is None, reason="missing: a C compiler")
def test_gtk_timers_are_looked_for_in_the_library(tmp_path: Path) -> None:
    """Installed once where GTK has all the names; else left out, and the reason names what is missing."""
    gtk = gtk_root(small_image(), tmp_path)
    (tmp_path / "etc/ld.so.preload").write_text("/usr/lib/other.so\n")
    for _ in range(2):
        done = bake("gtk-timers", tmp_path)
        assert done.returncode == 0, done.stderr
    library = "/usr/lib/osgym/remedies/gtk-timers/gtk_timers.so"
    assert (tmp_path / "etc/ld.so.preload").read_text().splitlines() == ["/usr/lib/other.so", library]
    assert (tmp_path / library[1:]).is_file()
    gtk.write_bytes(gtk.read_bytes().replace(b"[gtk+] thaw_func\0", b"[gtk+] thaw_fund\0"))
    done = bake("gtk-timers", tmp_path)
    assert done.returncode == DOES_NOT_APPLY, done.stderr
    assert "thaw_func" in done.stderr


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
