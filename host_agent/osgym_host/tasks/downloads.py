"""Files that tasks name by URL: fetched by the host once, checked, kept in a cache."""

from __future__ import annotations

import asyncio
import contextlib
import functools
import os
import re
import socket
import ssl
import tempfile
import uuid
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import assert_never
from urllib.parse import unquote, urljoin

import httpcore

from osgym_host.core.disk_pressure import DiskRoom
from osgym_host.core.special_addresses import Kind, kind_of
from osgym_host.tasks.errors import DownloadFailed, RefusedByPolicy
from osgym_host.tasks.policy import TaskPolicy, remaining_s
from osgym_host.tasks.urls import InvalidUrl, WebUrl, check_url, parse_web_url, scheme_of
from osgym_host.tasks.web import WebAnswer, WebClient, WebError, WebRequest

MAX_REDIRECTS = 5
LOOK_UPS_AT_ONCE = 4
_WRITE_BYTES = 1 << 18


def safe_name(name: str) -> str:
    """Return the last part of a path as a safe file name; never empty, ``.`` or ``..``."""
    base = re.sub(r"[\x00-\x1f/\\]", "_", name.replace("\\", "/").rstrip("/").rsplit("/", 1)[-1])
    base = base.encode("utf-8", "replace")[:180].decode("utf-8", "ignore")
    return base if base.strip(".") else "file"


def cache_name(url: str, path: str) -> str:
    """Return OSWorld's name of a cached file: uuid5 of the URL, then its base name in the guest."""
    return f"{uuid.uuid5(uuid.NAMESPACE_URL, url)}_{safe_name(path)}"


def cached_at(folder: Path, url: str, path: str, task_id: str) -> tuple[Path, ...]:
    """Return the places of a file that was fetched before: in OSGym's layout and in OSWorld's."""
    name = cache_name(url, path)
    return folder / name, folder / task_id / name, folder / task_id / safe_name(path)


def refusal(address: str, *, allow_private: bool) -> str | None:
    """Return why the host must not fetch from this address; None if it may."""
    match kind_of(address):
        case Kind.PUBLIC:
            return None
        case Kind.PRIVATE:
            return (
                None
                if allow_private
                else "not a public address, and this host allows only public ones (allow_private_addresses)"
            )
        case Kind.LINK_LOCAL:
            return "files are never fetched from link-local and cloud metadata addresses"
        case Kind.NO_MACHINE:
            return "not the address of a single machine"
        case _ as never:
            assert_never(never)


