"""`osgym doctor` on this machine, and on machines that lack something."""

# ruff: noqa: ASYNC240 -- the only task of a test blocks nobody

from __future__ import annotations

import asyncio
import json
import os
import shutil
import subprocess
import sys
import time
from pathlib import Path

import pytest

from osgym_host.doctor import examination, machine
from osgym_host.doctor.result import DoctorContext, Finding, Status
from osgym_qemu import doctor as virtual


def run_doctor(*args: str, data_dir: Path) -> subprocess.CompletedProcess[str]:
    program = "from osgym_host.cli.main import main; main()"
    argv = [sys.executable, "-c", program, "doctor", "--data-dir", str(data_dir), *args]
    return subprocess.run(argv, capture_output=True, text=True, timeout=60, check=False)


def test_this_machine_runs_the_local_runtime(tmp_path: Path) -> None:
    """A replica is really made; the answer is JSON with a remedy wherever something is lacking."""
    done = run_doctor("--json", "--quick", data_dir=tmp_path / "data")
    assert done.returncode == 0, done.stderr
    answer = json.loads(done.stdout)
    assert answer["local_runtime"] is True
    rows = {row["name"]: row for row in answer["checks"]}
    assert {"subordinate ids", "user namespaces", "overlay", "local runtime"} <= set(rows)
    assert {"memory", "disk", "reflink", "docker", "kvm", "mmdebstrap", "compiler"} <= set(rows)
    assert rows["local runtime"]["facts"]["ms"] > 0
    isolation = rows["isolation"]
    assert isolation["facts"]["own_ids"] is (isolation["status"] == "ok")
    assert isolation["facts"]["own_devices"] is (os.geteuid() == 0)
    for row in rows.values():
        assert row["status"] in ("ok", "warn", "missing")
        assert row["found"].endswith(".")
    assert not (tmp_path / "data").exists()  # nothing is left of the probe


def test_the_table_is_for_people(tmp_path: Path) -> None:
    """Without --json every check is a row, and the last line says whether it works."""
    done = run_doctor("--quick", data_dir=tmp_path)
    assert done.returncode == 0, done.stderr
    assert "overlay" in done.stdout
    assert done.stdout.strip().splitlines()[-1] == "The local runtime works here."


def test_a_machine_that_cannot_run_it_is_exit_code_1(tmp_path: Path) -> None:
    """A data directory that cannot be written is named, with a remedy."""
    (tmp_path / "file").write_text("")
    done = run_doctor("--json", "--quick", data_dir=tmp_path / "file" / "data")
    assert done.returncode == 1
    answer = json.loads(done.stdout)
    assert answer["local_runtime"] is False
    row = next(row for row in answer["checks"] if row["name"] == "local runtime")
    assert row["status"] == "missing"
    assert "OSGYM_DATA_DIR" in row["remedy"]


def context(tmp_path: Path, replicas: int = 4) -> DoctorContext:
    return DoctorContext(data_dir=tmp_path, replicas=replicas, kernel=None, deep=True)


async def test_limits_are_held_against_the_number_of_replicas(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A million replicas overstep the kernel's limits, and each remedy is a command. Those of users count
    for all replicas together, or, where each is a user of its own, for one."""
    for users, inotify in ((False, Status.WARN), (True, None)):
        monkeypatch.setattr(machine, "replicas_are_users", lambda uid, kernel, users=users: users)
        results = await machine.check_limits(context(tmp_path, replicas=1_000_000))
        rows = {result.name: result for result in results}
        assert rows["kernel.threads-max"].status is Status.WARN
        found = rows.get("fs.inotify.max_user_instances")
        assert (found.status if found else None) is inotify
        if found:
            assert "sysctl -w fs.inotify.max_user_instances=" in found.remedy


@pytest.mark.parametrize(
    ("uid", "kernel", "expected"),
    [
        (0, "6.1.0-13-amd64", True),
        (0, "5.19", True),
        (0, "5.15.0-91-generic", False),
        (0, "custom", False),
        (1000, "6.8.0", False),
    ],
)
def test_who_shares_a_users_limits(uid: int, kernel: str, expected: bool) -> None:
    """Replicas of ordinary users do, and all on kernels whose overlays cannot have mapped layers."""
    assert machine.replicas_are_users(uid, kernel) is expected


async def test_a_broken_check_hides_no_other(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A check that raises or hangs becomes a row; a needed one then counts as missing."""

    async def raises(_context: DoctorContext) -> list[Finding]:
        raise OSError("broken")

    async def hangs(_context: DoctorContext) -> list[Finding]:
        await asyncio.sleep(1000)
        return []

    monkeypatch.setattr(examination, "_DEADLINE_S", 0.2)
    checks = (("local runtime", raises), ("docker", hangs), ("disk", machine.check_disk))
    monkeypatch.setattr(examination, "CHECKS", checks)
    results = await examination.examine(context(tmp_path))
    assert [(result.name, result.status is Status.OK) for result in results] == [
        ("local runtime", False),
        ("docker", False),
        ("disk", True),
    ]
    assert not examination.can_run(results)


def program(path: Path, text: str) -> str:
    path.write_text(f"#!/bin/sh\n{text}\n")
    path.chmod(0o755)
    return str(path)


async def test_a_boot_is_judged_by_its_last_line(tmp_path: Path) -> None:
    """The known line is success; silence costs the deadline and no more; nothing is left running."""
    kernel = tmp_path / "kernel"
    good = program(tmp_path / "good", "echo Linux version; echo '... Unable to mount root fs on'; sleep 1000")
    assert (await virtual.boot_kernel(good, kernel, "kvm", 10)).reached
    hangs = program(tmp_path / "hangs", f"echo $$ > {tmp_path}/pid; echo SeaBIOS; exec sleep 1000")
    began = time.monotonic()
    boot = await virtual.boot_kernel(hangs, kernel, "kvm", 0.5)
    assert time.monotonic() - began < 5
    assert (boot.reached, boot.last_line) == (False, "SeaBIOS")
    assert not Path(f"/proc/{(tmp_path / 'pid').read_text().strip()}").exists()
    flood = program(tmp_path / "flood", "yes")
    assert not (await virtual.boot_kernel(flood, kernel, "kvm", 10)).reached


async def test_a_kernel_boots_without_kvm(tmp_path: Path) -> None:
    """With QEMU and a kernel at hand, TCG brings it up (slow, so only where both are there)."""
    named = os.environ.get("OSGYM_TEST_KERNEL")
    kernel = Path(named) if named else virtual.find_kernel()
    qemu = shutil.which("qemu-system-x86_64")
    if kernel is None or qemu is None:
        pytest.skip("missing: qemu-system-x86_64, or a kernel in /boot")
    boot = await virtual.boot_kernel(qemu, kernel, "tcg", 60)
    assert boot.reached, boot.last_line


async def test_docker_without_a_daemon_is_a_warning(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A client that cannot reach a daemon does not stop anything."""
    program(tmp_path / "docker", "echo 'Cannot connect to the Docker daemon' >&2; exit 1")
    monkeypatch.setenv("PATH", f"{tmp_path}:{os.environ['PATH']}")
    [result] = await virtual.check_docker(context(tmp_path))
    assert result.status is Status.WARN
    assert "docker.io" in result.remedy
    program(tmp_path / "docker", "echo 20.10")
    [result] = await virtual.check_docker(context(tmp_path))
    assert (result.status, result.facts["version"]) == (Status.OK, "20.10")
