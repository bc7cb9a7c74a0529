"""What only the namespace runtime promises: hostile guests, killed supervisors, killed host agents."""

# ruff: noqa: ASYNC220, ASYNC240 -- reading /proc in the only task of a test blocks nobody

from __future__ import annotations

import asyncio
import errno
import json
import os
import platform
import shutil
import signal
import subprocess
import sys
import textwrap
import time
from collections.abc import AsyncIterator, Iterator
from dataclasses import replace
from pathlib import Path

import pytest
from tests.support.runtime_probe import build_python_image, run_inside

from osgym_host.images.idmap import ID_COUNT, current_idmap
from osgym_host.runtimes import cgroups
from osgym_host.runtimes.base import ExitReason, ImageLike, ReplicaCreateFailed, ReplicaSpec
from osgym_host.runtimes.local.instance import record_process
from osgym_host.runtimes.local.runtime import LocalRuntime

DEADLINE_S = 30.0


@pytest.fixture(scope="module")
def image(tmp_path_factory: pytest.TempPathFactory) -> ImageLike:
    return build_python_image(tmp_path_factory.mktemp("image") / "rootfs")


@pytest.fixture
async def runtime(tmp_path: Path) -> AsyncIterator[LocalRuntime]:
    runtime = LocalRuntime(tmp_path, "local")
    await runtime.start()
    yield runtime
    await runtime.stop()
    assert not list((tmp_path / "run/local/replicas").iterdir())


@pytest.fixture
def spec(image: ImageLike) -> ReplicaSpec:
    return ReplicaSpec("r1", 1, image)


def gone(pid: int, timeout_s: float = DEADLINE_S) -> bool:
    """Wait until a process is gone (or only waits to be buried by a parent that is not us)."""
    deadline = time.monotonic() + timeout_s
    while time.monotonic() < deadline:
        try:
            if Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] in "ZX":
                return True
        except OSError:
            return True
        time.sleep(0.02)
    return False


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


# Killed supervisors --------------------------------------------------------------------------


async def test_replicas_die_with_their_supervisor_and_are_replaced(
    runtime: LocalRuntime, spec: ReplicaSpec, tmp_path: Path
) -> None:
    """kill -9 of the zygote: each death is typed, and the next create starts a new zygote."""
    replicas = [await runtime.create(replace(spec, replica_id=f"r{n}")) for n in range(3)]
    zygote = json.loads((tmp_path / "run/local/zygote.json").read_text())["pid"]
    os.kill(zygote, signal.SIGKILL)
    for replica in replicas:
        info = await asyncio.wait_for(replica.wait_dead(), DEADLINE_S)
        assert info.reason is ExitReason.RUNTIME_LOST
        assert gone(replica.pid)
    fresh = await runtime.create(replace(spec, replica_id="fresh"))
    assert await run_inside(fresh, "result = 2") == 2
    for replica in replicas:
        await runtime.destroy(replica)


AGENT = """
import asyncio, sys
from pathlib import Path
sys.path.insert(0, {tree!r})
from tests.support.runtime_probe import run_inside
from osgym_host.runtimes.base import ReplicaSpec
from osgym_host.runtimes.local.probe_image import ProbeImage, ProbeManifest
from osgym_host.runtimes.local.runtime import LocalRuntime

async def main():
    data, rootfs, uid, gid = sys.argv[1:]
    image = ProbeImage("probe", Path(rootfs), ProbeManifest(int(uid), int(gid)))
    runtime = LocalRuntime(Path(data), "local")
    await runtime.start()
    replicas = [await runtime.create(ReplicaSpec(f"old{{n}}", 1, image)) for n in range(2)]
    for replica in replicas:
        await run_inside(replica, {before_death!r})
    print(*[replica.pid for replica in replicas], flush=True)
    await asyncio.sleep(1000)

asyncio.run(main())
"""


def killed_agent(tmp_path: Path, image: ImageLike, *, zygote_too: bool, before_death: str = "") -> list[int]:
    """Run a host agent with two replicas, kill -9 it, return the PIDs of its processes."""
    program = AGENT.format(tree=str(Path(__file__).parents[2]), before_death=before_death)
    argv = [sys.executable, "-c", program, str(tmp_path), str(image.rootfs)]
    argv += [str(image.manifest.uid_base), str(image.manifest.gid_base)]
    with subprocess.Popen(argv, stdout=subprocess.PIPE, text=True) as agent:
        assert agent.stdout is not None
        pids = [int(pid) for pid in agent.stdout.readline().split()]
        pids.append(json.loads((tmp_path / "run/local/zygote.json").read_text())["pid"])
        assert len(pids) == 3
        if zygote_too:
            os.kill(pids[2], signal.SIGKILL)
        agent.kill()
    return pids


