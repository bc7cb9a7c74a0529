"""Peers of connected unix sockets, from the kernel's `sock_diag`. Needs no privilege."""

from __future__ import annotations

import errno
import os
import socket
import struct
from collections.abc import Iterable

_NETLINK_SOCK_DIAG, _SOCK_DIAG_BY_FAMILY = 4, 20
_NLM_F_REQUEST, _NLMSG_ERROR = 1, 2
_ALL_STATES, _SHOW_PEER, _PEER = 0xFFFFFFFF, 4, 2
_HEADER = struct.Struct("=IHHII")
_REQUEST = struct.Struct("=BBHIIIII")
_ANSWER_BYTES = 16
_ATTRIBUTE = struct.Struct("=HH")
_NO_COOKIE = 0xFFFFFFFF
_TIMEOUT_S = 1.0


def peer_inodes(inodes: Iterable[int]) -> set[int]:
    """Return the inodes of the peers of sockets; closed ones are left out.

    Raises:
        OSError: The kernel has no `unix_diag`.
    """
    found = set()
    with socket.socket(socket.AF_NETLINK, socket.SOCK_RAW | socket.SOCK_CLOEXEC, _NETLINK_SOCK_DIAG) as diag:
        diag.settimeout(_TIMEOUT_S)
        for number, inode in enumerate(inodes, 1):
            body = _REQUEST.pack(socket.AF_UNIX, 0, 0, _ALL_STATES, inode, _SHOW_PEER, _NO_COOKIE, _NO_COOKIE)
            head = _HEADER.pack(_HEADER.size + len(body), _SOCK_DIAG_BY_FAMILY, _NLM_F_REQUEST, number, 0)
            diag.send(head + body)
            peer = _peer(diag.recv(65536))
            if peer is not None:
                found.add(peer)
    return found


def _peer(answer: bytes) -> int | None:
    length, kind, _, _, _ = _HEADER.unpack_from(answer)
    if kind == _NLMSG_ERROR:
        code = -struct.unpack_from("=i", answer, _HEADER.size)[0]
        if code in (errno.ENOENT, errno.ESTALE):
            return None
        raise OSError(code, os.strerror(code))
    offset = _HEADER.size + _ANSWER_BYTES
    while offset + _ATTRIBUTE.size <= min(length, len(answer)):
        size, name = _ATTRIBUTE.unpack_from(answer, offset)
        if size < _ATTRIBUTE.size:
            break
        if name == _PEER:
            return int(struct.unpack_from("=I", answer, offset + _ATTRIBUTE.size)[0])
        offset += (size + 3) & ~3
    return None
