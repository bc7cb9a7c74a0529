"""A stand-in for QEMU that launchers of virtual machines start: it says who and where it is."""

from __future__ import annotations

import ast
import asyncio
import os
import socket
from pathlib import Path
from typing import Any

from osgym_host.runtimes.processes import ProcessIdentity
from osgym_qemu.machine.launcher import Launcher, LaunchRequest
from tests.support.runtime_kits import DEADLINE_S

MARK = f"osgym-test-{os.getpid()}"

# Stands for QEMU: says who and where it is (the runner image's Python has no json), waits to be told to end.
PROBE = """
import os, socket
status = dict(line.split(":\\t", 1) for line in open("/proc/self/status").read().splitlines())
def can_write(path):
    try:
        open(os.path.join(path, "written"), "w").close()
        return True
    except OSError:
        return False
def is_open(number):
    try:
        os.fstat(number)
        return True
    except OSError:
        return False
print(repr({
    "uid": os.getuid(), "groups": os.getgroups(), "pid": os.getpid(),
    "caps": status["CapEff"], "bounding": status["CapBnd"], "no_new_privs": status["NoNewPrivs"],
    "seccomp": status["Seccomp"],
    "interfaces": sorted(line.split(":")[0].strip() for line in open("/proc/net/dev").readlines()[2:]),
    "writable": [path for path in ("/", "/etc", "/root", "/usr", "/dev", FOLDER, OTHER) if can_write(path)],
    "fds": [number for number in range(200) if is_open(number)],
    "shells": [path for path in ("/bin/sh", "/bin/bash", "/usr/bin/perl") if os.path.exists(path)],
    "environment": sorted(os.environ), "home": os.path.exists(OTHER), "devices": os.path.exists("/dev/kvm"),
}), flush=True)
with socket.socket(fileno=7) as listener:
    end, _ = listener.accept()
    end.sendall(b"bye")
    end.close()
raise SystemExit(5)
"""


def probe(folder: Path, name: str = "vm", **more: Any) -> tuple[LaunchRequest, socket.socket]:
    """A request that runs the probe in a folder of its own, and the socket that ends it."""
    own = folder / name
    own.mkdir(parents=True)
    listener = socket.create_server(("127.0.0.1", 0))
    source = PROBE.replace("FOLDER", repr(str(own))).replace("OTHER", repr(str(folder / "other")))
    argv = ["/usr/bin/python3", "-c", source]
    request = LaunchRequest(name, argv, folder=own, fds={7: listener.fileno()}, **more)
    return request, listener


async def told(launcher: Launcher, request: LaunchRequest, listener: socket.socket) -> dict[str, object]:
    """Run the probe to its end and return what it said; afterwards nothing of it is left."""
    process = await launcher.launch(request)
    try:
        async with asyncio.timeout(DEADLINE_S):
            while not process.output_tail():  # noqa: ASYNC110  # polls what a process printed
                await asyncio.sleep(0.02)
            identity = process.identity
            assert ProcessIdentity.of(process.pid) == identity
            reader, writer = await asyncio.open_connection("127.0.0.1", listener.getsockname()[1])
            assert await reader.read() == b"bye"
            writer.close()
            end = await process.wait()
        assert (end.exit_code, end.signal) in ((5, None), (None, None)), end
        found = ast.literal_eval(end.output)
        assert isinstance(found, dict)
        return found
    finally:
        listener.close()
        await process.remove()
        assert ProcessIdentity.of(process.pid) != process.identity
