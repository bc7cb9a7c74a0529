"""Bakes on the real thing: what they make, what they keep, and what interrupted ones leave."""

from __future__ import annotations

import json
import os
import shutil
import signal
import stat
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from osgym_host.images.content_store import remove_tree
from osgym_host.images.idmap import current_idmap
from osgym_host.images.namespaces import NamespaceSpec, operate
from osgym_host.images.store import Image, ImageStore, default_data_dir
from osgym_host.images.tree import KEPT_FROM_S
from osgym_host.images.wheels import find_guest_agent

pytestmark = pytest.mark.desktop

OSGYM = [sys.executable, "-c", "from osgym_host.cli.image import image; image()"]


@dataclass(frozen=True)
class Private:
    """A store of the test's own."""

    store: ImageStore
    env: dict[str, str]

    def run(self, *arguments: str, **env: str) -> subprocess.CompletedProcess[str]:
        """Run `osgym image` on this store."""
        merged = {**self.env, **env}
        argv = [*OSGYM, *arguments]
        return subprocess.run(argv, env=merged, capture_output=True, text=True, timeout=900, check=False)

    def start(self, *arguments: str) -> subprocess.Popen[bytes]:
        """Start `osgym image` on this store without waiting."""
        argv = [*OSGYM, *arguments]
        return subprocess.Popen(argv, env=self.env, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)


@pytest.fixture
def private() -> Iterator[Private]:
    """An empty store on the same file system as the real one."""
    default_data_dir().mkdir(parents=True, exist_ok=True)
    folder = Path(tempfile.mkdtemp(prefix="test-", dir=default_data_dir()))
    folder.chmod(0o755)
    yield Private(ImageStore(folder), {**os.environ, "OSGYM_DATA_DIR": str(folder)})
    remove_tree(folder)


def test_manifest_says_what_is_there(small_image: Image) -> None:
    """Packages of the manifest are those of the image; owners are the shifted ids."""
    manifest = small_image.manifest
    assert (manifest.flavor, manifest.screen) == ("small", (1920, 1080))
    status = (small_image.rootfs / "var/lib/dpkg/status").read_text()
    assert "Package: mousepad\n" in status and "mousepad" in manifest.packages
    assert "chromium" not in manifest.packages
    assert (small_image.rootfs / "etc/passwd").stat().st_uid == manifest.uid_base
    assert (small_image.rootfs / "home/user").stat().st_uid == manifest.uid_base + 1000
    assert {remedy.name for remedy in manifest.remedies} >= {"still-desktop"}


def test_image_holds_no_device_and_nothing_of_the_bake(small_image: Image) -> None:
    """No device nodes, no download cache, no scripts of the bake, nothing in /tmp."""
    root = small_image.rootfs
    assert list((root / "dev").iterdir()) == []
    assert list((root / "tmp").iterdir()) == []
    assert not (root / "osgym-bake").exists()
    assert list((root / "var/cache/apt/archives").glob("*.deb")) == []


def test_no_file_is_newer_than_the_definition_says(small_image: Image) -> None:
    """Two bakes of one day and the next agree: no time stamp is from today."""
    late = []
    for name in ("etc", "home", "usr/share/osgym", "usr/local", "var/cache/fontconfig"):
        for path in (small_image.rootfs / name).rglob("*"):
            if 1735689600 < path.lstat().st_mtime < KEPT_FROM_S:
                late.append(str(path))
    assert late == []


def test_remedies_keep_the_setuid_bit_and_shared_files(small_image: Image) -> None:
    """Flattening keeps modes (sudo stays setuid) and shares unchanged files with the kept parts."""
    sudo = (small_image.rootfs / "usr/bin/sudo").stat()
    assert sudo.st_mode & stat.S_ISUID
    assert sudo.st_nlink > 1


