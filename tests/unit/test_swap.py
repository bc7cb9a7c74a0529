"""Swap space as the kernel describes it."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from osgym_host.doctor import machine
from osgym_host.doctor.result import DoctorContext, Status
from osgym_host.runtimes.replica_cgroup import CgroupGroup
from osgym_host.runtimes.swap import EXPECTED_RATIO, Swap, read_swap

HEAD = "Filename\t\t\t\tType\t\tSize\t\tUsed\t\tPriority\n"
MIB = 1 << 20


def host(tmp_path: Path, swaps: str, **zram: tuple[int, int]) -> Swap:
    """Read a made-up host; `zram` has original and occupied MiB by device."""
    (tmp_path / "proc").mkdir()
    (tmp_path / "proc" / "swaps").write_text(HEAD + swaps)
    for name, (stored, occupied) in zram.items():
        folder = tmp_path / "sys" / "block" / name
        folder.mkdir(parents=True)
        (folder / "mm_stat").write_text(f"{stored * MIB} 1 {occupied * MIB} 0 0 0 0 0 0\n")
    return read_swap(tmp_path / "proc", tmp_path / "sys")


def test_a_host_without_swap(tmp_path: Path) -> None:
    """Nothing is free and nothing compressed."""
    assert host(tmp_path, "") == Swap()


def test_empty_compressed_swap_has_the_expected_ratio(tmp_path: Path) -> None:
    """Until pages are there, the measured ratio says nothing."""
    found = host(tmp_path, "/dev/zram0  partition\t4194304\t\t1024\t\t100\n", zram0=(1, 1))
    assert (found.total_mib, found.free_mib, found.compressed) == (4096, 4095, True)
    assert found.ratio == EXPECTED_RATIO


def test_the_ratio_is_measured(tmp_path: Path) -> None:
    """What a MiB occupies is the kernel's own count."""
    found = host(tmp_path, "/dev/zram0  partition\t4194304\t\t1048576\t\t100\n", zram0=(1024, 205))
    assert found.ratio == pytest.approx(0.2, abs=0.001)


@pytest.mark.parametrize(("priority", "compressed"), [(-2, True), (200, False)])
def test_the_swap_of_highest_priority_decides(tmp_path: Path, priority: int, compressed: bool) -> None:
    """A file that is used after compressed memory does not make it a slow host."""
    lines = f"/swap file\t1048576\t0\t{priority}\n/dev/zram0 partition\t1048576\t0\t100\n"
    found = host(tmp_path, lines, zram0=(0, 0))
    assert (found.compressed, found.total_mib) == (compressed, 2048)


def test_pages_on_a_disk_occupy_no_memory(tmp_path: Path) -> None:
    """They lower the ratio of what is in both."""
    lines = "/swap file\t1048576\t1048576\t-2\n/dev/zram0 partition\t1048576\t1048576\t100\n"
    assert host(tmp_path, lines, zram0=(1024, 256)).ratio == pytest.approx(0.125)


def test_version_2_may_swap_only_while_it_is_reclaimed(tmp_path: Path) -> None:
    """All that is charged is asked for; afterwards the caps on swap are back, those of child groups too."""
    session = tmp_path / "session"
    session.mkdir()
    for folder in (tmp_path, session):
        (folder / "memory.swap.max").write_text("0")
    (tmp_path / "memory.current").write_text("41943040\n")
    (tmp_path / "memory.reclaim").write_text("")
    group = CgroupGroup({"": tmp_path, "memory": tmp_path}, {"": 2, "memory": 2})
    assert group.can_reclaim
    with group.swap_allowed():
        assert [(folder / "memory.swap.max").read_text() for folder in (tmp_path, session)] == ["max", "max"]
        group.reclaim()
    assert int((tmp_path / "memory.reclaim").read_text()) == 40 * MIB
    assert [(folder / "memory.swap.max").read_text() for folder in (tmp_path, session)] == ["0", "0"]


@pytest.mark.parametrize(
    ("swap", "status"), [(Swap(), Status.WARN), (Swap(8192, 8192, True, 0.25), Status.OK)]
)
async def test_doctor_says_how_to_get_compressed_swap(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, swap: Swap, status: Status
) -> None:
    """With four times the memory of this host, where there is none."""
    monkeypatch.setattr(machine, "read_swap", lambda: swap)
    (finding,) = await machine.check_swap(DoctorContext(tmp_path, replicas=8))
    assert finding.status is status
    total_mib = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") // MIB
    assert (f"echo {total_mib * 4}M" in finding.remedy) == (status is Status.WARN)
