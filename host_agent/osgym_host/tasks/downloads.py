"""Files that tasks name by URL: fetched by the host once, checked, kept in a cache."""

from __future__ import annotations

import asyncio
import contextlib
import ipaddress
import os
import re
import socket
import tempfile
import uuid
from collections.abc import Iterator
from pathlib import Path
from urllib.parse import unquote, urljoin, urlsplit

import httpx

from osgym_host.tasks.errors import DownloadFailed, RefusedByPolicy
from osgym_host.tasks.policy import TaskPolicy, remaining_s

MAX_REDIRECTS = 5
_METADATA = {
    ipaddress.ip_address("168.63.129.16"),
    ipaddress.ip_address("100.100.100.200"),
    ipaddress.ip_address("fd00:ec2::254"),
}
"""Cloud metadata services outside the link-local range; never fetched from, whatever the policy."""


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
    ip = ipaddress.ip_address(address.split("%", 1)[0])
    if isinstance(ip, ipaddress.IPv6Address):
        inner = ip.ipv4_mapped or ip.sixtofour or (ip.teredo[1] if ip.teredo else None)
        if inner is not None:
            return refusal(str(inner), allow_private=allow_private)
        if ip in ipaddress.ip_network("64:ff9b::/96"):
            return refusal(str(ipaddress.IPv4Address(int(ip) & 0xFFFFFFFF)), allow_private=allow_private)
    if ip.is_link_local or ip in _METADATA:
        return "link-local and cloud metadata addresses are never fetched from"
    if ip.is_multicast or ip.is_unspecified or ip.is_reserved:
        return "not an address of one machine"
    if not ip.is_global and not allow_private:
        return "not a public address, and this host allows only those"
    return None


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
            RefusedByPolicy: the scheme, the address or the size is not allowed.
            DownloadFailed: it could not be fetched.
            DeadlineExceeded: no time left.
        """
        if (cached := self.cached(url, path, task_id)) is not None:
            return cached
        scheme = urlsplit(url).scheme.lower()
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
        target = (root / name.lstrip("/")).resolve()
        if not target.is_relative_to(root):
            raise RefusedByPolicy(f"{name!r} leads out of the task-files folder", {"path": name})
        if not target.is_file():
            raise DownloadFailed(f"there is no {name!r} in the task-files folder", {"path": name})
        if target.stat().st_size > self._policy.max_file_bytes:
            raise RefusedByPolicy(f"{name!r} is larger than this host allows", {"path": name})
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
        except (httpx.HTTPError, httpx.InvalidURL, OSError) as error:
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
        size, limit = 0, self._policy.max_file_bytes
        async for chunk in response.aiter_bytes(1 << 18):
            size += len(chunk)
            if size > limit:
                raise RefusedByPolicy(f"{url} is larger than {limit} bytes", {"url": url})
            await asyncio.to_thread(os.write, fd, chunk)

    async def _request(self, client: httpx.AsyncClient, url: str) -> httpx.Request:
        """A request to the address that was checked, so a second look-up cannot change it."""
        parts = urlsplit(url)
        if parts.scheme not in {"http", "https"} or not parts.hostname:
            raise RefusedByPolicy(f"only http and https URLs are fetched: {url}", {"url": url})
        port = parts.port or (443 if parts.scheme == "https" else 80)
        address = await self._resolve(parts.hostname, port, url)
        host = f"[{address}]" if ":" in address else address
        pinned = parts._replace(netloc=f"{host}:{port}", fragment="").geturl()
        name = f"[{parts.hostname}]" if ":" in parts.hostname else parts.hostname
        return client.build_request(
            "GET",
            pinned,
            headers={"host": name if parts.port is None else f"{name}:{port}"},
            extensions={"sni_hostname": parts.hostname} if parts.scheme == "https" else {},
        )

    async def _resolve(self, host: str, port: int, url: str) -> str:
        loop = asyncio.get_running_loop()
        infos = await loop.getaddrinfo(host, port, type=socket.SOCK_STREAM)
        addresses = [str(info[4][0]) for info in infos]
        for address in addresses:
            why = refusal(address, allow_private=self._policy.allow_private_addresses)
            if why is not None:
                raise RefusedByPolicy(f"{url} is at {address}: {why}", {"url": url, "address": address})
        if not addresses:
            raise DownloadFailed(f"{host} has no address", {"url": url})
        return addresses[0]
