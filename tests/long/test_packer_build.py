"""The golden image by Packer, for real: a team's own disk is built, taken into a store, and starts."""

from __future__ import annotations

import hashlib
import json
import os
import secrets
import shutil
import socket
import subprocess
from pathlib import Path

import pytest
from tests.support.booted_disk import BOOT_TIMEOUT_S, TOKEN, boot_disk
from tests.support.host_process import osgym

from osgym_qemu.disks.manifest import Firmware, GuestKind
from osgym_qemu.disks.store import DiskImage, DiskStore

TEMPLATE = Path(__file__).resolve().parents[2] / "images" / "packer" / "guest-qemu.pkr.hcl"
SCRIPT = """#!/bin/sh
set -eu
test "$(id -u)" = 0
printf '%s %s\\n' "$OSGYM_USER" "$(cat /etc/team.conf)" >/etc/team.made
mkdir -p /tmp/tools/DEBIAN
printf '%s\\n' 'Package: team-tools' 'Version: 1' 'Architecture: all' 'Maintainer: team <team@localhost>' \\
    'Description: what the team uses' >/tmp/tools/DEBIAN/control
dpkg-deb --build /tmp/tools /tmp/tools.deb
dpkg --install /tmp/tools.deb
"""
LEFT = (
    "ls -d /osgym-bake /var/tmp/osgym* 2>/dev/null; systemctl --failed --no-legend --plain; command -v sshd"
)


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def _build(base: DiskImage, folder: Path) -> subprocess.CompletedProcess[str]:
    """Runs Packer, under emulation, on a machine without network."""
    (folder / "files/etc").mkdir(parents=True)
    (folder / "files/home/user").mkdir(parents=True)
    (folder / "files/etc/team.conf").write_text("customised")
    (folder / "files/home/user/notes.txt").write_text("ours")
    (folder / "team-setup").write_text(SCRIPT)
    (folder / "token").write_text(secrets.token_hex(16))
    with base.disk.open("rb") as file:
        checksum = hashlib.file_digest(file, "sha256").hexdigest()
    variables = {
        "disk": str(base.disk),
        "checksum": f"sha256:{checksum}",
        "token_file": "token",
        "files": "files",
        "provision": '["team-setup"]',
        "output": "out",
        "accelerator": "tcg",
        "memory_mib": "1024",
        "cpus": "1",
        "network": "false",
        "port": str(_free_port()),
        "boot_timeout_s": str(int(BOOT_TIMEOUT_S)),
    }
    env = {**os.environ, "CHECKPOINT_DISABLE": "1", "PACKER_CACHE_DIR": str(folder / "cache")}
    argv = ["packer", "build", "-color=false", *(f"-var={name}={value}" for name, value in variables.items())]
    return subprocess.run(
        # Named as people do, from where they are.
        [*argv, os.path.relpath(TEMPLATE, folder)],
        cwd=folder,
        env=env,
        capture_output=True,
        text=True,
        timeout=400,
        check=False,
    )


def _taken_in(made: Path, store: Path) -> DiskImage:
    """Imports it into a store of its own; the disk is then there only."""
    options = ["--name", "team", "--guest", "osgym", "--json"]
    taken = osgym("image", "import", str(made), *options, OSGYM_DATA_DIR=str(store))
    assert taken.returncode == 0, taken.stderr
    made.unlink()
    disk = DiskStore(store).resolve("team")
    assert json.loads(taken.stdout)["digest"] == disk.digest
    return disk


@pytest.mark.timeout(720)
async def test_a_teams_disk_is_built_taken_in_and_answers(small_disk: DiskImage, tmp_path: Path) -> None:
    """Its file and its program's work are there, of the right owner; of the build nothing is left."""
    if shutil.which("packer") is None:
        pytest.skip("missing: packer")
    built = _build(small_disk, tmp_path)
    assert built.returncode == 0, built.stdout[-4000:] + built.stderr
    assert "provision: team-setup" in built.stdout

    disk = _taken_in(tmp_path / "out" / "guest.qcow2", tmp_path / "store")
    assert (disk.manifest.guest, disk.manifest.firmware) == (GuestKind.OSGYM, Firmware.BIOS)

    (tmp_path / "machine").mkdir()
    token = ["-fw_cfg", f"name=opt/io.systemd.credentials/osgym.token,string={TOKEN}"]
    async with boot_disk(disk, tmp_path / "machine", *token) as machine:
        health = await machine.guest.ready(timeout_s=120)
        assert health.desktop_ready
        assert await machine.shell("cat /etc/team.made") == "user customised"
        assert await machine.shell("stat -c %U /etc/team.conf ~/notes.txt /home/user") == "root\nuser\nuser"
        assert await machine.shell("dpkg-query -W team-tools") == "team-tools\t1"
        assert await machine.shell(LEFT) == ""
    disk.disk.unlink()