@pytest.mark.parametrize("zygote_too", [False, True])
async def test_a_killed_host_agent_is_cleared_away(
    tmp_path: Path, image: ImageLike, spec: ReplicaSpec, zygote_too: bool
) -> None:
    """After kill -9, its processes end by themselves and the next start removes the rest."""
    pids = await asyncio.to_thread(killed_agent, tmp_path, image, zygote_too=zygote_too)
    runtime = LocalRuntime(tmp_path, "local")
    report = await runtime.start()
    try:
        assert all(gone(pid) for pid in pids)
        assert report.reaped_replicas == 2
        assert list((tmp_path / "run/local/replicas").iterdir()) == []
        name = cgroups.instance_group_name(tmp_path / "run/local")
        assert not list(Path("/sys/fs/cgroup").glob(f"**/{name}/old*"))
        assert await run_inside(await runtime.create(spec), "result = 3") == 3
    finally:
        await runtime.stop()


CLEAR_DEATH_SIGNAL = """
import ctypes, os
os.setresuid(1000, 1000, 0)  # for all threads, the first one included; the kernel then forgets the signal
os.setresuid(0, 0, 0)
for _ in range(3):
    if os.fork() == 0:
        os.setsid()
        if os.fork() == 0:
            os.setresuid(1000, 1000, 1000)
            while True:
                ctypes.CDLL(None).pause()
        os._exit(0)
"""


async def test_a_guest_that_clears_its_death_signal_ends_with_a_killed_agent(
    tmp_path: Path, image: ImageLike
) -> None:
    """Agent and zygote killed at once: the kernel ends all processes of the replicas by itself."""
    pids = await asyncio.to_thread(
        killed_agent, tmp_path, image, zygote_too=True, before_death=CLEAR_DEATH_SIGNAL
    )
    assert all(gone(pid, timeout_s=5.0) for pid in pids)
    name = cgroups.instance_group_name(tmp_path / "run/local")
    groups = list(Path("/sys/fs/cgroup").glob(f"**/{name}/old*/cgroup.procs"))
    assert [group for group in groups if group.read_text().strip()] == []
    runtime = LocalRuntime(tmp_path, "local")
    assert (await runtime.start()).reaped_processes == 0
    await runtime.stop()


async def test_control_groups_of_a_former_place_are_removed(tmp_path: Path) -> None:
    """A host agent restarted from another session finds the groups of the first; foreign names stay."""
    parents = [h.own for h in cgroups.parse_hierarchies(*proc_cgroups()) if h.version == 1]
    if os.geteuid() != 0 or not parents:
        pytest.skip("missing: root and control groups of version 1")
    run_dir = tmp_path / "run/local"
    run_dir.mkdir(parents=True)
    elsewhere = parents[0] / f"osgym-test-elsewhere-{os.getpid()}"
    ours, foreign = elsewhere / cgroups.instance_group_name(run_dir), elsewhere / "foreign"
    for folder in (elsewhere, ours, ours / "r1", foreign):
        folder.mkdir()
    try:
        (run_dir / "cgroups.json").write_text(json.dumps([str(ours), str(foreign), 7, "/etc"]))
        with subprocess.Popen(["sleep", "1000"]) as leftover:
            (ours / "r1/cgroup.procs").write_text(str(leftover.pid))
            runtime = LocalRuntime(tmp_path, "local")
            report = await runtime.start()
            assert report.reaped_processes == 1
            assert leftover.wait(DEADLINE_S) == -signal.SIGKILL
        await runtime.stop()
        assert not ours.exists()
        assert foreign.exists()
    finally:
        for folder in (ours / "r1", ours, foreign, elsewhere):
            if folder.exists():
                folder.rmdir()


def proc_cgroups() -> tuple[str, str]:
    return Path("/proc/self/mountinfo").read_text(), Path("/proc/self/cgroup").read_text()


async def test_a_reused_pid_is_spared(tmp_path: Path, image: ImageLike) -> None:
    """A leftover record that names a PID with another start time kills nobody."""
    folder = tmp_path / "run/local/replicas/old"
    folder.mkdir(parents=True)
    with subprocess.Popen(["sleep", "1000"]) as innocent:
        try:
            record_process(folder / "replica.json", innocent.pid)
            record = json.loads((folder / "replica.json").read_text())
            record["start_ticks"] -= 1
            (folder / "replica.json").write_text(json.dumps(record))
            runtime = LocalRuntime(tmp_path, "local")
            report = await runtime.start()
            await runtime.stop()
            assert (report.reaped_replicas, report.reaped_processes) == (1, 0)
            assert innocent.poll() is None
        finally:
            innocent.kill()


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


# An ordinary user ----------------------------------------------------------------------------

USER = "osgym-test-user"
USER_RANGE = "231072-296607"

