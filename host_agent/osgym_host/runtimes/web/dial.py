"""Connections to judged addresses, and transfers over them. No names are looked up here."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from osgym_host.runtimes.web.heads import Refused

CONNECT_S = 10.0
PIECE_BYTES = 64 * 1024
IDLE_S = 300.0
"""Longest time without a byte, after which a connection ends."""
_MOST_ADDRESSES = 3


@dataclass(frozen=True, slots=True)
class Dialler:
    """Opener of connections to addresses that were judged.

    Attributes:
        elsewhere: Real addresses of a test's `address:port`, which stand for those of the internet.
    """

    elsewhere: Mapping[str, tuple[str, int]] = field(default_factory=dict)

    async def connect(
        self, addresses: Sequence[str], port: int
    ) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        """Return a connection to the first address that answers.

        Raises:
            Refused: No address answers.
        """
        for address in addresses[:_MOST_ADDRESSES]:
            place = self.elsewhere.get(f"{address}:{port}", (address, port))
            try:
                async with asyncio.timeout(CONNECT_S):
                    return await asyncio.open_connection(*place, limit=PIECE_BYTES)
            except (OSError, TimeoutError):
                continue
        raise Refused(502, "unreachable", f"no answer came from port {port} of {', '.join(addresses)}")


async def tunnel(
    one: tuple[asyncio.StreamReader, asyncio.StreamWriter],
    other: tuple[asyncio.StreamReader, asyncio.StreamWriter],
) -> None:
    """Copy bytes both ways until both ends are done, or neither sent anything for `IDLE_S`.

    Raises:
        TimeoutError: It was idle for too long.
        OSError: A connection broke.
    """
    loop = asyncio.get_running_loop()
    async with asyncio.timeout(IDLE_S) as limit:

        async def carry(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            while data := await reader.read(PIECE_BYTES):
                limit.reschedule(loop.time() + IDLE_S)
                writer.write(data)
                await writer.drain()
            if writer.can_write_eof():
                writer.write_eof()

        tasks = [
            asyncio.ensure_future(carry(one[0], other[1])),
            asyncio.ensure_future(carry(other[0], one[1])),
        ]
        try:
            await asyncio.gather(*tasks)
        finally:
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)


async def drain(writer: asyncio.StreamWriter) -> None:
    """Wait until most of the written bytes are sent.

    Raises:
        TimeoutError: The other side took nothing for `IDLE_S`.
        OSError: The connection broke.
    """
    async with asyncio.timeout(IDLE_S):
        await writer.drain()


async def close(writer: asyncio.StreamWriter, *, within_s: float = 2.0) -> None:
    """Close a connection in order, or abort it after a time; never raises."""
    writer.close()
    try:
        async with asyncio.timeout(within_s):
            with contextlib.suppress(OSError):
                await writer.wait_closed()
    except TimeoutError:
        writer.transport.abort()
    except BaseException:
        writer.transport.abort()
        raise
