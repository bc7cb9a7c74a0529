"""What every runtime promises (`osgym_host.runtimes.base`), run against each of them for real.

A runtime joins by adding a kit to `KITS` (`tests/support/runtime_kits.py`): how to make it, the image
that runs what a test sends, and how to see from outside whether anything of a replica is left.
"""

from __future__ import annotations

import os
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from tests.support.runtime_kits import Kit, LocalKit, QemuKit, contract_spec, exists
from tests.support.runtime_probe import build_python_image

from osgym_host.runtimes.base import Replica, ReplicaSpec, Runtime

KITS = ("local_kit", "qemu_kit")


@pytest.fixture(scope="module")
def local_kit(tmp_path_factory: pytest.TempPathFactory) -> Kit:
    return LocalKit(build_python_image(tmp_path_factory.mktemp("image") / "rootfs"))


@pytest.fixture(scope="module")
def qemu_kit(request: pytest.FixtureRequest) -> Kit:
    return QemuKit(request.getfixturevalue("small_snapshot"))


@pytest.fixture(params=KITS)
def kit(request: pytest.FixtureRequest) -> Kit:
    found: Kit = request.getfixturevalue(request.param)
    return found


@pytest.fixture
async def runtime(kit: Kit, tmp_path: Path) -> AsyncIterator[Runtime]:
    """A started runtime; at the end nothing of it is left."""
    descriptors = len(os.listdir("/proc/self/fd"))
    runtime = kit.make(tmp_path)
    await runtime.start()
    replicas: list[Replica] = []
    original = runtime.create

    async def create(spec: ReplicaSpec) -> Replica:
        replica = await original(spec)
        replicas.append(replica)
        return replica

    runtime.create = create  # type: ignore[method-assign]  # remembers what the test made
    yield runtime
    await runtime.stop()
    assert kit.traces(tmp_path) == []
    assert all(replica.exit_info is not None for replica in replicas)
    assert not any(exists(replica.pid) for replica in replicas)
    assert len(os.listdir("/proc/self/fd")) <= descriptors


@pytest.fixture
def spec(kit: Kit) -> ReplicaSpec:
    return contract_spec(kit)