AS_USER = """
import asyncio, json, sys
from pathlib import Path
from tests.support.runtime_probe import build_python_image, run_inside
from osgym_host.runtimes.base import ReplicaSpec
from osgym_host.runtimes.local.runtime import LocalRuntime

async def main():
    data = Path(sys.argv[1])
    image = build_python_image(data / "image")
    runtime = LocalRuntime(data, "user")
    await runtime.start()
    replica = await runtime.create(ReplicaSpec("r1", 1, image))
    assert "As root" in runtime.ids_shared_because
    inside = await run_inside(replica, '''
import os
os.makedirs("/own/a/b/c")
open("/own/a/b/c/file", "wb").write(os.urandom(3 << 20))
os.chown("/own/a/b/c/file", 1000, 1000)
import builtins
builtins.held = open("/own/held", "wb", buffering=0)
builtins.held.write(os.urandom(4 << 20))
os.unlink("/own/held")
os.chmod("/own/a", 0)
import ctypes
libc = ctypes.CDLL(None)
inotify = 0
while inotify < 200 and libc.inotify_init() >= 0:
    inotify += 1
result = {"uid": os.getuid(), "pids": [p for p in os.listdir("/proc") if p.isdigit()], "inotify": inotify}
''')
    usage = await runtime.usage(replica)
    host_uid = Path(f"/proc/{replica.pid}/status").read_text().split("Uid:")[1].split()[0]
    await runtime.stop()
    left = [str(p) for p in (data / "run/user/replicas").iterdir()]
    print(json.dumps({"inside": inside, "host_uid": int(host_uid), "left": left,
                      "overlay_mib": usage.overlay_mib, "pss_mib": usage.pss_mib,
                      "reason": replica.exit_info.reason}))

asyncio.run(main())
"""


def subordinate_uid(user: str) -> int | None:
    """First subordinate id of a user."""
    for line in Path("/etc/subuid").read_text().splitlines():
        if line.split(":")[0] == user:
            return int(line.split(":")[1])
    return None


@pytest.fixture
def user() -> Iterator[str]:
    """A fresh user with subordinate ids, removed afterwards."""
    if os.geteuid() != 0:
        pytest.skip("missing: root, who can make a user")
    for tool in ("newuidmap", "useradd", "runuser"):
        if subprocess.run(["which", tool], capture_output=True, check=False).returncode != 0:
            pytest.skip(f"missing: {tool}")
    subprocess.run(["useradd", "--create-home", USER], check=True, capture_output=True)
    try:
        if subordinate_uid(USER) is None:  # not every system hands out a range by itself
            argv = ["usermod", "--add-subuids", USER_RANGE, "--add-subgids", USER_RANGE, USER]
            subprocess.run(argv, check=True, capture_output=True)
        yield USER
    finally:
        subprocess.run(["userdel", "--remove", USER], check=False, capture_output=True)


def user_python(user: str, home: Path) -> Path:
    """Make an interpreter that `user` may run and that imports this tree's host package."""
    probe = "import sys; sys.exit(sys.version_info < (3, 11))"
    for candidate in (sys.executable, "/usr/bin/python3", "/usr/local/bin/python3"):
        argv = ["runuser", "-u", user, "--", candidate, "-c", probe]
        if subprocess.run(argv, capture_output=True, cwd="/", check=False).returncode == 0:
            break
    else:
        pytest.skip("missing: an interpreter of 3.11 or later that other users may run")
    argv = [candidate, "-m", "venv", "--without-pip", str(home / "venv")]
    subprocess.run(argv, check=True, capture_output=True, cwd="/")
    root = Path(__file__).parents[2]
    for package in ("host_agent/osgym_host", "protocol/osgym_protocol"):
        shutil.copytree(root / package, home / "src" / Path(package).name)
    support = home / "src/tests/support"
    support.mkdir(parents=True)
    shutil.copy(root / "tests/support/runtime_probe.py", support)
    site = next((home / "venv/lib").glob("python3*")) / "site-packages"
    (site / "osgym.pth").write_text(f"{home}/src\n")
    return home / "venv/bin/python"


def test_an_ordinary_user_can_do_it_all(user: str) -> None:
    """Create, write as several ids, measure and remove, without any right of root."""
    home = Path("/home") / user
    python = str(user_python(user, home))
    program = textwrap.dedent(AS_USER)
    argv = ["runuser", "-u", user, "--", python, "-W", "error", "-c", program, f"{home}/data"]
    environment = {"PATH": os.environ["PATH"]}
    done = subprocess.run(
        argv, capture_output=True, text=True, timeout=120, check=False, cwd="/", env=environment
    )
    assert done.returncode == 0, done.stderr
    answer = json.loads(done.stdout)
    most = Path("/proc/sys/user/max_inotify_instances").read_text()
    bound = min(128, max(16, int(most) // 8))  # a share of what all of the user's replicas may have
    assert answer["inside"] == {"uid": 0, "pids": ["1"], "inotify": bound}
    assert answer["host_uid"] == subordinate_uid(user)
    assert answer["left"] == []
    assert answer["overlay_mib"] > 6.9
    assert answer["pss_mib"] > 1
    assert answer["reason"] == "destroyed"