def test_new_guest_agent_is_baked_alone(small_image: Image, private: Private, tmp_path: Path) -> None:
    """With packages and desktop kept, a changed guest agent gives another digest; unchanged, the same."""
    del small_image
    _lend_parts(private.store)
    guest = tmp_path / "guest_agent"
    source = _guest_source()
    shutil.copytree(
        source, guest, ignore=shutil.ignore_patterns("build", "*.so", "__pycache__", "*.egg-info")
    )
    first = _baked(private.run("build", "--flavor", "small", "--json", OSGYM_GUEST_DIR=str(guest)))
    same = _baked(private.run("build", "--flavor", "small", "--json", OSGYM_GUEST_DIR=str(guest)))
    assert same["digest"] == first["digest"]
    assert "layer" in first["timings_s"] and "layer" not in same["timings_s"]
    with (guest / "osgym_guest" / "__init__.py").open("a") as file:
        file.write("\nCHANGED_BY_A_TEST = True\n")
    changed = _baked(private.run("build", "--flavor", "small", "--json", OSGYM_GUEST_DIR=str(guest)))
    assert changed["digest"] != first["digest"]
    assert "download" not in changed["timings_s"] and "unpack" not in changed["timings_s"]
    image = private.store.resolve("small")
    assert image.digest == changed["digest"]
    installed = image.rootfs / "usr/local/lib/python3.11/dist-packages/osgym_guest/__init__.py"
    assert "CHANGED_BY_A_TEST" in installed.read_text()
    assert private.run("rm", "--untagged").returncode == 0
    assert [found.digest for found in private.store.all()] == [changed["digest"]]


def test_guest_agent_that_does_not_import_is_no_image(
    small_image: Image, private: Private, tmp_path: Path
) -> None:
    """The check fails the bake, and the store holds nothing that looks baked."""
    del small_image
    _lend_parts(private.store)
    guest = tmp_path / "guest_agent"
    source = _guest_source()
    shutil.copytree(
        source, guest, ignore=shutil.ignore_patterns("build", "*.so", "__pycache__", "*.egg-info")
    )
    (guest / "osgym_guest" / "__init__.py").write_text("raise RuntimeError('broken by a test')\n")
    done = private.run("build", "--flavor", "small", OSGYM_GUEST_DIR=str(guest))
    assert done.returncode == 1
    assert "broken by a test" in done.stderr and "osgym_guest" in done.stderr
    assert private.store.all() == []
    assert private.store.tagged() == {}
    assert {path.name for path in private.store.folder.iterdir()} == {".locks", "tags"}


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_interrupted_bake_leaves_nothing(private: Private, number: signal.Signals) -> None:
    """Ctrl-C and SIGTERM in the middle: no folder, no process, no image."""
    baking = private.start("build", "--flavor", "small")
    try:
        _wait_for_mmdebstrap(private.store, baking)
        baking.send_signal(number)
        assert baking.wait(timeout=60) != 0
    finally:
        baking.kill()
        baking.wait()
    assert {path.name for path in private.store.folder.iterdir()} == {".locks", "tags"}
    assert not _users_of(private.store.data_dir)


def test_killed_bake_is_cleaned_up_by_the_next(private: Private) -> None:
    """kill -9 ends its processes with it; what is left looks like no image and is reaped."""
    baking = private.start("build", "--flavor", "small")
    try:
        _wait_for_mmdebstrap(private.store, baking)
    finally:
        baking.kill()
        baking.wait()
    assert private.store.all() == []
    deadline = time.monotonic() + 30
    while _users_of(private.store.data_dir) and time.monotonic() < deadline:
        time.sleep(0.1)
    assert not _users_of(private.store.data_dir)
    assert private.store.reap()
    assert {path.name for path in private.store.folder.iterdir()} == {".locks", "tags"}


def test_dry_run_bakes_nothing(private: Private) -> None:
    """It says what would be done and makes not even a folder."""
    done = private.run("build", "--flavor", "full", "--dry-run")
    plan = json.loads(done.stdout)
    assert plan["package_part"] == "to be baked" and "gimp" in plan["packages"]
    assert not private.store.folder.exists()


def test_lock_that_cannot_be_had_is_an_error(private: Private, tmp_path: Path) -> None:
    """An unreadable lock stops the bake before anything is done."""
    done = private.run("build", "--flavor", "small", "--lock", str(tmp_path / "none"))
    assert done.returncode == 1
    assert "cannot be read" in done.stderr
    assert not private.store.folder.exists()


def _baked(done: subprocess.CompletedProcess[str]) -> dict[str, Any]:
    assert done.returncode == 0, done.stderr[-3000:]
    row: dict[str, Any] = json.loads(done.stdout)
    return row


def _guest_source() -> Path:
    source = find_guest_agent().source
    assert source is not None, "these tests need the source of the guest agent"
    return source


