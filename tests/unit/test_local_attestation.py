"""Whether a guest agent is called tampered with while the image that it is compared with is away."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest
from tests.support.fake_runtime import FakeImage

from osgym_host.runtimes.base import GuestTampered, RuntimeFault
from osgym_host.runtimes.local import attestation
from osgym_host.runtimes.local.replica import LocalReplica
from osgym_host.runtimes.local.supervisor import Supervisor

AWAY = "the guest agent cannot be inspected: [Errno 2] No such file or directory"


class Zygote:
    """Compares as the zygote does: what it finds depends on whether the image is there when it looks.

    Attributes:
        after: What happens to the image after the look of this number, before the answer comes.
    """

    def __init__(self, rootfs: Path, finding: str = "", after: dict[int, Callable[[], object]] | None = None):
        """Nothing was looked at yet."""
        self.rootfs, self.finding, self.after, self.looks = rootfs, finding, after or {}, 0

    async def request(self, op: str, fields: Any, timeout_s: float) -> tuple[dict[str, Any], list[int]]:
        """Answer a check."""
        self.looks += 1
        found = self.finding if self.rootfs.is_dir() else AWAY
        self.after.get(self.looks, bool)()
        return {"result": found}, []


async def attest(zygote: Zygote) -> bool:
    """Check a replica that has no processes."""
    spec = SimpleNamespace(image=FakeImage(rootfs=zygote.rootfs))
    fields = {"agent": {"pid": 1}, "listening": 1, "one_pid_namespace": False, "replica_id": "r1"}
    replica = SimpleNamespace(spec=spec, folder=zygote.rootfs.parent, **fields)
    return await attestation.attest(cast(Supervisor, zygote), cast(LocalReplica, replica), lambda: set(), [])


async def test_an_image_that_comes_back_during_the_check_is_no_finding(tmp_path: Path) -> None:
    """It was away when the agent was looked at, and is there again when the answer comes."""
    rootfs = tmp_path / "rootfs"
    zygote = Zygote(rootfs, after={1: rootfs.mkdir})
    assert await attest(zygote)
    assert zygote.looks == 2


async def test_an_agent_that_was_changed_is_found_with_its_image_there(tmp_path: Path) -> None:
    """At once, and also after the image was away."""
    rootfs = tmp_path / "rootfs"
    for already_there in (False, True):
        zygote = Zygote(rootfs, "its code was changed", {1: bool if already_there else rootfs.mkdir})
        with pytest.raises(GuestTampered, match="its code was changed"):
            await attest(zygote)
        assert zygote.looks == (1 if already_there else 2)


async def test_an_image_that_stays_away_is_the_hosts_fault(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nothing is said of the agent."""
    monkeypatch.setattr(attestation, "_IMAGE_WAIT_S", 0.0)
    with pytest.raises(RuntimeFault, match="folder is missing") as caught:
        await attest(Zygote(tmp_path / "rootfs"))
    assert not isinstance(caught.value, GuestTampered)
