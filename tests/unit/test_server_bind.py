"""The listening sockets of the host agent."""

from __future__ import annotations

import socket

from osgym_host.server import bind
from osgym_host.settings import Settings


def test_small_answers_do_not_wait_for_acknowledgements() -> None:
    """asyncio turns Nagle's algorithm off only on sockets that name TCP as their protocol."""
    sockets = bind(Settings(ports=[0]))
    try:
        assert [sock.proto for sock in sockets] == [socket.IPPROTO_TCP]
    finally:
        for sock in sockets:
            sock.close()
