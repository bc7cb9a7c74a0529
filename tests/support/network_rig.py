"""A world to connect to and a guest without a virtual machine: real packets through the real tap.

The world is a network namespace behind the host that stands for the internet, for private networks and for
the metadata service of a cloud. The guest is a namespace with a tap of its own; a thread carries frames
between that and the machine's tap, as QEMU would.
"""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
import select
import struct
import subprocess
import sys
import threading
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from osgym_host.runtimes.egress.tools import NETNS_FOLDER, inside, run_tool
from osgym_qemu.machine.argv import GATEWAY_IP, GUEST_IP, MAC

PORT = 8099
"""Where the world's servers, and the host's, answer."""

TRY = """
import socket, threading
result = []
def attempt(host, port):
    try:
        with socket.create_connection((host, port), timeout=wait_s) as end:
            end.settimeout(wait_s)
            if end.recv(5):
                result.append([host, port])
    except OSError:
        pass
tries = [threading.Thread(target=attempt, args=tuple(target)) for target in targets]
[each.start() for each in tries]
[each.join() for each in tries]
result.sort()
"""
"""Runs in a desktop: which of `targets` (host and port) say something within `wait_s`."""
KNOWN_NAMES = {
    "files.example.org": ["198.51.100.7"],
    "inside.example.org": ["10.77.77.7", "169.254.169.254", "127.0.0.1"],
    "elsewhere.test": ["203.0.113.2"],
}
"""What look-ups find, in place of the host's resolver."""
ALLOWED = ("203.0.113.128/25", "10.77.77.0/24", "*.example.org")
"""What the tests' allowlist names."""

_FORWARDING = Path("/proc/sys/net/ipv4/ip_forward")
_LOCK = Path("/run/osgym-test-network.lock")
_TURN_S = 300.0
_TUNSETIFF = 0x400454CA
_TAP_NO_PI = 0x1002

# Accepts at every address of its namespace and says so; its standard input is its life.
_SERVER = """
import socket, sys, threading
listener = socket.create_server(("0.0.0.0", int(sys.argv[1])), backlog=64)
def serve():
    while True:
        end, _ = listener.accept()
        end.sendall(b"world")
        end.close()
threading.Thread(target=serve, daemon=True).start()
print("up", flush=True)
sys.stdin.read()
"""

# Tries all targets at once and prints those that answered.
_CLIENT = """
import json, socket, sys, threading
reached = []
def attempt(host, port):
    try:
        with socket.create_connection((host, port), timeout=float(sys.argv[2])) as end:
            end.settimeout(float(sys.argv[2]))
            if end.recv(5) == b"world":
                reached.append([host, port])
    except OSError:
        pass
tries = [threading.Thread(target=attempt, args=tuple(target)) for target in json.loads(sys.argv[1])]
[each.start() for each in tries]
[each.join() for each in tries]
print(json.dumps(reached))
"""


@contextlib.contextmanager
def forwarding() -> Iterator[None]:
    """Let this host forward packets for a while; test processes beside each other do so in turn."""
    with _LOCK.open("w") as turn:
        _take_turn(turn.fileno())
        before = _FORWARDING.read_text()
        _FORWARDING.write_text("1")
        try:
            yield
        finally:
            _FORWARDING.write_text(before)


def _take_turn(fd: int) -> None:
    deadline = time.monotonic() + _TURN_S
    while True:
        try:
            fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
            return
        except BlockingIOError:
            assert time.monotonic() < deadline, f"{_LOCK} is held by another test process"
            time.sleep(0.1)


@contextlib.contextmanager
def namespace(name: str) -> Iterator[str]:
    """A network namespace, gone afterwards."""
    run_tool(["ip", "netns", "add", name])
    try:
        yield name
    finally:
        run_tool(["ip", "netns", "delete", name])


