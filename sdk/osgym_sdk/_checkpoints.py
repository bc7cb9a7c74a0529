"""A checkpoint on its host: delete it, take it elsewhere."""

from __future__ import annotations

import asyncio
import contextlib
import os
from collections.abc import AsyncIterator
from pathlib import Path
from typing import TYPE_CHECKING

from osgym_sdk._config import Config
from osgym_sdk._exceptions import CheckpointNotFound, ConfigError, HostUnreachable, ProtocolError
from osgym_sdk.wire import CheckpointInfo, CheckpointList, WireFormatError

if TYPE_CHECKING:
    from osgym_sdk._host import HostLink

_CHUNK_BYTES = 1024 * 1024


class AsyncCheckpoint:
    """Made by :meth:`AsyncEpisode.checkpoint`, listed by :meth:`AsyncClient.checkpoints`.

    ``info`` has its id, its episode and step, whether and how long it is kept, and its size.
    """

    def __init__(self, info: CheckpointInfo, link: HostLink, config: Config) -> None:
        self.info = info
        self._link = link
        self._config = config

    @property
    def checkpoint_id(self) -> str:
        return self.info.checkpoint_id

    @property
    def host(self) -> str:
        """URL of the host that has it."""
        return self._link.url

    async def delete(self) -> None:
        """Deletes it; episodes that were restored from it live on. Idempotent."""
        with contextlib.suppress(CheckpointNotFound):
            await self._link.call(
                "DELETE",
                f"/v1/checkpoints/{self.checkpoint_id}",
                timeout_s=self._config.timeouts.control_s,
            )

    async def export(self, path: str | Path, *, timeout_s: float = 600.0) -> Path:
        """Writes it to a file that :meth:`AsyncClient.import_checkpoint` takes; only a kept one.

        The file is there as a whole or not at all.

        Raises:
            CheckpointNotFound, BadRequest: it is gone, or not a kept one.
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
        async with self._link.download(f"/v1/checkpoints/{self.checkpoint_id}/export") as (length, chunks):
            with part.open("wb", buffering=_CHUNK_BYTES) as file:
                size = 0
                async for chunk in chunks:
                    size += len(chunk)
                    await asyncio.to_thread(file.write, chunk)
        if size != length:
            raise HostUnreachable("the export was cut short", host=self.host)

    def __repr__(self) -> str:
        return f"<{type(self).__name__} {self.checkpoint_id} step={self.info.step} on {self.host}>"


async def listed(link: HostLink, config: Config) -> list[AsyncCheckpoint]:
    """The checkpoints of one host.

    Raises:
        OSGymError: it cannot be reached, or is no host of this version.
    """
    answer = await link.call("GET", "/v1/checkpoints", timeout_s=config.timeouts.control_s)
    try:
        found = CheckpointList.from_dict(answer.json())
    except WireFormatError as exc:
        raise ProtocolError(str(exc), host=link.url) from exc
    return [AsyncCheckpoint(info, link, config) for info in found.checkpoints]


async def sent(link: HostLink, config: Config, path: Path, timeout_s: float) -> AsyncCheckpoint:
    """Sends a file to a host and gives what became of it.

    Raises:
        ConfigError: the file cannot be read.
        OSGymError: the host refused it, or the connection broke.
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
    try:
        return AsyncCheckpoint(CheckpointInfo.from_dict(answer.json()), link, config)
    except WireFormatError as exc:
        raise ProtocolError(str(exc), host=link.url) from exc
