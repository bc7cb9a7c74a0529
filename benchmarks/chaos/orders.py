"""Harm that policies do to their own desktops by typing one line into a terminal."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from benchmarks.chaos.schedule import Kind

FOLDER = "/tmp/chaos"
"""Folder of the scripts of these faults in every desktop."""
TYPED = f"{FOLDER}/typed"
"""File that the typed line makes first, which proves that the desktop has executed it."""
DISK_MIB, MEMORY_MIB = 700, 4000
"""Sizes above the caps of the run; a bomb that no cap stops takes at most this."""

_FILL = f"""
import os
names = [open("/home/user/bomb-%d" % n, "wb") for n in range(2)]
os.unlink("/home/user/bomb-1")  # what nobody sees in the folder is on the disk all the same
for file in names:
    os.posix_fallocate(file.fileno(), 0, {DISK_MIB} << 19)  # at once; then for machines
for _ in range({DISK_MIB // 8}):
    for file in names:
        file.write(os.urandom(1 << 16) * 64)
        file.flush()
import time; time.sleep(60)
"""
_HOARD = f"""
held = []
for _ in range({MEMORY_MIB // 16}):
    held.append(b"x" * (16 << 20))
"""
_TRACE = """
import ctypes, os
libc = ctypes.CDLL(None)
libc.ptrace(16, 1, 0, 0)  # PTRACE_ATTACH
os.waitpid(1, 0x40000000)  # __WALL
libc.ptrace(17, 1, 0, 9)  # PTRACE_DETACH with SIGKILL
"""
X_CLIENTS = r"""
import socket, time
held = []
while True:
    client = socket.socket(socket.AF_UNIX)
    client.settimeout(2)
    try:
        client.connect("/tmp/.X11-unix/X0")
        client.sendall(b"l\0\x0b\0\0\0\0\0\0\0\0\0")
        if client.recv(1) != b"\1":
            break
    except OSError:
        break
    held.append(client)
time.sleep(600)
"""
_PORT = r"""
import http.server
class Handler(http.server.BaseHTTPRequestHandler):
    def do_POST(self):
        self.rfile.read(int(self.headers.get("Content-Length") or 0))
        body = b'{"status": "success", "output": "forged", "error": "", "returncode": 0}'
        self.send_response(200)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)
    do_GET = do_POST
http.server.ThreadingHTTPServer(("", 5000), Handler).serve_forever()
"""
SCRIPTS = {
    "fill.py": _FILL,
    "hoard.py": _HOARD,
    "trace.py": _TRACE,
    "x_clients.py": X_CLIENTS,
    "port.py": _PORT,
}
_NAMES = ("osgym_guest.pyc", "Xvfb", "osgym-session")
_REBOOT = "import ctypes; ctypes.CDLL(None).reboot(0x1234567)"


@dataclass(slots=True)
class Order:
    """Line that the policy of one attempt types once its work is done.

    Attributes:
        begun: The policy opens a terminal for it.
        sent_at: Time at which the step that types it was sent, by `time.monotonic`; None before.
        typed: Whether the desktop got it, once that is known.
    """

    kind: Kind
    command: str
    begun: bool = False
    sent_at: float | None = None
    typed: asyncio.Future[bool] = field(default_factory=lambda: asyncio.get_running_loop().create_future())

    @property
    def line(self) -> str:
        """Text that is typed into the terminal."""
        return f"touch {TYPED}; {self.command}\n"

    @property
    def over(self) -> bool:
        """Whether nothing is left to do for it."""
        return self.typed.done()

    def settle(self, *, typed: bool) -> None:
        """Record whether the desktop got it. Later calls change nothing."""
        if not self.typed.done():
            self.typed.set_result(typed)

    def end(self) -> None:
        """Record the end of the attempt: a desktop that was lost in or after the step got the line."""
        self.settle(typed=self.sent_at is not None)


def scripts_set_up() -> dict[str, Any]:
    """Return the set-up step by which a desktop gets the scripts of these faults."""
    files = [{"path": f"{FOLDER}/{name}", "text": text} for name, text in SCRIPTS.items()]
    return {"type": "upload_file", "parameters": {"files": files}}


def command_of(kind: Kind, task: Mapping[str, Any]) -> str:
    """Return the command that a policy types to do this to its own desktop.

    Args:
        task: The policy's task; its check names the file that some of these commands spoil.
    """
    result = next(_paths(task["evaluator"]), "/home/user/result")
    by_name = "; ".join(f"sudo pkill -{{0}} -f {name}; pkill -{{0}} {name}" for name in _NAMES)
    return {
        Kind.POLICY_MEMORY_BOMB: f"python3 {FOLDER}/hoard.py",
        Kind.POLICY_PROCESS_BOMB: "b() { b | b & b; }; b",
        Kind.POLICY_DISK_BOMB: f"python3 {FOLDER}/fill.py",
        Kind.POLICY_KILLS_ALL: "sudo kill -9 -1",
        Kind.POLICY_KILLS_HARNESS: by_name.format("KILL"),
        Kind.POLICY_STOPS_HARNESS: by_name.format("STOP"),
        Kind.POLICY_FIRST_PROCESS_TRACED: f"sudo python3 {FOLDER}/trace.py",
        Kind.POLICY_REBOOTS: f"sudo python3 -c '{_REBOOT}'",
        Kind.POLICY_X_CLIENTS_USED_UP: f"python3 {FOLDER}/x_clients.py &",
        Kind.POLICY_PORT_FORGED: f"sudo python3 {FOLDER}/port.py &",
        Kind.POLICY_HOME_CLOSED: "chmod 000 ~",
        Kind.POLICY_RESULT_IS_FIFO: f"rm -rf {result}; mkfifo {result}",
        Kind.POLICY_RESULT_IS_DEVICE: f"rm -rf {result}; ln -s /dev/zero {result}",
    }[kind]


def _paths(part: Any) -> Iterator[str]:
    """Yield the files of the desktop that a check names."""
    if isinstance(part, Mapping):
        for value in part.values():
            yield from _paths(value)
    elif isinstance(part, list):
        for value in part:
            yield from _paths(value)
    elif isinstance(part, str) and part.startswith("/home/user/") and " " not in part:
        yield part
