"""What is written down about a virtual machine, and what a later host agent makes of it."""

from __future__ import annotations

import os
import stat
from pathlib import Path

import pytest

from osgym_host.runtimes.base import Egress, Screen, TcpAddress
from osgym_host.runtimes.processes import ProcessIdentity
from osgym_host.runtimes.qemu import records
from osgym_host.runtimes.qemu.records import Phase, ReplicaFacts, VmRecord

FACTS = ReplicaFacts(
    replica_id="r7",
    generation=7,
    token="t0ken",
    screen=(800, 600),
    ram_mib=1500,
    cpus=1.0,
    pids=None,
    egress=Egress.NONE,
)
RECORD = VmRecord(
    name="v7", phase=Phase.RUNNING, snapshot="ab" * 32, pid=12, start_ticks=34, port=40000, replica=FACTS
)


def test_a_record_survives_and_is_for_its_owner_only(tmp_path: Path) -> None:
    """It is read as it was written, replaced whole, and nobody else may read the token."""
    records.write(tmp_path, RECORD)
    records.write(tmp_path, RECORD.model_copy(update={"phase": Phase.PARKED}))
    records.write(tmp_path, RECORD)
    assert records.read(tmp_path) == RECORD
    assert os.listdir(tmp_path) == [records.RECORD_NAME]
    assert stat.S_IMODE((tmp_path / records.RECORD_NAME).stat().st_mode) == 0o600
    assert "t0ken" not in repr(RECORD)


@pytest.mark.parametrize("text", ["", "{", "[]", '{"name": "../x", "phase": "running", "snapshot": "s"}'])
def test_a_broken_record_is_none(tmp_path: Path, text: str) -> None:
    """A torn or foreign file is treated like a missing one: its machine is reaped."""
    assert records.read(tmp_path) is None
    (tmp_path / records.RECORD_NAME).write_text(text)
    assert records.read(tmp_path) is None


def test_only_a_running_replica_is_adoptable() -> None:
    """One that waited or was half made is not; the contract's words are those of the record."""
    assert RECORD.adoptable
    assert RECORD.process == ProcessIdentity(12, 34)
    for update in ({"phase": Phase.RESUMING}, {"replica": None}, {"pid": None}):
        assert not RECORD.model_copy(update=update).adoptable
    said = RECORD.as_replica()
    assert (said.replica_id, said.generation, said.image_digest) == ("r7", 7, "ab" * 32)
    assert said.guest == TcpAddress("127.0.0.1", 40000)
    assert RECORD.screen() == Screen(800, 600)
    with pytest.raises(ValueError, match="no replica"):
        RECORD.model_copy(update={"replica": None}).as_replica()
