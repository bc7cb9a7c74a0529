"""Disk images: their definition, layout, store and the overlays over them."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
import tomllib
from pathlib import Path

import pytest

from osgym_host.images.definition import find_images_folder
from osgym_host.images.errors import BakeError, DefinitionError, ImageError, ImageNotFound
from osgym_qemu.disks import assemble
from osgym_qemu.disks.definition import VmSource
from osgym_qemu.disks.manifest import DiskFormat, DiskManifest, Firmware, GuestKind
from osgym_qemu.disks.overlay import (
    CowWay,
    can_reflink,
    choose,
    copy_sharing,
    empty_qcow2,
    make_overlay,
    virtual_size,
)
from osgym_qemu.disks.store import DiskImage, DiskStore

IMAGES = find_images_folder()
MIB = 1 << 20

needs_qemu_img = pytest.mark.skipif(shutil.which("qemu-img") is None, reason="missing: qemu-img")


# Definition ----------------------------------------------------------------------------------------


def test_everything_in_the_definition_says_why() -> None:
    """Kernel arguments, settings, units and packages each have a reason, and none is there twice."""
    wanted = VmSource(IMAGES).definition
    for entries in (wanted.packages, wanted.initrd_modules, wanted.sysctls, wanted.masked_units):
        names = [entry.name for entry in entries]
        assert len(names) == len(set(names)) > 0
        assert all(len(entry.why) >= 8 for entry in entries)
    assert all(len(argument.why) >= 8 for argument in wanted.kernel_arguments)


def test_what_is_slow_under_emulation_is_not_used() -> None:
    """These look like tuning, but have the kernel start modprobe for each sudo and each IPv6 socket."""
    words = VmSource(IMAGES).kernel_append("u").split()
    assert not {"audit=0", "ipv6.disable=1", "nohz=off", "acpi=off"} & set(words)
    assert words[:2] == ["root=UUID=u", "ro"]


def test_an_entry_without_a_reason_is_refused(tmp_path: Path) -> None:
    """The reason is part of the definition."""
    shutil.copytree(IMAGES / "vm", tmp_path / "vm")
    path = tmp_path / "vm" / "vm.toml"
    text, count = re.subn(
        r'\{ value = "quiet", why = "[^"]*" \}', '{ value = "quiet", why = "" }', path.read_text()
    )
    assert count == 1
    path.write_text(text)
    with pytest.raises(DefinitionError, match="why"):
        VmSource(tmp_path)


def test_generated_files_hold_what_the_definition_says(tmp_path: Path) -> None:
    """fstab, sysctls, drivers and masked units are written from it."""
    source = VmSource(IMAGES)
    source.write_generated(tmp_path, "some-uuid")
    assert "UUID=some-uuid / ext4" in (tmp_path / "etc/fstab").read_text()
    sysctls = tomllib.loads(
        "\n".join(
            f'"{name.strip()}" = "{value.strip()}"'
            for name, _, value in (
                line.partition("=")
                for line in (tmp_path / "etc/sysctl.d/60-osgym.conf").read_text().splitlines()
                if not line.startswith("#")
            )
        )
    )
    assert sysctls == {item.name: item.value for item in source.definition.sysctls}
    masked = (tmp_path / "osgym-bake/vm/masked-units").read_text().split()
    assert "apt-daily.timer" in masked and "serial-getty@ttyS0.service" in masked


def test_the_key_changes_with_any_file(tmp_path: Path) -> None:
    """A disk is made anew when a unit file changed."""
    shutil.copytree(IMAGES / "vm", tmp_path / "vm")
    before = VmSource(tmp_path).key()
    assert before == VmSource(IMAGES).key()
    unit = tmp_path / "vm/files/etc/systemd/system/osgym-desktop.service"
    unit.write_text(unit.read_text() + "\n# changed\n")
    assert VmSource(tmp_path).key() != before


# Layout and tools ----------------------------------------------------------------------------------


def test_partitions_follow_each_other_on_whole_mebibytes() -> None:
    """EFI partition, root and both partition tables fit, and the content has its free space."""
    layout = assemble.plan_layout(800 * MIB + 7, 60_000, free_mib=4096, efi_mib=96, journal_mib=8)
    assert layout.efi_start == MIB and layout.root_start == layout.efi_start + layout.efi_bytes
    assert layout.disk_bytes == layout.root_start + layout.root_bytes + MIB
    assert all(value % MIB == 0 for value in (layout.root_start, layout.root_bytes, layout.disk_bytes))
    assert layout.root_bytes > (800 + 60_000 * 2048 // MIB + 4096) * MIB


def test_a_missing_program_is_named_with_the_command_that_installs_it(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Nothing is begun without the programs."""
    monkeypatch.setitem(assemble.TOOLS, "no-such-program", "some-package")
    with pytest.raises(BakeError) as caught:
        assemble.require_tools()
    assert "some-package" in str(caught.value)
    assert caught.value.hint.startswith("apt-get install ") and "some-package" in caught.value.hint


# Store ---------------------------------------------------------------------------------------------


def _manifest(digest: str, name: str = "small", created_at: str = "2026-01-01") -> DiskManifest:
    return DiskManifest(
        digest=digest,
        name=name,
        format=DiskFormat.QCOW2,
        virtual_size_bytes=MIB,
        image_digest=None,
        guest=GuestKind.OSGYM,
        firmware=Firmware.BIOS,
        screen=(1920, 1080),
        created_at=created_at,
        source="a test",
    )


