"""A checkpoint on its host: delete it, take it elsewhere."""

from __future__ import annotations

import asyncio
import contextlib
import os
from collections.abc import AsyncIterator
from pathlib import Path

from osgym_sdk._exceptions import CheckpointNotFound, ConfigError, HostUnreachable, OSGymError, ProtocolError
from osgym_sdk._fleet.fleet import Fleet
from osgym_sdk._transport.calls import HostCall
from osgym_sdk._transport.link import HostLink
from osgym_sdk.wire import CheckpointInfo, CheckpointList

_CHUNK_BYTES = 1024 * 1024


class CheckpointHandle:
    """A checkpoint: ``info`` has its id, episode, step, size, and how long it is kept."""

    def __init__(self, info: CheckpointInfo, host: str) -> None:
        self.info = info
        self.host = host
        """URL of the host that has it."""

    @property
    def checkpoint_id(self) -> str:
        return self.info.checkpoint_id

    def __repr__(self) -> str:
        return f"<{type(self).__name__} {self.checkpoint_id} step={self.info.step} on {self.host}>"


class AsyncCheckpoint(CheckpointHandle):
    """Made by :meth:`AsyncEpisode.checkpoint`, listed by :meth:`AsyncClient.checkpoints`."""

    def __init__(self, info: CheckpointInfo, link: HostLink, control_s: float) -> None:
        super().__init__(info, link.url)
        self._link = link
        self._control_s = control_s

    async def delete(self) -> None:
        """Delete it; episodes that were restored from it are not affected. Idempotent."""
        path = f"/v1/checkpoints/{self.checkpoint_id}"
        with contextlib.suppress(CheckpointNotFound):
            await self._link.call(HostCall(method="DELETE", path=path, timeout_s=self._control_s))

    async def export(self, path: str | Path, *, timeout_s: float = 600.0) -> Path:
        """Write it to a file that :meth:`AsyncClient.import_checkpoint` takes; only a kept one.

        The file is there as a whole or not at all.

        Raises:
            CheckpointNotFound: it was deleted or ran out.
            BadRequest: it was made without ``keep``.
            HostUnreachable: the connection broke.
            OSError: the file cannot be written.
        """
        target = Path(path)
        part = target.with_name(f"{target.name}.part-{os.getpid()}")
        try:
            async with asyncio.timeout(timeout_s):
                await self._download(part)
            part.replace(target)
        finally:
            part.unlink(missing_ok=True)
        return target

    async def _download(self, part: Path) -> None:
        path = f"/v1/checkpoints/{self.checkpoint_id}/export"
        async with self._link.stream("GET", path) as (length, chunks):
            with part.open("wb", buffering=_CHUNK_BYTES) as file:
                size = 0
                async for chunk in chunks:
                    size += len(chunk)
                    await asyncio.to_thread(file.write, chunk)
        if size != length:
            raise HostUnreachable("the export ended before the whole checkpoint had arrived", host=self.host)


async def list_checkpoints(fleet: Fleet, timeout_s: float) -> list[AsyncCheckpoint]:
    """Return the checkpoints of all hosts that can be reached.

    Raises:
        HostUnreachable: none can be reached.
    """
    await fleet.begin()
    asked = (_list_on(host.link, timeout_s) for host in fleet.hosts if not host.joining)
    answers = await asyncio.gather(*asked, return_exceptions=True)
    found: list[AsyncCheckpoint] = []
    reached = 0
    for answer in answers:
        if isinstance(answer, list):
            found += answer
            reached += 1
        elif not isinstance(answer, (HostUnreachable, ProtocolError)):
            raise answer
    if not reached:
        none = HostUnreachable("none of the hosts accepts new episodes")
        raise next((answer for answer in answers if isinstance(answer, OSGymError)), none)
    return found


async def find_checkpoint(fleet: Fleet, checkpoint_id: str, timeout_s: float) -> AsyncCheckpoint:
    """Return the checkpoint of an id.

    Raises:
        CheckpointNotFound: no host has it.
    """
    for found in await list_checkpoints(fleet, timeout_s):
        if found.checkpoint_id == checkpoint_id:
            return found
    raise CheckpointNotFound(f"no host has the checkpoint {checkpoint_id[:100]}")


async def _list_on(link: HostLink, timeout_s: float) -> list[AsyncCheckpoint]:
    answer = await link.call(HostCall(method="GET", path="/v1/checkpoints", timeout_s=timeout_s))
    return [AsyncCheckpoint(info, link, timeout_s) for info in answer.message(CheckpointList).checkpoints]


async def send_checkpoint(link: HostLink, path: Path, timeout_s: float, control_s: float) -> AsyncCheckpoint:
    """Send a file to a host and return what became of it.

    Raises:
        ConfigError: The file cannot be read.
        OSGymError: The host refused it, or the connection broke.
    """
    try:
        with path.open("rb") as file:
            length = os.fstat(file.fileno()).st_size

            async def pieces() -> AsyncIterator[bytes]:
                while chunk := await asyncio.to_thread(file.read, _CHUNK_BYTES):
                    yield chunk

            answer = await link.upload("/v1/checkpoints/import", length, pieces(), timeout_s)
    except OSError as exc:
        if isinstance(exc, TimeoutError):
            raise
        raise ConfigError(f"{path} cannot be read: {exc}") from exc
    return AsyncCheckpoint(answer.message(CheckpointInfo), link, control_s)
