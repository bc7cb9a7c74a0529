"""Files that tasks name by URL: fetched by the host once, checked, kept in a cache."""

from __future__ import annotations

import asyncio
import contextlib
import os
import re
import socket
import tempfile
import uuid
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import assert_never
from urllib.parse import unquote, urljoin

import httpx

from osgym_host.core.disk_pressure import free_bytes
from osgym_host.core.special_addresses import Kind, kind_of
from osgym_host.tasks.errors import DownloadFailed, RefusedByPolicy
from osgym_host.tasks.policy import TaskPolicy, remaining_s
from osgym_host.tasks.urls import InvalidUrl, WebUrl, check_url, parse_web_url, scheme_of

MAX_REDIRECTS = 5
_IDENTITY = {"accept-encoding": "identity"}
_WRITE_BYTES = 1 << 18
_PIECES_AT_ONCE = 32
"""After so many pieces of an answer others get their turn: pieces that are there already cost no wait."""
_FREE_PIECES, _MIN_PIECE_BYTES = 4096, 64
"""An answer of more pieces than that must have so many bytes in each, in the mean."""


def safe_name(name: str) -> str:
    """The last part of a path as a file name that can do no harm; never empty, ``.`` or ``..``."""
    base = re.sub(r"[\x00-\x1f/\\]", "_", name.replace("\\", "/").rstrip("/").rsplit("/", 1)[-1])
    base = base.encode("utf-8", "replace")[:180].decode("utf-8", "ignore")
    return base if base.strip(".") else "file"


def cache_name(url: str, path: str) -> str:
    """OSWorld's name of a cached file: uuid5 of the URL, then the base name it gets in the guest."""
    return f"{uuid.uuid5(uuid.NAMESPACE_URL, url)}_{safe_name(path)}"


def refusal(address: str, *, allow_private: bool) -> str | None:
    """Why the host must not fetch from this address, or None."""
    match kind_of(address):
        case Kind.PUBLIC:
            return None
        case Kind.PRIVATE:
            return None if allow_private else "not a public address, and this host allows only those"
        case Kind.LINK_LOCAL:
            return "link-local and cloud metadata addresses are never fetched from"
        case Kind.NO_MACHINE:
            return "not an address of one machine"
        case _ as never:
            assert_never(never)


@contextlib.contextmanager
def _replacing(target: Path) -> Iterator[int]:
    """A descriptor whose content becomes ``target`` at the end, and nothing when it fails."""
    fd, name = tempfile.mkstemp(prefix=".part-", dir=target.parent)
    part = Path(name)
    try:
        try:
            yield fd
        finally:
            os.close(fd)
        part.replace(target)
    finally:
        part.unlink(missing_ok=True)


