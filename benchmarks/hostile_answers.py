"""A guest agent that answers as a hostile one would. Stands alone: it also runs inside a replica.

    python3 hostile_answers.py SHAPE_FILE FD           # FD is a listening socket
    python3 hostile_answers.py SHAPE_FILE take-over    # the real agent's socket, as root inside a replica

SHAPE_FILE names the shape of the answers and is read anew for each. Every shape is bounded: what it sends at
most is in `MOST_BYTES`.
"""

from __future__ import annotations

import contextlib
import ctypes
import json
import os
import re
import signal
import socket
import struct
import sys
import threading
import time
import zlib
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any

MOST_BYTES = 64 << 20
_PIDFD_GETFD = 438
RECORDS = "application/x-osgym-records"
JSON = "application/json"


def png(width: int, height: int) -> bytes:
    def chunk(kind: bytes, data: bytes) -> bytes:
        return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))

    head = struct.pack(">IIBBBBB", width, height, 8, 2, 0, 0, 0)
    rows = zlib.compressobj(1)
    data = b"".join(rows.compress(bytes(width * 3 + 1)) for _ in range(height)) + rows.flush()
    return b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", head) + chunk(b"IDAT", data) + chunk(b"IEND", b"")


GOOD = png(1920, 1080)
HEALTH = {
    "status": "ok",
    "version": "x",
    "generation": "1",
    "uptime_s": 1000.0,
    "desktop_ready": True,
    "last_seq": 0,
}


def meta(seq: int, **other: Any) -> dict[str, Any]:
    """Return a step's answer without its image."""
    frame = {
        "hash": "aa",
        "format": "png",
        "width": 1920,
        "height": 1080,
        "screen": [1920, 1080],
        "unchanged": False,
        "t_ms": 1.0,
    }
    return {
        "seq": seq,
        "replayed": False,
        "results": [{"ok": True, "op": "screenshot"}],
        "failed_index": None,
        "settle": {"policy": "fast", "reason": "quiet", "wait_ms": 1.0, "last_change_ms": None},
        "frame": {**frame, **other.pop("frame", {})},
        "previous": None,
        "timing_ms": {"total": 2.0},
        **other,
    }


def record(text: bytes | dict[str, Any], blob: bytes = GOOD) -> bytes:
    raw = text if isinstance(text, bytes) else json.dumps(text).encode()
    return struct.pack(">II", len(raw), len(blob)) + raw + blob


def http(body: bytes, kind: str = RECORDS, status: str = "200 OK") -> bytes:
    head = f"HTTP/1.1 {status}\r\nContent-Type: {kind}\r\nContent-Length: {len(body)}\r\n\r\n"
    return head.encode() + body


def with_field(seq: int, value: bytes) -> bytes:
    """Return a meta with one more field, of raw JSON."""
    return json.dumps(meta(seq)).encode()[:-1] + b',"more":' + value + b"}"


CHUNKED = b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n"
CLOSED = b"HTTP/1.1 200 OK\r\nConnection: close\r\n\r\n"


