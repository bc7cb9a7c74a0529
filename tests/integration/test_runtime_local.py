"""What only the namespace runtime promises: hostile guests, limits, nothing on the host."""

# ruff: noqa: ASYNC240 -- reading /proc in the only task of a test blocks nobody

from __future__ import annotations

import errno
import os
import platform
from collections.abc import AsyncIterator
from dataclasses import replace
from pathlib import Path

import pytest
from tests.support.runtime_kits import gone, running_local
from tests.support.runtime_probe import build_python_image, run_inside

from osgym_host.images.idmap import ID_COUNT, current_idmap
from osgym_host.runtimes.base import ImageLike, ReplicaCreateFailed, ReplicaSpec
from osgym_host.runtimes.local.runtime import LocalRuntime


@pytest.fixture(scope="module")
def image(tmp_path_factory: pytest.TempPathFactory) -> ImageLike:
    return build_python_image(tmp_path_factory.mktemp("image") / "rootfs")


@pytest.fixture
async def runtime(tmp_path: Path) -> AsyncIterator[LocalRuntime]:
    async with running_local(tmp_path) as running:
        yield running


@pytest.fixture
def spec(image: ImageLike) -> ReplicaSpec:
    return ReplicaSpec("r1", 1, image)


async def test_a_replica_that_could_not_be_noted_is_ended(
    runtime: LocalRuntime, spec: ReplicaSpec, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It runs already when the disk turns out to be full: it ends, and the next one has its place."""
    begun: list[int] = []

    def full(path: Path, pid: int) -> None:
        begun.append(pid)
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), str(path))

    with monkeypatch.context() as patched:
        patched.setattr("osgym_host.runtimes.local.runtime.record_process", full)
        with pytest.raises(ReplicaCreateFailed, match="No space left"):
            await runtime.create(spec)
    assert gone(begun[0])
    assert not list((tmp_path / "run/local/replicas").iterdir())
    await runtime.destroy(await runtime.create(spec))


# A hostile guest -----------------------------------------------------------------------------


async def test_a_hostile_tree_is_removed_without_leaving_it(
    runtime: LocalRuntime, spec: ReplicaSpec, tmp_path: Path
) -> None:
    """Deep nests, odd names, closed folders, links to the host and devices go; link targets stay."""
    victim = tmp_path / "victim"
    victim.mkdir()
    (victim / "precious").write_text("x")
    replica = await runtime.create(spec)
    await run_inside(
        replica,
        """
        import os
        os.chdir("/scratch")
        os.symlink(victim, "link")
        os.symlink("/", "root")
        os.mkdir(b"\\xff\\n .osgym-removing-1")
        open(".osgym-removing-1", "w").close()
        os.mkdir(".osgym-removing-2")
        open(".osgym-removing-2/file", "w").close()
        os.mkfifo("fifo")
        os.mkdir("closed")
        open("closed/file", "w").close()
        os.chmod("closed", 0)
        for n in range(3000):
            os.mkdir("deep" * 10)
            os.chdir("deep" * 10)
        open("bottom", "w").close()
        """,
        victim=str(victim),
    )
    await runtime.destroy(replica)
    assert not replica.guest.path.parent.exists()
    assert (victim / "precious").read_text() == "x"


async def test_root_inside_is_nobody_outside(
    runtime: LocalRuntime, spec: ReplicaSpec, tmp_path: Path
) -> None:
    """Files and processes of the replica's root belong to an id of its own range."""
    replica = await runtime.create(spec)
    await run_inside(replica, "open('/scratch/file', 'w').write('x')")
    owner = (tmp_path / "run/local/replicas/r1/upper/scratch/file").stat().st_uid
    base = current_idmap().uid_base
    if os.geteuid() == 0:  # a range of its own, away from the image's and those of virtual machines
        assert owner >= base + 2 * ID_COUNT
        base = owner
    assert owner == base
    assert Path(f"/proc/{replica.pid}").stat().st_uid in (base, 0)
    status = Path(f"/proc/{replica.pid}/status").read_text()
    assert f"Uid:\t{base}" in status


async def test_dangerous_system_calls_are_refused(runtime: LocalRuntime, spec: ReplicaSpec) -> None:
    """Keyrings, BPF, io_uring, vsock and netfilter are closed; sandboxes inside still work."""
    if platform.machine() != "x86_64":
        pytest.skip("missing: an x86_64 machine, whose numbers these are")
    replica = await runtime.create(spec)
    seen = await run_inside(
        replica,
        """
        import ctypes, errno, os, socket
        libc = ctypes.CDLL(None, use_errno=True)
        def call(*args):
            value = libc.syscall(*args)
            return 0 if value >= 0 else errno.errorcode[ctypes.get_errno()]
        def open_socket(*args):
            try:
                socket.socket(*args).close()
                return 0
            except OSError as exc:
                return errno.errorcode[exc.errno]
        def new_user_namespace():
            pid = os.fork()
            if pid == 0:
                os._exit(0 if libc.unshare(0x10000000 | 0x20000000 | 0x40000000) == 0 else 1)
            return os.waitpid(pid, 0)[1]
        result = {
            "keyctl": call(250, 0, 0, 0, 0, 0),
            "bpf": call(321, 0, 0, 0),
            "io_uring": call(425, 1, 0),
            "userfaultfd": call(323, 0),
            "perf": call(298, 0, 0, -1, -1, 0),
            "clock_settime": call(227, 0, 0),
            "fsopen": call(430, b"tmpfs", 0),
            "vsock": open_socket(40, socket.SOCK_STREAM),
            "alg": open_socket(38, socket.SOCK_SEQPACKET),
            "netfilter": open_socket(socket.AF_NETLINK, socket.SOCK_RAW, 12),
            "route": open_socket(socket.AF_NETLINK, socket.SOCK_RAW, 0),
            "unix": open_socket(socket.AF_UNIX, socket.SOCK_STREAM),
            "sandbox": new_user_namespace(),
        }
        """,
    )
    assert seen == {
        "keyctl": "EPERM",
        "bpf": "EPERM",
        "io_uring": "ENOSYS",
        "userfaultfd": "EPERM",
        "perf": "EPERM",
        "clock_settime": "EPERM",
        "fsopen": "ENOSYS",
        "vsock": "EAFNOSUPPORT",
        "alg": "EAFNOSUPPORT",
        "netfilter": "EPROTONOSUPPORT",
        "route": 0,
        "unix": 0,
        "sandbox": 0,
    }


async def test_settings_of_the_host_cannot_be_changed(runtime: LocalRuntime, spec: ReplicaSpec) -> None:
    """Root inside can write no sysctl of the host, no sysfs file, and read no host memory."""
    replica = await runtime.create(spec)
    seen = await run_inside(
        replica,
        """
        def tried(path, mode="r+b"):
            try:
                with open(path, mode) as f:
                    f.read(1) if mode == "rb" else f.write(b"1")
                return "open"
            except OSError as exc:
                return type(exc).__name__
        result = {path: tried(path) for path in (
            "/proc/sys/kernel/core_pattern", "/proc/sys/vm/drop_caches", "/proc/sysrq-trigger",
            "/proc/sys/kernel/hostname", "/sys/power/state", "/proc/1/oom_score_adj")}
        result["kcore"] = tried("/proc/kcore", "rb")
        """,
    )
    allowed = {"/proc/sys/kernel/hostname", "/proc/1/oom_score_adj"}  # its own
    assert [path for path, what in seen.items() if what == "open" and path not in allowed] == []


async def test_the_replica_dies_first_when_the_host_is_out_of_memory(
    runtime: LocalRuntime, spec: ReplicaSpec
) -> None:
    """The kernel's choice falls on replicas, not on the host agent."""
    replica = await runtime.create(spec)
    assert Path(f"/proc/{replica.pid}/oom_score_adj").read_text().strip() == "500"


async def test_files_in_memory_are_bounded_without_a_cap(runtime: LocalRuntime, spec: ReplicaSpec) -> None:
    """Each tmpfs has a size, so a host without control groups is not filled by a file."""
    replica = await runtime.create(replace(spec, ram_mib=600))
    sizes = await run_inside(
        replica,
        """
        import os
        result = {}
        for path in ("/tmp", "/run", "/dev/shm", "/dev"):
            s = os.statvfs(path)
            result[path] = s.f_blocks * s.f_frsize >> 20
        """,
    )
    assert sizes == {"/tmp": 300, "/run": 128, "/dev/shm": 300, "/dev": 1}


async def test_nothing_of_a_replica_is_mounted_on_the_host(
    runtime: LocalRuntime, spec: ReplicaSpec, tmp_path: Path
) -> None:
    """Its mounts are in its own namespace, so there is never anything to unmount."""
    before = Path("/proc/self/mounts").read_text()
    await runtime.create(spec)
    assert Path("/proc/self/mounts").read_text() == before
    assert list((tmp_path / "run/local/replicas/r1/merged").iterdir()) == []


async def test_a_long_path_is_no_obstacle(tmp_path: Path, image: ImageLike) -> None:
    """Data directories deeper than a socket address can name still work."""
    runtime = LocalRuntime(tmp_path / ("long" * 30), "local")
    await runtime.start()
    try:
        replica = await runtime.create(ReplicaSpec("r" * 64, 1, image))
        assert await run_inside(replica, "result = 4") == 4
    finally:
        await runtime.stop()