@contextlib.contextmanager
def _replacing(target: Path) -> Iterator[int]:
    """Yield a descriptor whose content replaces ``target`` at the end, unless the block raises."""
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
        self._tls: ssl.SSLContext | None = None
        self._look_ups = ThreadPoolExecutor(LOOK_UPS_AT_ONCE, thread_name_prefix="look-up")

    async def get(self, url: str, path: str, task_id: str, deadline: float) -> Path:
        """Return the file of ``url``, from the cache where possible.

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
                f"downloads are off on this host (allow_downloads), and {url} is not in the cache; put "
                "the file at "
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
        """Return the cached file, in OSGym's or OSWorld's layout; None if there is none."""
        return next((place for place in cached_at(self.folder, url, path, task_id) if place.is_file()), None)

    def local_file(self, name: str) -> Path:
        """Return a file below the task-files folder.

        Raises:
            RefusedByPolicy: there is no such folder, or the name leads out of it.
            DownloadFailed: no such file.
        """
        root = self._policy.task_files_dir
        if root is None:
            raise RefusedByPolicy(
                f"the task needs the host's file {name!r}, but this host has no folder for such files; "
                "set task_files_dir",
                {"path": name},
            )
        root = root.resolve()
        try:
            target = (root / name.lstrip("/")).resolve()
            if not target.is_relative_to(root):
                raise RefusedByPolicy(f"{name!r} leads out of task_files_dir", {"path": name})
            if not target.is_file():
                raise DownloadFailed(f"there is no {name!r} in task_files_dir", {"path": name})
            if target.stat().st_size > self._policy.max_file_bytes:
                raise RefusedByPolicy(f"{name!r} is larger than this host allows", {"path": name})
        except (OSError, ValueError, RuntimeError) as error:  # too long, a NUL, a circle of links
            raise RefusedByPolicy(f"{name[:200]!a} is not a path: {error}", {"path": name[:200]}) from error
        return target

    async def _fetch(self, url: str, target: Path, deadline: float) -> None:
        timeout_s = min(self._policy.download_timeout_s, remaining_s(deadline, f"downloading {url}"))
        self.folder.mkdir(parents=True, exist_ok=True)
        if self._tls is None:  # reading the certificates takes as long as a step
            self._tls = await asyncio.to_thread(httpcore.default_ssl_context)
        try:
            with _replacing(target) as fd:
                async with asyncio.timeout(timeout_s), WebClient(self._tls) as client:
                    await self._follow(client, url, fd)
        except TimeoutError as error:
            raise DownloadFailed(f"{url} did not arrive within {timeout_s:.0f} s", {"url": url}) from error
        except (WebError, OSError, ValueError) as error:
            raise DownloadFailed(f"{url} could not be fetched: {error}", {"url": url}) from error

    async def _follow(self, client: WebClient, url: str, fd: int) -> None:
        current = url
        for _ in range(MAX_REDIRECTS + 1):
            async with client.get(await self._request(current)) as answer:
                if answer.redirects and "location" in answer.headers:
                    current = urljoin(current, answer.headers["location"])
                    continue
                if answer.status != 200:
                    raise DownloadFailed(
                        f"{current} answered {answer.status}", {"url": url, "status": answer.status}
                    )
                await self._save(answer, url, fd)
                return
        raise DownloadFailed(f"{url} redirects more than {MAX_REDIRECTS} times", {"url": url})

    async def _save(self, answer: WebAnswer, url: str, fd: int) -> None:
        """Write the body as it is sent. An encoded body is refused: decoded, it could be a bomb."""
        encoding = answer.headers.get("content-encoding", "").strip().lower()
        if encoding not in {"", "identity"}:
            raise DownloadFailed(
                f"{url} is sent with the content encoding {encoding[:60]!a}, which this host does not "
                "decode; let the server answer `Accept-Encoding: identity`",
                {"url": url, "content_encoding": encoding[:60]},
            )
        limit = self._policy.max_file_bytes
        length = answer.headers.get("content-length", "")
        if length.isascii() and length.isdigit() and int(length[:20]) > limit:
            raise _too_large(url, limit)
        kept, size = bytearray(), 0
        async with contextlib.aclosing(answer.pieces()) as pieces:
            async for piece in pieces:
                size += len(piece)
                if size > limit:
                    raise _too_large(url, limit)
                kept += piece
                if len(kept) >= _WRITE_BYTES:
                    await asyncio.to_thread(self._write, fd, bytes(kept), url)
                    kept.clear()
        await asyncio.to_thread(self._write, fd, bytes(kept), url)

    def _write(self, fd: int, data: bytes, url: str) -> None:
        """Write all bytes, but stop before the disk is full, which would end replicas of others."""
        free_bytes = DiskRoom.of(os.fstatvfs(fd)).free_mib * (1 << 20)
        if free_bytes - len(data) < self._policy.disk_reserve_bytes:
            raise DownloadFailed(
                f"{url} was not downloaded: the host's disk is nearly full; free disk space there, or lower "
                "disk_reserve_mib",
                {"url": url},
            )
        view = memoryview(data)
        while view:
            view = view[os.write(fd, view) :]

    async def _request(self, url: str) -> WebRequest:
        """Return a request to the address that was checked: a second look-up could give another."""
        try:
            parsed = parse_web_url(url)
        except InvalidUrl as error:
            raise RefusedByPolicy(f"{url[:200]!a}: {error}", {"url": ascii(url[:200])}) from error
        address = await self._resolve(parsed, url)
        return WebRequest(address, parsed.port, parsed.target, parsed.host_header, parsed.tls_name)

    async def _resolve(self, parsed: WebUrl, url: str) -> str:
        """Look a name up in separate threads: a look-up without an answer holds its thread for long."""
        look_up = functools.partial(socket.getaddrinfo, parsed.host, parsed.port, type=socket.SOCK_STREAM)
        infos = await asyncio.get_running_loop().run_in_executor(self._look_ups, look_up)
        addresses = [str(info[4][0]) for info in infos]
        for address in addresses:
            why = refusal(address, allow_private=self._policy.allow_private_addresses)
            if why is not None:
                raise RefusedByPolicy(f"{url} is at {address}: {why}", {"url": url, "address": address})
        if not addresses:
            raise DownloadFailed(f"{parsed.host} has no address", {"url": url})
        return addresses[0]


def _too_large(url: str, limit: int) -> RefusedByPolicy:
    return RefusedByPolicy(f"{url} is larger than {limit} bytes", {"url": url})