def repeated(head: bytes, piece: bytes, most: int = MOST_BYTES) -> Iterator[bytes]:
    """Yield a head, and pieces up to the bound."""
    yield head
    block = piece * max(1, 65536 // len(piece))
    for _ in range(most // len(block)):
        yield block


def slowly(data: bytes) -> Iterator[bytes]:
    for byte in data[:600]:
        yield bytes([byte])
        time.sleep(1)


def output(raw: bytes) -> bytes:
    """Return a command's result with raw JSON in place of its output."""
    return http(b'{"error":"","returncode":0,"output":' + raw + b"}", JSON)


STEP_SHAPES: dict[str, Callable[[int], Iterable[bytes]]] = {
    "good": lambda seq: [http(record(meta(seq)))],
    "chunks of one byte": lambda seq: repeated(CHUNKED, b"1\r\nx\r\n"),
    "chunks of 256 bytes": lambda seq: repeated(CHUNKED, b"100\r\n" + b"x" * 256 + b"\r\n"),
    "chunks of 1 KiB": lambda seq: repeated(CHUNKED, b"400\r\n" + b"x" * 1024 + b"\r\n"),
    "endless": lambda seq: repeated(CLOSED, b"x"),
    "endless head": lambda seq: repeated(b"HTTP/1.1 200 OK\r\n", b"A: b\r\n"),
    "endless 100 Continue": lambda seq: repeated(b"", b"HTTP/1.1 100 Continue\r\n\r\n", 1 << 20),
    "huge image": lambda seq: [http(record(meta(seq), GOOD + bytes(60 << 20)))],
    "large image": lambda seq: [
        http(record(meta(seq, frame={"width": 8192, "height": 4320}), png(8192, 4320) + bytes(60 << 20)))
    ],
    "huge length": lambda seq: [b"HTTP/1.1 200 OK\r\nContent-Length: 67000000\r\n\r\nxx"],
    "objects": lambda seq: [http(record(with_field(seq, b"[" + b"{}," * 1_300_000 + b"{}]")))],
    "brackets": lambda seq: [http(record(with_field(seq, b"[" * 4_000_000)))],
    "small objects": lambda seq: [http(record(with_field(seq, b"[" + b"{}," * 21_000 + b"{}]")))],
    "many results": lambda seq: [http(record(meta(seq, results=[{"ok": True, "op": "x"}] * 3000)))],
    "deep": lambda seq: [http(record(with_field(seq, b"[" * 900 + b"]" * 900)))],
    "huge error": lambda seq: [
        http(
            json.dumps({"code": "x" * 10**6, "message": "m\x1b]0;pwn\x07\n" + "y" * 5 * 10**6}).encode(),
            JSON,
            "500 E",
        )
    ],
    "error of objects": lambda seq: [http(b'{"a":[' + b"{}," * 5_000_000 + b"{}]}", JSON, "500 E")],
    "wrong number": lambda seq: [http(record(meta(seq + 7)))],
    "wrong size": lambda seq: [http(record(meta(seq, frame={"width": 1000})))],
    "negative size": lambda seq: [http(record(meta(seq, frame={"width": -1, "height": 10**17})))],
    "not an image": lambda seq: [http(record(meta(seq), b"%!PS-Adobe-3.0 EPSF-3.0\n"))],
    "slow": lambda seq: slowly(http(record(meta(seq)))),
    "close": lambda seq: [],
}
"""Answers to a step, by their shape: the parts that are sent one after the other."""

TEXT_SHAPES: dict[str, Callable[[], Iterable[bytes]]] = {
    "long output": lambda: [output(b'"' + b"x" * (15 << 20) + b'"')],
    "wide output": lambda: [output(b'"' + b"x" * 5_242_000 + "😀".encode() + b'"')],
    "allowed output": lambda: [output(b'"' + b"\\n\\u0041" * 500_000 + b'"')],
    "output of objects": lambda: [output(b"[" + b"{}," * 1_300_000 + b"{}]")],
    "output of brackets": lambda: [output(b"[" * 3_900_000)],
    "output of short texts": lambda: [output(b"[" + b'"",' * 1_300_000 + b'""]')],
    "output of escapes": lambda: [output(b'"' + b"\\ud83d\\ude00" * 340_000 + b'"')],
    "chunked output": lambda: repeated(CHUNKED, b"1\r\nx\r\n"),
}
"""Answers to a command."""


def _read(connection: socket.socket, buffer: bytes) -> tuple[str, bytes, bytes] | None:
    while b"\r\n\r\n" not in buffer:
        data = connection.recv(65536)
        if not data:
            return None
        buffer += data
    head, _, rest = buffer.partition(b"\r\n\r\n")
    found = re.search(rb"content-length: *(\d+)", head, re.I)
    length = int(found.group(1)) if found else 0
    while len(rest) < length:
        data = connection.recv(65536)
        if not data:
            return None
        rest += data
    return head.split(b" ", 2)[1].decode(), rest[:length], rest[length:]


def answer(path: str, body: bytes, shape: str) -> Iterable[bytes]:
    if path in ("/v1/health", "/v1/ready"):
        return [http(json.dumps(HEALTH).encode(), JSON)]
    if path in ("/v1/step", "/v1/observe", "/v1/final"):
        seq = json.loads(body).get("seq", 0)
        return STEP_SHAPES.get(shape, STEP_SHAPES["good"])(seq)
    if shape in TEXT_SHAPES:
        return TEXT_SHAPES[shape]()
    return [output(b'"fine"')]


def _serve(connection: socket.socket, shape_of: Callable[[], str]) -> None:
    buffer = b""
    with connection:
        try:
            while (request := _read(connection, buffer)) is not None:
                path, body, buffer = request
                sent = 0
                for part in answer(path, body, shape_of()):
                    connection.sendall(part)
                    sent += len(part)
                if not sent:
                    return
        except OSError:
            return


def serve(listener: socket.socket, shape_of: Callable[[], str]) -> None:
    """Answer every connection of a listening socket, each in a thread, until it is closed."""
    while True:
        try:
            connection, _ = listener.accept()
        except OSError:
            return
        threading.Thread(target=_serve, args=(connection, shape_of), daemon=True).start()


def _process_with(part: str) -> int:
    for entry in os.listdir("/proc"):
        if entry.isdigit() and int(entry) != os.getpid():
            with contextlib.suppress(OSError):
                if part in Path(f"/proc/{entry}/cmdline").read_text():
                    return int(entry)
    raise LookupError(part)


def take_over() -> int:
    """Take the listening socket of the guest agent and end it; a parent that would restart it is stopped."""
    # Not osgym-session, which has the script among its arguments too.
    session, agent = _process_with("dash\0/usr/lib/osgym/desktop"), _process_with("osgym_guest.pyc")
    libc = ctypes.CDLL(None, use_errno=True)
    descriptor = libc.syscall(_PIDFD_GETFD, os.pidfd_open(session), 3, 0)
    if descriptor < 0:
        raise OSError(ctypes.get_errno(), "the socket cannot be taken")
    os.kill(session, signal.SIGSTOP)
    os.kill(agent, signal.SIGKILL)
    os.set_blocking(descriptor, True)
    return int(descriptor)


def main() -> None:
    shape_file = sys.argv[1]
    descriptor = take_over() if sys.argv[2] == "take-over" else int(sys.argv[2])

    def shape_of() -> str:
        return Path(shape_file).read_text().strip()

    serve(socket.socket(fileno=descriptor), shape_of)


if __name__ == "__main__":
    main()
