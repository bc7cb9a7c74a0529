"""What is written down about a virtual machine, and what a later host agent makes of it."""

from __future__ import annotations

import json
import os
import stat
from pathlib import Path

import pytest

from osgym_host.addresses import EnclosedAddress, TcpAddress, UnixAddress
from osgym_host.runtimes.base import Egress
from osgym_host.runtimes.processes import ProcessIdentity
from osgym_qemu.machine.namespace import NetworkNamespace
from osgym_qemu.machine.records import (
    GuestReach,
    ReplicaFacts,
    VmPhase,
    VmRecord,
    VmRecords,
)

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
    name="v7", phase=VmPhase.RUNNING, snapshot="ab" * 32, pid=12, start_ticks=34, port=40000, replica=FACTS
)


@pytest.fixture
def book(tmp_path: Path) -> VmRecords:
    made = VmRecords(tmp_path / "records")
    made.open()
    return made


def test_a_record_survives_and_is_for_its_owner_only(book: VmRecords, tmp_path: Path) -> None:
    """It is read as it was written, replaced whole, and nobody else may read the token."""
    book.write(RECORD)
    book.write(RECORD.model_copy(update={"phase": VmPhase.PARKED}))
    book.write(RECORD)
    assert book.read_all() == [RECORD]
    assert os.listdir(tmp_path / "records") == ["v7.json"]
    assert stat.S_IMODE((tmp_path / "records").stat().st_mode) == 0o700
    assert stat.S_IMODE((tmp_path / "records" / "v7.json").stat().st_mode) == 0o600
    assert "t0ken" not in repr(RECORD)
    book.remove("v7")
    book.remove("v7")
    book.close()
    assert not (tmp_path / "records").exists()


@pytest.mark.parametrize(
    "text",
    ["", "{", "[]", '{"name": "../x", "phase": "running", "snapshot": "s"}', RECORD.model_dump_json()],
)
def test_a_broken_record_is_removed(book: VmRecords, tmp_path: Path, text: str) -> None:
    """A torn, foreign or misplaced file tells nothing that could be trusted."""
    (tmp_path / "records" / "v8.json").write_text(text)
    (tmp_path / "records" / ".new-x").write_text(text)
    assert book.read_all() == []
    assert os.listdir(tmp_path / "records") == []


def test_only_a_running_replica_is_adoptable() -> None:
    """One that waited or was half made is not; the contract's words are those of the record."""
    assert RECORD.adoptable
    assert RECORD.process == ProcessIdentity(12, 34)
    for update in ({"phase": VmPhase.RESUMING}, {"replica": None}, {"pid": None}):
        assert not RECORD.model_copy(update=update).adoptable
    said = RECORD.as_replica(TcpAddress("127.0.0.1", 40000))
    assert (said.replica_id, said.generation, said.image_digest) == ("r7", 7, "ab" * 32)
    assert said.guest == TcpAddress("127.0.0.1", 40000)
    with pytest.raises(ValueError, match="not a replica"):
        RECORD.model_copy(update={"replica": None}).as_replica(TcpAddress("127.0.0.1", 40000))


def test_a_record_says_how_its_guest_is_reached() -> None:
    """A path of a socket is not written down: it follows from the machine's name."""
    enclosed = EnclosedAddress("10.0.2.15", 5000, NetworkNamespace(-1))
    for address, expected in (
        (TcpAddress("127.0.0.1", 7), ("127.0.0.1", 7, GuestReach.PORT)),
        (enclosed, ("10.0.2.15", 5000, GuestReach.NAMESPACE)),
        (UnixAddress(Path("/x")), (RECORD.host, RECORD.port, GuestReach.SOCKET)),
    ):
        record = RECORD.reached_at(address)
        assert (record.host, record.port, record.reach) == expected
        assert VmRecord.model_validate_json(record.model_dump_json()) == record


def test_a_record_says_where_root_reaches_a_guest() -> None:
    """By a port, or from inside the namespace of its process; what another object made, only that knows."""
    assert RECORD.address() == TcpAddress("127.0.0.1", 40000)
    enclosed = RECORD.model_copy(update={"reach": GuestReach.NAMESPACE, "pid": os.getpid()})
    address = enclosed.address()
    assert isinstance(address, EnclosedAddress) and address == enclosed.as_replica().guest
    for update in ({"reach": GuestReach.SOCKET}, {"reach": GuestReach.NAMESPACE, "host": "10.0.2.15"}):
        with pytest.raises(ValueError, match="who runs it"):
            RECORD.model_copy(update=update).address()


def test_a_record_of_an_older_version_names_a_port() -> None:
    """Machines that run while the host agent is renewed are reached as they were."""
    old = json.loads(RECORD.model_dump_json())
    del old["reach"]
    assert VmRecord.model_validate(old).reach is GuestReach.PORT