class DownloadCache:
    """A folder of downloaded files, shared by all episodes of a host."""

    def __init__(self, folder: Path, policy: TaskPolicy) -> None:
        self.folder = folder
        self._policy = policy
        self._locks: dict[str, asyncio.Lock] = {}

    async def get(self, url: str, path: str, task_id: str, deadline: float) -> Path:
        """The file behind ``url``, from the cache where possible.

        Args:
            path: where the file goes; its base name is part of the name in the cache.
            task_id: safe id of the task; files laid out as OSWorld's own cache are found by it.

        Raises:
            RefusedByPolicy: the URL, its scheme, the address or the size is not allowed.
            DownloadFailed: it could not be fetched.
            DeadlineExceeded: no time left.
        """
        try:
            check_url(url)
        except InvalidUrl as error:
            raise RefusedByPolicy(f"the URL {url[:200]!a} {error}", {"url": ascii(url[:200])}) from error
        if (cached := self.cached(url, path, task_id)) is not None:
            return cached
        scheme = scheme_of(url)
        if scheme == "file":
            return self.local_file(unquote(url.split(":", 1)[1]))
        if scheme not in {"http", "https"}:
            raise RefusedByPolicy(f"only http, https and file URLs are fetched: {url}", {"url": url})
        if not self._policy.allow_downloads:
            raise RefusedByPolicy(
                f"downloads are off on this host and {url} is not in the cache; put the file at "
                f"{self.folder / cache_name(url, path)}",
                {"url": url},
            )
        target = self.folder / cache_name(url, path)
        lock = self._locks.setdefault(target.name, asyncio.Lock())
        try:
            async with lock:
                if not target.is_file():
                    await self._fetch(url, target, deadline)
        finally:
            if not lock.locked():
                self._locks.pop(target.name, None)
        return target

    def cached(self, url: str, path: str, task_id: str) -> Path | None:
        """The file if it is already here, under our own or OSWorld's layout."""
        name = cache_name(url, path)
        for candidate in (
            self.folder / name,
            self.folder / task_id / name,
            self.folder / task_id / safe_name(path),
        ):
            if candidate.is_file():
                return candidate
        return None

    def local_file(self, name: str) -> Path:
        """A file below the task-files folder.

        Raises:
            RefusedByPolicy: there is no such folder, or the name leads out of it.
            DownloadFailed: no such file.
        """
        root = self._policy.task_files_dir
        if root is None:
            raise RefusedByPolicy(
                f"the task wants the host's file {name!r}, and this host has no task-files folder",
                {"path": name},
            )
        root = root.resolve()
        try:
            target = (root / name.lstrip("/")).resolve()
            if not target.is_relative_to(root):
                raise RefusedByPolicy(f"{name!r} leads out of the task-files folder", {"path": name})
            if not target.is_file():
                raise DownloadFailed(f"there is no {name!r} in the task-files folder", {"path": name})
            if target.stat().st_size > self._policy.max_file_bytes:
                raise RefusedByPolicy(f"{name!r} is larger than this host allows", {"path": name})
        except (OSError, ValueError, RuntimeError) as error:  # too long, a NUL, a circle of links
            raise RefusedByPolicy(f"{name[:200]!a} is not a path: {error}", {"path": name[:200]}) from error
        return target

    async def _fetch(self, url: str, target: Path, deadline: float) -> None:
        timeout_s = min(self._policy.download_timeout_s, remaining_s(deadline, f"downloading {url}"))
        self.folder.mkdir(parents=True, exist_ok=True)
        try:
            with _replacing(target) as fd:
                async with (
                    asyncio.timeout(timeout_s),
                    httpx.AsyncClient(trust_env=False, timeout=30) as client,
                ):
                    await self._follow(client, url, fd)
        except TimeoutError as error:
            raise DownloadFailed(f"{url} did not arrive in {timeout_s:.0f} s", {"url": url}) from error
        except (httpx.HTTPError, httpx.InvalidURL, OSError, ValueError) as error:
            raise DownloadFailed(f"{url} could not be fetched: {error!r}", {"url": url}) from error

    async def _follow(self, client: httpx.AsyncClient, url: str, fd: int) -> None:
        current = url
        for _ in range(MAX_REDIRECTS + 1):
            request = await self._request(client, current)
            response = await client.send(request, stream=True)
            try:
                if response.is_redirect:
                    current = urljoin(current, response.headers.get("location", ""))
                    continue
                if response.status_code != 200:
                    raise DownloadFailed(
                        f"{current} answered {response.status_code}",
                        {"url": url, "status": response.status_code},
                    )
                await self._save(response, url, fd)
                return
            finally:
                await response.aclose()
        raise DownloadFailed(f"{url} redirects more than {MAX_REDIRECTS} times", {"url": url})

    async def _save(self, response: httpx.Response, url: str, fd: int) -> None:
        """Write the bytes as they come: an encoding would be undone here, where it could be a bomb."""
        encoding = response.headers.get("content-encoding", "").strip().lower()
        if encoding not in {"", "identity"}:
            raise DownloadFailed(
                f"{url} is sent with the content encoding {encoding[:60]!a}, and this host takes files as "
                "they are; let the server answer `Accept-Encoding: identity`",
                {"url": url, "content_encoding": encoding[:60]},
            )
        limit = self._policy.max_file_bytes
        length = response.headers.get("content-length", "")
        if length.isascii() and length.isdigit() and int(length[:20]) > limit:
            raise _too_large(url, limit)
        kept, size = bytearray(), 0
        async for piece in _in_turns(response, url):
            size += len(piece)
            if size > limit:
                raise _too_large(url, limit)
            kept += piece
            if len(kept) >= _WRITE_BYTES:
                await asyncio.to_thread(self._write, fd, bytes(kept), url)
                kept.clear()
        await asyncio.to_thread(self._write, fd, bytes(kept), url)

    def _write(self, fd: int, data: bytes, url: str) -> None:
        """Write all of it where the disk has room: what tasks download may not cost others their replicas."""
        disk = os.fstatvfs(fd)
        free = free_bytes(disk.f_bavail, disk.f_frsize, disk.f_files, disk.f_favail)
        if free - len(data) < self._policy.disk_reserve_bytes:
            raise DownloadFailed(
                f"{url} was not downloaded: the host's disk is nearly full; make room there, or lower "
                "disk_reserve_mib",
                {"url": url},
            )
        view = memoryview(data)
        while view:
            view = view[os.write(fd, view) :]

    async def _request(self, client: httpx.AsyncClient, url: str) -> httpx.Request:
        """A request to the address that was checked, so a second look-up cannot change it."""
        try:
            parsed = parse_web_url(url)
        except InvalidUrl as error:
            raise RefusedByPolicy(f"{url[:200]!a}: {error}", {"url": ascii(url[:200])}) from error
        address = await self._resolve(parsed, url)
        return client.build_request(
            "GET",
            parsed.at(address),
            headers={"host": parsed.host_header, **_IDENTITY},
            extensions={"sni_hostname": parsed.host} if parsed.parts.scheme == "https" else {},
        )

    async def _resolve(self, parsed: WebUrl, url: str) -> str:
        loop = asyncio.get_running_loop()
        infos = await loop.getaddrinfo(parsed.host, parsed.port, type=socket.SOCK_STREAM)
        addresses = [str(info[4][0]) for info in infos]
        for address in addresses:
            why = refusal(address, allow_private=self._policy.allow_private_addresses)
            if why is not None:
                raise RefusedByPolicy(f"{url} is at {address}: {why}", {"url": url, "address": address})
        if not addresses:
            raise DownloadFailed(f"{parsed.host} has no address", {"url": url})
        return addresses[0]


async def _in_turns(response: httpx.Response, url: str) -> AsyncIterator[bytes]:
    """Yield the pieces of an answer; however small they are, other work of the loop is not held up.

    Raises:
        DownloadFailed: They are so many and so small that reading them is an attack.
    """
    size = 0
    number = 0
    async for piece in response.aiter_raw():
        number, size = number + 1, size + len(piece)
        if number > _FREE_PIECES and size < number * _MIN_PIECE_BYTES:
            raise DownloadFailed(f"{url} is sent in pieces of a few bytes", {"url": url})
        if number % _PIECES_AT_ONCE == 0:
            await asyncio.sleep(0)
        yield piece


def _too_large(url: str, limit: int) -> RefusedByPolicy:
    return RefusedByPolicy(f"{url} is larger than {limit} bytes", {"url": url})
