"""The contract of runtimes: a replica changes and sees nothing but itself."""

from __future__ import annotations

import os
import socket
from dataclasses import replace
from pathlib import Path

from tests.support.runtime_kits import Kit

from osgym_host.runtimes.base import ReplicaSpec, Runtime

OWN_COMMAND = Path("/proc/self/cmdline").read_text()


async def test_the_golden_image_is_untouched(runtime: Runtime, kit: Kit, spec: ReplicaSpec) -> None:
    """Writing, replacing, deleting and changing owners inside changes nothing in the image."""
    before = kit.fingerprint()
    replica = await runtime.create(spec)
    await kit.run_inside(
        replica,
        """
        import os, shutil
        open("/scratch/new", "w").write("x")
        shutil.rmtree("/scratch", ignore_errors=True)
        for action in (
            lambda: open("/etc/passwd", "a").write("evil"),
            lambda: os.chmod("/usr/lib/osgym/session", 0),
            lambda: os.chown("/etc", 1000, 1000),
            lambda: os.unlink("/etc/passwd"),
            lambda: shutil.rmtree("/usr/lib/osgym"),
            lambda: open("/marker", "w").write("x"),
        ):
            try:
                action()
            except OSError:
                pass
        """,
    )
    await runtime.destroy(replica)
    assert kit.fingerprint() == before
    fresh = await runtime.create(spec)
    assert await kit.run_inside(
        fresh, "import os; result = [os.path.exists(p) for p in ('/marker', '/scratch/new', '/etc/passwd')]"
    ) == [False, False, True]


async def test_replicas_see_nothing_of_each_other(runtime: Runtime, kit: Kit, spec: ReplicaSpec) -> None:
    """Files, processes, abstract sockets, TCP ports and System V memory stay in their replica."""
    one = await runtime.create(spec)
    two = await runtime.create(replace(spec, replica_id="r2"))
    await kit.run_inside(
        one,
        """
        import ctypes, os, socket, time
        for folder in ("/scratch", "/tmp", "/dev/shm", "/run"):
            open(folder + "/secret-of-one", "w").write("secret")
        if os.fork() == 0:
            abstract = socket.socket(socket.AF_UNIX)
            abstract.bind(chr(0) + "/tmp/.X11-unix/X7")
            abstract.listen()
            tcp = socket.create_server(("127.0.0.1", 5555))
            open("/scratch/listening", "w").close()
            time.sleep(1000)
        libc = ctypes.CDLL(None)
        assert libc.shmget(0x05671234, 4096, 0o1666) >= 0
        while not os.path.exists("/scratch/listening"):
            time.sleep(0.01)
        """,
    )
    seen = await kit.run_inside(
        two,
        """
        import ctypes, glob, os, socket
        def connects(family, address):
            with socket.socket(family) as sock:
                try:
                    sock.connect(address)
                    return True
                except OSError:
                    return False
        result = {
            "files": [f for d in ("/scratch", "/tmp", "/dev/shm", "/run") for f in glob.glob(d + "/secret*")],
            "abstract": connects(socket.AF_UNIX, chr(0) + "/tmp/.X11-unix/X7"),
            "tcp": connects(socket.AF_INET, ("127.0.0.1", 5555)),
            "shm": ctypes.CDLL(None).shmget(0x05671234, 4096, 0o666) >= 0,
            "processes": [p for p in os.listdir("/proc") if p.isdigit()],
        }
        """,
    )
    processes = seen.pop("processes")
    assert seen == {"files": [], "abstract": False, "tcp": False, "shm": False}
    assert kit.own_kernel or processes == ["1"]


async def test_a_replica_sees_nothing_of_the_host(
    runtime: Runtime, kit: Kit, spec: ReplicaSpec, tmp_path: Path
) -> None:
    """No host process, file, socket, network interface or descriptor is within reach of its root."""
    (tmp_path / "host-secret").write_text("secret")
    replica = await runtime.create(spec)
    with socket.create_server(("127.0.0.1", 0)) as service:
        seen = await kit.run_inside(
            replica,
            """
            import os, socket
            def read(path):
                try:
                    return open(path).read()
                except OSError:
                    return None
            def listed(path):
                try:
                    return os.listdir(path)
                except OSError:
                    return None
            def connects(address):
                try:
                    socket.create_connection(address, timeout=2).close()
                    return True
                except OSError:
                    return False
            result = {
                "file": os.path.exists(secret),
                "host process": read(f"/proc/{host_pid}/cmdline") == host_command,
                "host service": [a for a in ("127.0.0.1", "10.0.2.2") if connects((a, port))],
                "interfaces": [name for _, name in socket.if_nameindex()],
                "descriptors": sorted(int(fd) for fd in os.listdir("/proc/self/fd"))[:4],
                "root": listed("/proc/1/root") == os.listdir("/"),
                "old root": [l for l in open("/proc/mounts") if l.split()[0].startswith("/dev/v")],
            }
            """,
            secret=str(tmp_path / "host-secret"),
            host_pid=os.getpid(),
            host_command=OWN_COMMAND,
            port=service.getsockname()[1],
        )
    own_disk = seen.pop("old root")
    assert seen == {
        "file": False,
        "host process": False,
        "host service": [],
        "interfaces": ["lo", "eth0"] if kit.own_kernel else ["lo"],
        "descriptors": [0, 1, 2, 3],
        "root": not kit.own_kernel,  # in a machine nobody may look into the session's first process
    }
    assert kit.own_kernel or own_disk == []
