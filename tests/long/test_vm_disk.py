"""Disk images: what is on them, and that they start by themselves, without a kernel from outside.

That they start with one is what every golden snapshot shows.
"""

# ruff: noqa: ASYNC240 -- the only task of a test blocks nobody

from __future__ import annotations

import asyncio
import contextlib
import json
import shutil
import subprocess
from pathlib import Path

import pytest
from tests.support.booted_disk import BOOT_TIMEOUT_S, TOKEN, boot_disk
from tests.support.host_process import osgym

from osgym_host.guest_client import GuestClient, GuestError
from osgym_qemu.disks.store import DiskImage

OVMF = Path("/usr/share/OVMF/OVMF_CODE_4M.fd")


def test_nothing_is_done_when_the_disk_is_there(small_disk: DiskImage) -> None:
    """The digest depends on what it was made from only."""
    first, second = (
        osgym("image", "build", "--flavor", "small", "--format", "qcow2", "--json", timeout_s=600)
        for _ in range(2)
    )
    assert first.returncode == second.returncode == 0, first.stderr + second.stderr
    one, two = json.loads(first.stdout), json.loads(second.stdout)
    assert one["digest"] == two["digest"]
    assert not {"fetch", "layer", "disk"} & two["timings_s"].keys()


def test_partitions_and_file_system_are_sound(small_disk: DiskImage, tmp_path: Path) -> None:
    """The partition table and the ext4 have no fault; files belong to who they belong to inside."""
    raw = tmp_path / "disk.raw"
    subprocess.run(
        ["qemu-img", "convert", "-O", "raw", small_disk.disk, raw], check=True, stdin=subprocess.DEVNULL
    )
    assert raw.stat().st_size == small_disk.manifest.virtual_size_bytes
    said = subprocess.run(["sgdisk", "--verify", "--print", raw], capture_output=True, text=True, check=True)
    assert "No problems found" in said.stdout and "EF00" in said.stdout
    start = next(int(line.split()[1]) for line in said.stdout.splitlines() if line.startswith("   2 "))
    root = f"{raw}?offset={start * 512}"
    checked = subprocess.run(["e2fsck", "-fn", root], capture_output=True, text=True, check=False)
    assert checked.returncode == 0, checked.stdout
    for path, owner in (("/home/user", 1000), ("/usr/bin/sudo", 0), ("/etc/shadow", 0)):
        found = subprocess.run(
            ["debugfs", "-R", f"stat {path}", root], capture_output=True, text=True, check=True
        )
        assert f"User: {owner:>5}" in found.stdout, found.stdout
    uuid = subprocess.run(["debugfs", "-R", "stats -h", root], capture_output=True, text=True, check=True)
    assert small_disk.manifest.kernel_append.split()[0].removeprefix("root=UUID=") in uuid.stdout
    with contextlib.suppress(FileNotFoundError):
        raw.unlink()


@pytest.mark.timeout(360)
async def test_it_starts_by_bios(small_disk: DiskImage, tmp_path: Path) -> None:
    """The token comes by SMBIOS, no unit fails, and the desktop's programs have what they expect."""
    smbios = [
        "-smbios",
        f"type=11,value=io.systemd.credential:osgym.token={TOKEN},"
        "value=io.systemd.credential:osgym.screen=1024x768",
    ]
    async with boot_disk(small_disk, tmp_path, *smbios) as machine:
        await machine.guest.ready(timeout_s=120)
        assert await machine.guest.screen_size() == (1024, 768)
        console = machine.console.read_text(errors="replace")
        assert "FAILED" not in console and "Failed to" not in console, console
        assert await machine.shell("sudo -n id -u") == "0"
        assert "10.0.2.15/24" in await machine.shell("ip -4 -o address show eth0")
        assert await machine.shell("getent hosts $(hostname) | wc -l") == "1"
        assert await machine.shell("ls /sys/firmware/efi 2>/dev/null | wc -l") == "0"
        # Each boot is a machine of its own.
        assert await machine.shell("cat /etc/machine-id") != "0123456789abcdef0123456789abcdef"


@pytest.mark.timeout(360)
async def test_it_ends_without_its_display(small_disk: DiskImage, tmp_path: Path) -> None:
    """With a screen that no X server can have it switches itself off and says why."""
    smbios = ["-smbios", "type=11,value=io.systemd.credential:osgym.screen=0x0"]
    async with boot_disk(small_disk, tmp_path, *smbios, answers=False) as machine:
        async with asyncio.timeout(BOOT_TIMEOUT_S):
            await machine.process.wait()
        assert machine.process.returncode == 0
        assert "osgym: the session ended: exit-code exited 3" in machine.console.read_text(errors="replace")


@pytest.mark.timeout(360)
async def test_it_starts_by_uefi(small_disk: DiskImage, tmp_path: Path) -> None:
    """The token comes by fw_cfg; a caller without it is refused."""
    if not OVMF.exists():
        pytest.skip("missing: ovmf")
    shutil.copyfile("/usr/share/OVMF/OVMF_VARS_4M.fd", tmp_path / "vars.fd")
    firmware = [
        "-drive",
        f"if=pflash,format=raw,readonly=on,file={OVMF}",
        "-drive",
        f"if=pflash,format=raw,file={tmp_path}/vars.fd",
        "-fw_cfg",
        f"name=opt/io.systemd.credentials/osgym.token,string={TOKEN}",
    ]
    async with boot_disk(small_disk, tmp_path, *firmware) as machine:
        assert await machine.shell("test -d /sys/firmware/efi && echo uefi") == "uefi"
        async with GuestClient(machine.address, token="wrong") as stranger:
            with pytest.raises(GuestError, match="401"):
                await stranger.health()
