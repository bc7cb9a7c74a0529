"""Takes the place of the guest agent inside a replica, as root there, and answers every call wrongly.

It runs inside the replica, with nothing but the standard library, and is told how: `chunks` (one byte each,
without end), `mountain` (15 MB of JSON objects in an answer that is plain HTTP), `noise` (bytes that are no
HTTP, without end).
"""

from __future__ import annotations

import contextlib
import ctypes
import os
import signal
import socket
import stat
import struct
import sys
import threading
from pathlib import Path

_PIDFD_GETFD = 438
_DESCRIPTORS = range(3, 128)


def processes(part: str) -> list[int]:
    """Processes with a part in their command line."""
    found = []
    for entry in os.listdir("/proc"):
        with contextlib.suppress(OSError):
            if entry.isdigit() and part in Path(f"/proc/{entry}/cmdline").read_text():
                found.append(int(entry))
    return [pid for pid in found if pid != os.getpid()]


def take_sockets(pid: int) -> list[socket.socket]:
    """Return copies of the sockets of another process."""
    libc = ctypes.CDLL(None, use_errno=True)
    held = os.pidfd_open(pid)
    taken = []
    for number in _DESCRIPTORS:
        fd = libc.syscall(_PIDFD_GETFD, held, number, 0)
        if fd < 0:
            continue
        if stat.S_ISSOCK(os.fstat(fd).st_mode):
            taken.append(socket.socket(fileno=fd))
        else:
            os.close(fd)
    return taken


def answer(peer: socket.socket, mode: str, at_once: bool = False) -> None:
    """Read a request, completely or in part, and answer it."""
    with contextlib.suppress(OSError), peer:
        while at_once or peer.recv(1 << 16):
            at_once = False
            if mode == "chunks":
                peer.sendall(b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n")
                while True:
                    peer.sendall(b"1\r\nx\r\n" * 10_000)
            elif mode == "mountain":
                meta = b'{"output":"","error":"","returncode":0,"z":[' + b"{}," * 1_350_000 + b"{}]}"
                body = struct.pack(">II", len(meta), 0) + meta + b"," * (11 << 20)
                head = f"HTTP/1.1 200 OK\r\nContent-Length: {len(body)}\r\n\r\n".encode()
                peer.sendall(head + body)
            else:
                while True:
                    peer.sendall(os.urandom(1 << 16))


def listens(sock: socket.socket) -> bool:
    return bool(sock.getsockopt(socket.SOL_SOCKET, socket.SO_ACCEPTCONN))


def is_call(sock: socket.socket, listener: socket.socket) -> bool:
    """Return whether it is a connection of a caller, and not one to the X server or a bus."""
    with contextlib.suppress(OSError):
        if sock.family != listener.family:
            return False
        ours, its = sock.getsockname(), listener.getsockname()
        # An agent that listens on every address of a machine is called on one of them: the port tells.
        return bool(ours[1] == its[1] if sock.family == socket.AF_INET else ours == its)
    return False


def main() -> None:
    mode = sys.argv[1]
    agents = set(processes("osgym_guest.pyc"))
    (agent,) = [pid for pid in sorted(agents) if any(map(listens, take_sockets(pid)))][:1]
    for starter in processes("osgym/desktop"):
        os.kill(starter, signal.SIGSTOP)  # it would start the real one again
    os.kill(agent, signal.SIGSTOP)
    sockets = take_sockets(agent)
    (listener,) = [sock for sock in sockets if listens(sock)][:1]
    calls = [sock for sock in sockets if sock is not listener and is_call(sock, listener)]
    os.kill(agent, signal.SIGKILL)
    for sock in (listener, *calls):
        sock.setblocking(True)  # what is set on a copy is set for the agent, which would stand still by it
    for peer in calls:
        threading.Thread(target=answer, args=(peer, mode, True), daemon=True).start()
    while True:
        peer, _ = listener.accept()
        threading.Thread(target=answer, args=(peer, mode), daemon=True).start()


if __name__ == "__main__":
    main()
