"""Connection of a client to a port of its desktop, while the episode is active."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

from osgym_host.guest_client.tunnel import GuestTunnel

OnEnded = Callable[[str, int, int], None]
"""Callback with the outcome (`ok` or a code), and the bytes sent up and down."""


class EpisodeTunnel:
    """Relays bytes both ways with backpressure: some 100 KB are in flight."""

    def __init__(
        self, tunnel: GuestTunnel, lost: asyncio.Future[Any], ended: asyncio.Event, on_ended: OnEnded
    ) -> None:
        self._tunnel = tunnel
        self._lost = lost
        self._ended = ended
        self._on_ended: OnEnded | None = on_ended
        self._up_bytes = self._down_bytes = 0

    async def relay(
        self, take: Callable[[], Awaitable[bytes | None]], give: Callable[[bytes], Awaitable[None]]
    ) -> bool:
        """Relay until either side ends; return whether the client is still connected.

        Args:
            take: Gives what the client sends, empty at the end of that; None when the client is gone.
        """
        up = asyncio.create_task(self._up(take))
        down = asyncio.create_task(self._down(give))
        stop = asyncio.create_task(self._ended.wait())
        lost = asyncio.ensure_future(asyncio.shield(self._lost))
        try:
            await asyncio.wait((up, down, stop, lost), return_when=asyncio.FIRST_COMPLETED)
            return not up.done()
        finally:
            for task in (up, down, stop, lost):
                task.cancel()
            await asyncio.gather(up, down, stop, lost, return_exceptions=True)
            self.close()

    def close(self) -> None:
        self._tunnel.close()
        on_ended, self._on_ended = self._on_ended, None
        if on_ended is not None:
            on_ended("ok", self._up_bytes, self._down_bytes)

    async def _up(self, take: Callable[[], Awaitable[bytes | None]]) -> None:
        """Relay the client's bytes until it disconnects; only its orderly end is passed on."""
        is_open = True
        while (data := await take()) is not None:
            if data and is_open:
                self._up_bytes += len(data)
                try:
                    await self._tunnel.send(data)
                except OSError:
                    is_open = False  # what came down before may still be given
            elif is_open:
                is_open = False
                self._tunnel.send_end()

    async def _down(self, give: Callable[[bytes], Awaitable[None]]) -> None:
        while data := await self._received():
            self._down_bytes += len(data)
            await give(data)

    async def _received(self) -> bytes:
        try:
            return await self._tunnel.receive()
        except OSError:
            return b""