@contextlib.contextmanager
def server(name: str | None) -> Iterator[None]:
    """A server at every address of a namespace, or of the host."""
    prefix = [] if name is None else ["ip", "netns", "exec", name]
    process = subprocess.Popen(
        [*prefix, sys.executable, "-I", "-c", _SERVER, str(PORT)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    assert process.stdin is not None and process.stdout is not None
    try:
        assert process.stdout.readline() == "up\n"
        yield
    finally:
        process.stdin.close()
        process.wait(timeout=10)
        process.stdout.close()


@dataclass(frozen=True, slots=True)
class World:
    """Addresses that answer at `PORT` unless something forbids it."""

    near: str = "203.0.113.2"
    far: str = "198.51.100.7"
    private: str = "10.77.77.7"
    metadata: str = "169.254.169.254"
    azure: str = "168.63.129.16"
    host: str = "203.0.113.1"


@contextlib.contextmanager
def world() -> Iterator[World]:
    """The world behind a link of the host. Root only; one at a time."""
    places = World()
    name = f"world-{os.getpid()}"
    outer = [places.far, places.private, places.metadata, places.azure]
    with namespace(name), contextlib.ExitStack() as stack:
        run_tool(["ip", "link", "add", "oworld", "type", "veth", "peer", "name", "o0", "netns", name])
        stack.callback(run_tool, ["ip", "link", "delete", "oworld"])
        script = [f"address add {places.host}/24 dev oworld", "link set oworld up"]
        run_tool(["ip", "-batch", "-"], "\n".join(script))
        script = ["link set lo up", f"address add {places.near}/24 dev o0", "link set o0 up"]
        script += [f"address add {address}/32 dev o0" for address in outer]
        run_tool(["ip", "-n", name, "-batch", "-"], "\n".join(script))
        for address in outer:
            run_tool(["ip", "route", "add", f"{address}/32", "via", places.near])
        stack.enter_context(server(name))
        stack.enter_context(server(None))
        yield places


class Guest:
    """A namespace that stands for a machine's guest."""

    def __init__(self, name: str) -> None:
        self.name = name

    def reaches(self, hosts: Sequence[str], port: int = PORT, timeout_s: float = 1.0) -> set[str]:
        """Those of the addresses that answer."""
        targets = json.dumps([[host, port] for host in hosts])
        argv = ["ip", "netns", "exec", self.name, sys.executable, "-I", "-c", _CLIENT, targets]
        return {host for host, _ in json.loads(run_tool([*argv, str(timeout_s)]))}

    def run(self, script: str) -> str:
        """Run a Python script in the guest and return what it prints."""
        return run_tool(["ip", "netns", "exec", self.name, sys.executable, "-I", "-c", script])


@contextlib.contextmanager
def guest(name: str, tap: int) -> Iterator[Guest]:
    """A guest at the other end of a machine's tap, configured like one that was frozen."""
    with namespace(name), contextlib.ExitStack() as stack:
        own = inside(NETNS_FOLDER / name, _own_tap)
        stack.callback(os.close, own)
        script = ["link set lo up", f"link set eth0 address {MAC}", f"address add {GUEST_IP}/24 dev eth0"]
        script += ["link set eth0 up", f"route add default via {GATEWAY_IP}"]
        assert (NETNS_FOLDER / name).exists()
        run_tool(["ip", "-n", name, "-batch", "-"], "\n".join(script))
        stop_r, stop_w = os.pipe()
        carrier = threading.Thread(target=_carry, args=(own, tap, stop_r), daemon=True)
        carrier.start()
        stack.callback(os.close, stop_r)
        stack.callback(carrier.join)
        stack.callback(os.close, stop_w)
        yield Guest(name)


def _own_tap() -> int:
    tap = os.open("/dev/net/tun", os.O_RDWR | os.O_CLOEXEC | os.O_NONBLOCK)
    fcntl.ioctl(tap, _TUNSETIFF, struct.pack("16sH22x", b"eth0", _TAP_NO_PI))
    return tap


def _carry(one: int, other: int, stop: int) -> None:
    """Carry frames both ways until `stop` can be read."""
    os.set_blocking(other, False)
    poller = select.poll()
    for fd in (one, other, stop):
        poller.register(fd, select.POLLIN)
    while True:
        for fd, _ in poller.poll():
            if fd == stop:
                return
            with contextlib.suppress(OSError):
                os.write(other if fd == one else one, os.read(fd, 65536))
