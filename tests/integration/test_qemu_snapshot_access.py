"""Who may read a snapshot: its memory opens every clone until it is another, so only its owner."""

from __future__ import annotations

import os
import shutil
import subprocess
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.support.runtime_kits import QemuKit

from osgym_host.guest_client import GuestClient
from osgym_host.runtimes.base import ReplicaSpec
from osgym_qemu.runner.users import user_of
from osgym_qemu.snapshots import Snapshot, SnapshotStore

pytestmark = pytest.mark.skipif(os.geteuid() != 0, reason="missing: root, to look as another user")
STRANGER = 65534


@pytest.fixture
def data_dir() -> Iterator[Path]:
    """A data folder where other users may pass, as that of a service is."""
    folder = Path(tempfile.mkdtemp(prefix="osgym-access-"))
    folder.chmod(0o755)
    yield folder
    shutil.rmtree(folder)


@pytest.fixture
def as_before(small_snapshot: Snapshot, data_dir: Path) -> Snapshot:
    """The small snapshot with the modes that older versions gave it."""
    store = SnapshotStore(data_dir)
    store.prepare()
    folder = store.folder / small_snapshot.digest
    folder.mkdir()
    for path in small_snapshot.folder.iterdir():
        if path == small_snapshot.base and path.stat().st_dev == folder.stat().st_dev:
            os.link(path, folder / path.name)
        else:
            subprocess.run(["cp", "--sparse=always", path, folder], check=True)
            (folder / path.name).chmod(0o600 if path.name == "secret" else 0o444)
    folder.chmod(0o755)
    store.tag(small_snapshot.reference, small_snapshot.digest)
    return store.resolve(small_snapshot.reference)


def readable_by_others(folder: Path) -> list[str]:
    """What another user of the host reads of a folder whose names he knows."""
    names = " ".join(path.name for path in sorted(folder.iterdir()))
    script = (
        f'cd "$0" || exit 0; for name in {names}; do head -c 1 $name >/dev/null && echo $name; done; true'
    )
    looked = subprocess.run(
        ["/bin/sh", "-c", script, folder], user=STRANGER, group=STRANGER, extra_groups=[],
        stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, check=True, text=True,
    )  # fmt: skip
    return looked.stdout.split()


async def test_a_snapshot_of_an_older_version_is_closed_and_still_cloned(
    as_before: Snapshot, data_dir: Path
) -> None:
    """Its machines run as other users, who get disk and memory as descriptors."""
    assert "ram" in readable_by_others(as_before.folder)
    kit = QemuKit(as_before, parked=0)
    runtime = kit.make(data_dir)
    await runtime.start()
    try:
        assert readable_by_others(as_before.folder) == []
        replica = await runtime.create(ReplicaSpec("r1", 1, as_before, kit.screen))
        assert user_of(replica.pid) not in (0, STRANGER)
        async with GuestClient(replica.guest, token=replica.guest_token) as guest:
            read = await guest.execute(["sudo", "-n", "md5sum", "/usr/bin/python3"])
            assert read.returncode == 0, read.error
            await guest.observe()
        point = await runtime.branch(replica)
        child = await runtime.create(ReplicaSpec("r2", 2, as_before, kit.screen, origin=point))
        async with GuestClient(child.guest, token=child.guest_token) as guest:
            assert (await guest.execute(["sudo", "-n", "md5sum", "/usr/bin/python3"])).output == read.output
    finally:
        await runtime.stop()
