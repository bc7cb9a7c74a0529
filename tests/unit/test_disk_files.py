"""Files read from a machine's disk: what the tools put there; of a damaged disk an error of its own."""

from __future__ import annotations

import os
import random
import shutil
import struct
import subprocess
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path

import pytest

from osgym_host.tasks.evaluator.disk.layers import DiskUnreadable, LayeredDisk, LayerFormat, NotThere
from osgym_host.tasks.evaluator.disk.session_view import read_file

TOOLS = ("mkfs.ext4", "qemu-img", "debugfs")
pytestmark = pytest.mark.skipif(
    any(shutil.which(tool) is None for tool in TOOLS), reason=f"missing: one of {', '.join(TOOLS)}"
)
MIB = 1 << 20
LARGEST = 8 * MIB


def run(*argv: object) -> None:
    done = subprocess.run(list(map(str, argv)), capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr


@contextmanager
def opened(*layers: tuple[Path, LayerFormat]) -> Iterator[LayeredDisk]:
    """A disk of files, from the bottom up."""
    with ExitStack() as stack:
        fds = [os.open(path, os.O_RDONLY) for path, _ in layers]
        for fd in fds:
            stack.callback(os.close, fd)
        yield LayeredDisk(fds, [kind for _, kind in layers])


@pytest.fixture(scope="module")
def tree(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Files of all sizes, links, a folder of many names."""
    top = tmp_path_factory.mktemp("tree") / "root"
    (top / "home/user/Documents").mkdir(parents=True)
    (top / "home/user/empty").touch()
    (top / "home/user/small.txt").write_text("hello\n")
    (top / "home/user/Größe ü.txt").write_text("name")
    (top / "home/user/large").write_bytes(random.Random(1).randbytes(3 * MIB + 17))
    with (top / "home/user/sparse").open("wb") as file:
        file.seek(2 * MIB)
        file.write(b"end")
    (top / "link").symlink_to("home/user/Documents/../small.txt")
    (top / "home/user/absolute").symlink_to("/home/user/" + "./" * 60 + "small.txt")
    (top / "circle").symlink_to("circle")
    for number in range(2000):
        (top / f"home/user/Documents/file-{number:04}").write_text(str(number))
    return top


@pytest.fixture(scope="module", params=["1024", "4096"])
def raw(tree: Path, tmp_path_factory: pytest.TempPathFactory, request: pytest.FixtureRequest) -> Path:
    """The tree as an ext4 in the second partition of a disk."""
    folder = tmp_path_factory.mktemp("disk")
    part, disk = folder / "part", folder / "disk.raw"
    run("truncate", "-s", "20M", part)
    run("mkfs.ext4", "-q", "-F", "-b", request.param, "-d", tree, part)
    run("truncate", "-s", "28M", disk)
    with disk.open("r+b") as file:
        file.seek(512)
        file.write(struct.pack("<8s64xQII", b"EFI PART", 2, 128, 128))
        for number, (first, last) in enumerate(((2048, 4095), (8192, 8192 + 40960 - 1))):
            file.seek(1024 + 128 * number)
            file.write(struct.pack("<16s16sQQ", b"t" * 16, b"u" * 16, first, last))
    run("dd", f"if={part}", f"of={disk}", "bs=512", "seek=8192", "conv=notrunc,sparse", "status=none")
    return disk


FILES = ("empty", "small.txt", "Größe ü.txt", "large", "sparse", "Documents/file-0000", "Documents/file-1999")


def same(disk: LayeredDisk, tree: Path, names: Sequence[str] = FILES) -> None:
    for name in names:
        assert read_file(disk, f"/home/user/{name}", LARGEST) == (tree / "home/user" / name).read_bytes(), (
            name
        )


def test_files_and_links_of_a_raw_disk(raw: Path, tree: Path) -> None:
    """Extents, holes, names of any kind, links of both kinds."""
    with opened((raw, LayerFormat.RAW)) as disk:
        same(disk, tree)
        for link in ("/link", "/home/user/absolute", "//home/./user/../user/small.txt", "/../link"):
            assert read_file(disk, link, LARGEST) == b"hello\n"


@pytest.mark.parametrize("options", [(), ("-c",), ("-o", "cluster_size=4k")])
def test_layers_of_qcow2(raw: Path, tree: Path, tmp_path: Path, options: tuple[str, ...]) -> None:
    """What is written to a later layer counts, what is not comes from below; compressed clusters too."""
    base, top = tmp_path / "base.qcow2", tmp_path / "top.qcow2"
    run("qemu-img", "convert", "-f", "raw", "-O", "qcow2", *options, raw, base)
    run("qemu-img", "create", "-q", "-f", "qcow2", top, "28M")
    with opened((base, LayerFormat.QCOW2), (top, LayerFormat.QCOW2)) as disk:
        same(disk, tree)
    changed, news = tmp_path / "changed.raw", tmp_path / "news"
    shutil.copy(raw, changed)
    news.write_bytes(b"new" * 5000)
    offset = 8192 * 512
    part = tmp_path / "part"
    run("dd", f"if={changed}", f"of={part}", "bs=512", "skip=8192", "count=40960", "status=none")
    run("debugfs", "-w", "-R", f"write {news} /home/user/news", part)
    run("debugfs", "-w", "-R", "rm /home/user/small.txt", part)
    run("dd", f"if={part}", f"of={changed}", "bs=1M", f"seek={offset // MIB}", "conv=notrunc", "status=none")
    overlay = tmp_path / "overlay.qcow2"
    run("qemu-img", "create", "-q", "-f", "qcow2", "-b", base, "-F", "qcow2", overlay)
    run("qemu-img", "convert", "-f", "raw", "-O", "qcow2", "-B", base, "-F", "qcow2", changed, overlay)
    with opened((base, LayerFormat.QCOW2), (overlay, LayerFormat.QCOW2)) as disk:
        assert read_file(disk, "/home/user/news", LARGEST) == news.read_bytes()
        same(disk, tree, ("large", "Documents/file-0777"))
        with pytest.raises(NotThere):
            read_file(disk, "/home/user/small.txt", LARGEST)


@pytest.mark.parametrize(
    "path", ["/home/user/none", "/home/user", "/small.txt/x", "/circle", "/home/user/small.txt/x", "/"]
)
def test_what_is_no_file_is_not_there(raw: Path, path: str) -> None:
    """Missing, a folder, below a file, a circle of links."""
    with opened((raw, LayerFormat.RAW)) as disk, pytest.raises(NotThere):
        read_file(disk, path, LARGEST)


def test_a_file_larger_than_asked_for_is_refused(raw: Path) -> None:
    """Before anything of it is read."""
    with opened((raw, LayerFormat.RAW)) as disk, pytest.raises(DiskUnreadable, match="larger than"):
        read_file(disk, "/home/user/large", MIB)


@pytest.mark.parametrize("kind", list(LayerFormat))
def test_damage_anywhere_is_an_error_of_its_own(raw: Path, tmp_path: Path, kind: LayerFormat) -> None:
    """Bytes changed in the tables of disk or file system: the right content or the typed error, soon."""
    hurt = tmp_path / "hurt"
    run("qemu-img", "convert", "-f", "raw", "-O", kind.value, raw, hurt)
    begin = 8192 * 512 if kind is LayerFormat.RAW else 0
    size = MIB if kind is LayerFormat.RAW else 4 << 16
    random_, ended = random.Random(7), set()
    fd = os.open(hurt, os.O_RDWR)
    try:
        good = os.pread(fd, size, begin)
        for _ in range(200):
            data = bytearray(good)
            for _ in range(random_.choice((1, 4, 4000))):
                data[random_.randrange(size)] = random_.randrange(256)
            os.pwrite(fd, data, begin)
            try:
                read_file(LayeredDisk([fd], [kind]), "/home/user/Documents/file-1234", LARGEST)
                ended.add("read")
            except DiskUnreadable:
                ended.add("refused")
    finally:
        os.close(fd)
    assert ended == {"read", "refused"}


def session_layer(top: Path) -> None:
    """Make the image's folders and what a session has written over them."""
    image = {
        "etc/hosts": "old",
        "etc/kept": "kept",
        "etc/gone": "x",
        "etc/new/old": "x",
        "usr/lib/deep/a": "a",
    }
    written = {"upper/etc/hosts": "new", "upper/usr/lib/deep/b": "b", "upper/etc/new/made": "made"}
    files = {
        **image,
        "home/user/a": "mine",
        ".session/root/srv/f": "top",
        **{f".session/{name}": text for name, text in written.items()},
    }
    for name, text in files.items():
        (top / name).parent.mkdir(parents=True, exist_ok=True)
        (top / name).write_text(text)
    for name in ("etc", "usr", "home", "srv"):
        (top / f".session/root/{name}").mkdir(exist_ok=True)
    (top / ".session/root/lib").symlink_to("usr/lib")
    (top / ".session/upper/etc/link").symlink_to("/usr/lib/deep/a")


def test_files_as_programs_see_them_below_their_layer(tmp_path: Path) -> None:
    """Written, kept, removed and replaced whole; links lead through the layer, and home is the disk's own."""
    top, part = tmp_path / "root", tmp_path / "part"
    session_layer(top)
    run("truncate", "-s", "20M", part)
    run("mkfs.ext4", "-q", "-F", "-I", "256", "-d", top, part)
    commands = tmp_path / "commands"
    commands.write_text("cd /.session/upper/etc\nmknod gone c 0 0\nea_set new trusted.overlay.opaque y\n")
    run("debugfs", "-w", "-f", commands, part)
    with opened((part, LayerFormat.RAW)) as disk:
        seen = {
            "/etc/hosts": b"new",
            "/etc/kept": b"kept",
            "/etc/new/made": b"made",
            "/usr/lib/deep/a": b"a",
            "/lib/deep/b": b"b",
            "/etc/link": b"a",
            "/home/user/a": b"mine",
            "/srv/f": b"top",
        }
        for path, content in seen.items():
            assert read_file(disk, path, LARGEST) == content, path
        for path in ("/etc/gone", "/etc/new/old", "/.session/upper/etc/hosts", "/etc/none", "/usr/lib"):
            with pytest.raises(NotThere):
                read_file(disk, path, LARGEST)
