"""Message from the host to the entry of a runner container, with descriptors beside it.

`u32 bytes, u32 descriptors, i32 port` (big endian), then three parts joined by two NULs: descriptor
numbers, `NAME=value` variables, words of the argument vector, each joined by one NUL. Port is where the
last descriptor, a listening socket, is to be passed on to inside; -1 where there is none.
"""

from __future__ import annotations

import array
import os
import socket
import struct
from collections.abc import Mapping, Sequence

from osgym_qemu.machine.launcher import LaunchRequest

SOCKET_NAME = "launch.sock"
_HEADER = struct.Struct("!IIi")
_PEER = struct.Struct("3i")


def encode(request: LaunchRequest, env: Mapping[str, str], output: int) -> tuple[bytes, bytes, list[int]]:
    """Encode a request as a message.

    Args:
        env: Variables besides the request's.
        output: Descriptor of the file to which QEMU prints.

    Returns:
        Header, text, and descriptors in their order.

    Raises:
        ValueError: A word is empty or holds a NUL.
    """
    descriptors = {1: output, 2: output, **request.fds}
    numbers, fds = list(descriptors), list(descriptors.values())
    port = -1
    if request.guest_listener is not None:
        fds.append(request.guest_listener)
        port = request.guest_port
    text = b"\0\0".join(
        (
            _joined([str(number) for number in numbers]),
            _joined([f"{name}={value}" for name, value in {**env, **request.env}.items()]),
            _joined(request.argv),
        )
    )
    return _HEADER.pack(len(text), len(fds), port), text, fds


def _joined(words: Sequence[str]) -> bytes:
    encoded = [os.fsencode(word) for word in words]
    if any(not word or b"\0" in word for word in encoded):
        raise ValueError("an empty word, or one with a NUL, cannot be handed over")
    return b"\0".join(encoded)


def send(channel: socket.socket, header: bytes, text: bytes, fds: Sequence[int]) -> None:
    """Send a message. Blocking, within the timeout of the socket."""
    rights = [(socket.SOL_SOCKET, socket.SCM_RIGHTS, array.array("i", fds))]
    channel.sendmsg([header], rights if fds else [])
    channel.sendall(text)


def peer_pid(channel: socket.socket) -> int:
    """Return the host PID of the process at the other end, from the kernel."""
    found = channel.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, _PEER.size)
    return int(_PEER.unpack(found)[0])
