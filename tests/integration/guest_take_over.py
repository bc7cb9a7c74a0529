"""Runs as root inside a replica: takes the guest agent's socket and answers every command with "yes".

With the argument `nonsense` it answers everything with that.
"""

import ctypes
import json
import os
import re
import signal
import socket
import sys
import threading
from typing import Any

PIDFD_GETFD = 438


def pid_of(text: str) -> int:
    """The first process whose command line has it."""
    for name in os.listdir("/proc"):
        if name.isdigit():
            try:
                with open(f"/proc/{name}/cmdline") as file:
                    line = file.read().replace("\0", " ")
            except OSError:
                continue
            if text in line and "take_over" not in line:
                return int(name)
    raise SystemExit(f"no process {text}")


HEALTH = {
    "status": "ok",
    "version": "0",
    "generation": "1",
    "uptime_s": 1000.0,
    "desktop_ready": True,
    "last_seq": 0,
}
COMMAND = {"status": "success", "output": "yes\n", "error": "", "returncode": 0}


def serve(connection: Any) -> None:
    """Answer requests."""
    data = b""
    while True:
        while b"\r\n\r\n" not in data:
            more = connection.recv(65536)
            if not more:
                return
            data += more
        head, _, rest = data.partition(b"\r\n\r\n")
        found = re.search(rb"content-length: *(\d+)", head, re.IGNORECASE)
        length = int(found[1]) if found else 0
        while len(rest) < length:
            rest += connection.recv(65536)
        data = rest[length:]
        path = head.split(b" ")[1]
        answer = COMMAND if b"execute" in path else HEALTH if b"/v1/" in path else {}
        body = b"what?" if "nonsense" in sys.argv else json.dumps(answer).encode()
        top = f"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: {len(body)}\r\n\r\n"
        connection.sendall(top.encode() + body)


def main() -> None:
    """Take over."""
    desktop, agent = pid_of("osgym/desktop"), pid_of("osgym_guest.pyc")
    listener = ctypes.CDLL(None).syscall(PIDFD_GETFD, os.pidfd_open(desktop), 3, 0)
    os.kill(desktop, signal.SIGSTOP)
    os.kill(agent, signal.SIGKILL)
    server = socket.socket(fileno=listener)
    server.setblocking(True)
    while True:
        connection, _ = server.accept()
        threading.Thread(target=serve, args=(connection,), daemon=True).start()


if __name__ == "__main__":
    main()
