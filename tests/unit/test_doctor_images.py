"""The doctor names images and snapshots whose programs reach the guest agent."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from osgym_host.doctor.machine import check_session_isolation
from osgym_host.doctor.result import DoctorContext, Finding, Status
from osgym_qemu.doctor import check_snapshot_isolation

IMAGE: dict[str, Any] = {
    "created_at": "2026-01-01T00:00:00Z",
    "definition_key": "k",
    "suite": "bookworm",
    "screen": [1920, 1080],
    "user": "user",
    "home": "/home/user",
    "uid_base": 0,
    "gid_base": 0,
    "id_count": 65536,
    "packages": {},
    "lock_digest": "l",
    "apps": [],
    "remedies": [],
    "guest_version": "1",
    "size_bytes": 1,
    "bake_s": 1.0,
}
SNAPSHOT: dict[str, Any] = {
    "created_at": "2026-01-01T00:00:00Z",
    "definition_key": "k",
    "disk_digest": "d",
    "disk_format": "qcow2",
    "image_digest": None,
    "screen": [1920, 1080],
    "qemu_version": "7.2.0",
    "shape": {},
    "argv": [],
    "kernel_digest": None,
    "ram_mib": 1,
    "ram_data_bytes": 1,
    "state_bytes": 1,
    "disk_bytes": 1,
    "ram_sha256": "r",
    "state_sha256": "s",
    "disk_sha256": "d",
    "boot_s": 1.0,
    "build_s": 1.0,
}


def add(data_dir: Path, kind: str, name: str, manifest: dict[str, Any]) -> None:
    """Put an entry into a store, as an older version of this program may have written it."""
    digest = name.encode().hex().ljust(64, "0")
    folder = data_dir / kind / digest
    folder.mkdir(parents=True)
    (folder / "manifest.json").write_text(json.dumps({**manifest, "digest": digest}))
    tags = data_dir / kind / "tags"
    tags.mkdir(exist_ok=True)
    (tags / name).write_text(f"{digest}\n")


async def findings(data_dir: Path) -> list[Finding]:
    """What the doctor says of the images and snapshots below a folder."""
    context = DoctorContext(data_dir, replicas=1)
    return [*await check_session_isolation(context), *await check_snapshot_isolation(context)]


async def test_it_says_nothing_where_there_is_no_image(tmp_path: Path) -> None:
    """A machine that bakes its first image has nothing to mend."""
    assert await findings(tmp_path) == []


async def test_images_and_snapshots_without_the_flag_are_named(tmp_path: Path) -> None:
    """A manifest from before there was the flag says that sessions are not isolated."""
    add(tmp_path, "images", "old", {**IMAGE, "flavor": "old"})
    add(tmp_path, "images", "new", {**IMAGE, "flavor": "new", "session_isolated": True})
    add(tmp_path, "snapshots", "old@desktop", {**SNAPSHOT, "reference": "old@desktop", "guest": "osgym"})
    add(
        tmp_path,
        "snapshots",
        "theirs@desktop",
        {**SNAPSHOT, "reference": "theirs@desktop", "guest": "osworld"},
    )
    images, snapshots = await findings(tmp_path)
    assert images.status is Status.WARN and snapshots.status is Status.WARN
    assert images.facts == {"old": False, "new": True}
    assert images.found.endswith(": old.") and "osgym image build" in images.remedy
    assert snapshots.facts == {"old@desktop": False}
    assert snapshots.found.endswith(": old@desktop.") and "osgym image snapshot" in snapshots.remedy


async def test_isolated_images_are_in_order(tmp_path: Path) -> None:
    """With the flag in every manifest there is nothing to do."""
    add(tmp_path, "images", "new", {**IMAGE, "flavor": "new", "session_isolated": True})
    (found,) = await findings(tmp_path)
    assert found.status is Status.OK
