"""Packets between the host agent and processes of its own. Standard library only.

One JSON object per packet of a SOCK_SEQPACKET socket pair, with descriptors beside it.
"""

from __future__ import annotations

import json
import socket
from collections.abc import Sequence
from typing import Any

MAX_PACKET_BYTES = 64 * 1024
MAX_FDS = 8

Packet = tuple[dict[str, Any], list[int]]
"""A message, and the descriptors that came with it."""


def send(sock: socket.socket, message: dict[str, Any], fds: Sequence[int] = ()) -> None:
    """Send one message.

    Raises:
        OSError: The other side is gone, or (EMSGSIZE) the message is too large.
    """
    socket.send_fds(sock, [json.dumps(message).encode()], list(fds))


def receive(sock: socket.socket) -> Packet | None:
    """Receive one message; None when the other side closed.

    Raises:
        BlockingIOError: Nothing is there.
        OSError: The connection broke.
    """
    data, fds, _flags, _address = socket.recv_fds(sock, MAX_PACKET_BYTES, MAX_FDS, socket.MSG_CMSG_CLOEXEC)
    if not data:
        return None
    return json.loads(data), fds


def receive_all(sock: socket.socket) -> tuple[list[Packet], bool]:
    """Receive all pending messages of a socket that does not block, and whether the other side is open."""
    packets: list[Packet] = []
    while True:
        try:
            packet = receive(sock)
        except BlockingIOError:
            return packets, True
        except OSError:
            packet = None
        if packet is None:
            return packets, False
        packets.append(packet)