def _lend_parts(store: ImageStore) -> None:
    """Give a store the kept parts of the real one, by hard links."""
    store.prepare()
    real = ImageStore(default_data_dir())
    idmap = current_idmap()
    for source, target in ((real.bases, store.bases), (real.desktops, store.desktops)):
        for record in source.glob("*/tree.json"):
            if json.loads(record.read_text())["flavor"] != "small":
                continue
            folder = target / record.parent.name
            folder.mkdir()
            shutil.copy(record, folder)
            if os.geteuid() != 0:
                folder.chmod(0o777)
            else:
                os.chown(folder, idmap.uid_base, idmap.gid_base)
            below = os.path.relpath(record.parent / "rootfs", folder)
            operate(NamespaceSpec(folder, idmap), "make", paths=["none"])
            operate(NamespaceSpec(folder, idmap), "flatten", base=below, layer="none", target="rootfs")
            operate(NamespaceSpec(folder, idmap), "remove", path="none")


def _wait_for_mmdebstrap(store: ImageStore, baking: subprocess.Popen[bytes]) -> None:
    """Wait until mmdebstrap has begun to fill its tree in the store."""
    deadline = time.monotonic() + 60
    while time.monotonic() < deadline:
        assert baking.poll() is None, "the bake ended by itself"
        if any(_users_of(store.data_dir)) and list(store.folder.glob(".baking-*/mmdebstrap.*/etc")):
            return
        if os.geteuid() != 0 and list(store.folder.glob(".baking-*/base/rootfs")):
            return
        time.sleep(0.05)
    raise AssertionError("mmdebstrap did not begin")


def _users_of(folder: Path) -> list[str]:
    """Command lines of processes that name the folder, other than this one."""
    found = []
    for path in Path("/proc").glob("[0-9]*/cmdline"):
        try:
            text = path.read_bytes().replace(b"\0", b" ").decode(errors="replace")
        except OSError:
            continue
        if str(folder) in text and int(path.parent.name) != os.getpid():
            found.append(text)
    return found


def _deb(folder: Path, name: str, depends: str = "") -> None:
    """Make a package with one program, which says its name."""
    root = folder.parent / f"{name}-root"
    program = root / "usr/bin" / name
    program.parent.mkdir(parents=True)
    program.write_text(f"#!/bin/sh\necho {name}\n")
    program.chmod(0o755)
    (root / "DEBIAN").mkdir()
    (root / "DEBIAN/control").write_text(
        f"Package: {name}\nVersion: 1.0\nArchitecture: all\nMaintainer: nobody <nobody@example.org>\n"
        f"Description: of a test\n{depends}"
    )
    subprocess.run(["dpkg-deb", "--root-owner-group", "--build", root, folder / f"{name}.deb"], check=True)


def test_an_addition_is_laid_over_a_flavor(small_image: Image, private: Private, tmp_path: Path) -> None:
    """Its package, files and script are in an image of its own name; the base's packages are kept.

    A package whose dependencies are missing fails the bake and is named.
    """
    del small_image
    _lend_parts(private.store)
    mine = tmp_path / "mine"
    for name in ("debs", "files/etc", "provision"):
        (mine / name).mkdir(parents=True)
    (mine / "addition.toml").write_text(
        'format = 1\nname = "mine"\nabout = "ours"\nbase = "small"\nbinaries = ["greeter"]\n'
    )
    _deb(mine / "debs", "greeter")
    (mine / "files/etc/mine").write_text("ours\n")
    script = mine / "provision/60-mine"
    script.write_text('#!/bin/sh\ngreeter >"$OSGYM_HOME/greeting"\n')
    script.chmod(0o755)
    made = _baked(private.run("build", "--add", str(mine), "--json"))
    assert "unpack" in made["timings_s"] or "layer" in made["timings_s"]
    image = private.store.resolve("mine")
    assert image.manifest.added_packages == {"greeter": "1.0"}
    assert "greeter" not in image.manifest.packages
    assert (image.rootfs / "usr/bin/greeter").exists()
    assert (image.rootfs / "etc/mine").read_text() == "ours\n"
    assert (image.rootfs / "home/user/greeting").read_text() == "greeter\n"
    assert not (image.rootfs / "osgym-bake").exists()
    _deb(mine / "debs", "needy", "Depends: nobody-has-this\n")
    failed = private.run("build", "--add", str(mine))
    assert failed.returncode == 1
    assert "nobody-has-this" in failed.stderr and "addition.toml" in failed.stderr
    assert private.store.resolve("mine").digest == made["digest"]
    both = private.run("build", "--add", str(mine), "--flavor", "small")
    assert (both.returncode, "leave out --flavor" in both.stderr) == (2, True)