def _put(store: DiskStore, digest: str, created_at: str = "2026-01-01") -> DiskImage:
    with store.workspace() as workspace:
        made = workspace / "made"
        made.mkdir()
        (made / "disk.qcow2").write_bytes(digest.encode())
        (made / "vmlinuz").write_bytes(b"kernel")
        return store.publish(made, _manifest(digest, created_at=created_at))


def test_a_disk_is_found_by_name_digest_and_prefix(tmp_path: Path) -> None:
    """A tag names the newest; a kernel that is not there is None."""
    store = DiskStore(tmp_path)
    first = _put(store, "a" * 64)
    second = _put(store, "ab" * 32, "2026-01-02")
    store.tag("small", second.digest)
    assert store.resolve("small") == second == store.all()[0]
    assert store.resolve("aaaaaa") == first
    assert second.kernel == second.folder / "vmlinuz" and second.initrd is None
    with pytest.raises(ImageNotFound, match="no disk image"):
        store.resolve("full")
    with pytest.raises(ImageNotFound):
        store.resolve("../a")
    with pytest.raises(ImageNotFound, match="fits several disk images"):
        store.resolve("a")


def test_a_removed_disk_takes_its_tag_along(tmp_path: Path) -> None:
    """Nothing of it is left, and other disks stay."""
    store = DiskStore(tmp_path)
    first, second = _put(store, "a" * 64), _put(store, "b" * 64)
    store.tag("small", first.digest)
    store.remove(first)
    assert store.tagged() == {} and store.all() == [second]
    assert sorted(path.name for path in store.folder.iterdir()) == ["b" * 64, "tags"]


def test_a_build_that_fails_leaves_nothing(tmp_path: Path) -> None:
    """The workspace is gone; what a killed process left, `reap` takes."""
    store = DiskStore(tmp_path)
    with pytest.raises(RuntimeError), store.workspace() as workspace:
        (workspace / "disk.raw").write_bytes(b"x")
        raise RuntimeError("stop")
    (store.folder / ".baking-left").mkdir()
    assert store.reap() == [".baking-left"]
    assert [path.name for path in store.folder.iterdir()] == ["tags"]


# Overlays ------------------------------------------------------------------------------------------


@needs_qemu_img
@pytest.mark.parametrize("size_bytes", [512, 5446 * MIB, 2 << 40])
def test_qemu_takes_our_overlays(tmp_path: Path, size_bytes: int) -> None:
    """qemu-img finds no fault in them, the right size and the backing file."""
    base = tmp_path / "base.qcow2"
    subprocess.run(["qemu-img", "create", "-q", "-f", "qcow2", base, str(size_bytes)], check=True)
    target = tmp_path / "overlay.qcow2"
    make_overlay(target, virtual_size(base, DiskFormat.QCOW2), str(base))
    subprocess.run(["qemu-img", "check", "-q", target], check=True)
    said = subprocess.run(
        ["qemu-img", "info", "--output=json", target], check=True, capture_output=True, text=True
    )
    info = json.loads(said.stdout)
    assert info["virtual-size"] == size_bytes == virtual_size(target, DiskFormat.QCOW2)
    assert (info["backing-filename"], info["backing-filename-format"]) == (str(base), "qcow2")
    assert target.stat().st_blocks * 512 <= 64 * 1024


@needs_qemu_img
def test_what_is_written_to_an_overlay_stays_in_it(tmp_path: Path) -> None:
    """The base shows through, and is not changed."""
    base, target = tmp_path / "base.raw", tmp_path / "overlay.qcow2"
    base.write_bytes(b"b" * MIB)
    make_overlay(target, MIB, str(base), DiskFormat.RAW)
    write = ["qemu-io", "-f", "qcow2", "-c", "write -P 0x77 65536 4096", "-c", "read -P 0x62 0 65536", target]
    done = subprocess.run(write, capture_output=True, text=True, check=False)
    assert done.returncode == 0 and "Pattern verification failed" not in done.stdout, done.stdout
    assert base.read_bytes() == b"b" * MIB
    with pytest.raises(FileExistsError):
        make_overlay(target, MIB, str(base), DiskFormat.RAW)


def test_sizes_and_names_that_do_not_fit_are_refused() -> None:
    """A header holds a name of 1023 bytes and whole sectors."""
    for size, name in ((0, ""), (100, ""), (512, "x" * 1024)):
        with pytest.raises(ValueError, match="no overlay"):
            empty_qcow2(size, name)


def test_a_file_that_is_no_qcow2_has_no_size_as_one(tmp_path: Path) -> None:
    """Nor one that ends in its header."""
    path = tmp_path / "x"
    for content in (b"", b"QFI\xfb" + b"\0" * 20, b"x" * 200):
        path.write_bytes(content)
        with pytest.raises(ImageError, match="not a qcow2"):
            virtual_size(path, DiskFormat.QCOW2)
    assert virtual_size(path, DiskFormat.RAW) == 200


def test_the_way_of_sharing_follows_from_the_file_system(tmp_path: Path) -> None:
    """Where blocks can be shared raw disks are kept, else overlays are made; the reason is said."""
    assert (choose(reflink=True).way, choose(reflink=True).format) == (CowWay.REFLINK, DiskFormat.RAW)
    assert (choose(reflink=False).way, choose(reflink=False).format) == (CowWay.OVERLAY, DiskFormat.QCOW2)
    source, target = tmp_path / "source", tmp_path / "target"
    source.write_bytes(b"s" * 8192)
    if can_reflink(tmp_path):
        copy_sharing(target, source)
        assert target.read_bytes() == source.read_bytes()
        target.unlink()
    else:
        with pytest.raises(OSError):
            copy_sharing(target, source)
    assert [path.name for path in tmp_path.iterdir()] == ["source"]
