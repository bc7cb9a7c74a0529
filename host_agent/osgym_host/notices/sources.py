"""Sources of notices: the contract, the metadata service that clouds share, a file.

A cloud's sources are an extension (`osgym.notices`): a function from the address of its metadata service to
sources. Every request has a deadline, follows no redirect, uses no proxy, and takes a bounded answer only.
"""

from __future__ import annotations

import asyncio
import json
import os
import re
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import httpx

from osgym_host.errors import OsgymHostError
from osgym_protocol.host_api import Notice
from osgym_protocol.http_clients import make_async_client
from osgym_protocol.plugins import PluginGroup, load_plugin, plugin_names
from osgym_protocol.proxies import DIRECT

METADATA_URL = "http://169.254.169.254"
"""Link-local address on both clouds; its name on Google Cloud would need a resolver."""
REQUEST_S = 5.0
MOST_BYTES = 4096
"""Size of an answer; real ones have less than 100 bytes."""
FAILING = ".failing"
"""Suffix of the file by which the writer of a notice file reports that it knows nothing at present."""
_KIND = re.compile(r"[a-z][a-z_]{0,31}", re.ASCII)


class SourceFailed(OsgymHostError):
    """A source cannot be asked, or its answer is not understood; the message is short and printable."""


class NoticeSource(ABC):
    """One source of notices.

    Attributes:
        name: Name of the source, constant while the process lives.
        pause_s: Time between two polls.
    """

    name: str
    pause_s: float
    limit_s: float

    @abstractmethod
    async def poll(self) -> Notice | None:
        """Return the notice that holds now; may wait for a change, within `limit_s`.

        Raises:
            SourceFailed: It is unknown.
        """

    async def aclose(self) -> None:
        """Close all connections."""
        return


class MetadataService:
    """Metadata service of a cloud, asked with a deadline for a bounded answer."""

    def __init__(self, url: str) -> None:
        self._http = make_async_client(DIRECT, base_url=url, timeout=REQUEST_S)

    async def aclose(self) -> None:
        await self._http.aclose()

    async def ask(
        self, method: str, path: str, headers: Mapping[str, str], timeout_s: float = REQUEST_S
    ) -> tuple[int, str, str]:
        """Return status, text and ETag of an answer.

        Raises:
            SourceFailed: No answer came in time, or it is too long.
        """
        headers = {"Accept-Encoding": "identity", **headers}
        try:
            async with (
                asyncio.timeout(timeout_s),
                self._http.stream(method, path, headers=headers, timeout=timeout_s) as answer,
            ):
                data = b""
                async for chunk in answer.aiter_raw():
                    data += chunk
                    if len(data) > MOST_BYTES:
                        raise SourceFailed(f"the answer to {path} has more than {MOST_BYTES} bytes")
        except (httpx.HTTPError, httpx.StreamError, TimeoutError) as error:
            raise SourceFailed(f"{type(error).__name__}: {str(error)[:200]}") from error
        text = data.decode("utf-8", errors="replace")
        return answer.status_code, text, answer.headers.get("etag", "")[:200]


class NoticeFile(NoticeSource):
    """File whose existence is the notice, for machines of one's own and for a watcher beside the agent."""

    name = "file"
    pause_s = 1.0
    limit_s = REQUEST_S

    def __init__(self, path: Path) -> None:
        self._path = path

    async def poll(self) -> Notice | None:
        text = await asyncio.to_thread(_read, self._path)
        if text is not None:
            return file_notice(text)
        failing = await asyncio.to_thread(_read, Path(f"{self._path}{FAILING}"))
        if failing is not None:
            raise SourceFailed(f"the writer of {self._path} reports: {shown(failing)}")
        # The watcher's folder goes with the watcher; that it is gone takes no notice back.
        if not await asyncio.to_thread(self._path.parent.is_dir):
            raise SourceFailed(f"the folder of {self._path} does not exist")
        return None


def file_notice(text: str) -> Notice:
    """Parse a file whose existence is the notice: empty, or `{"kind": …, "deadline": Unix time}`.

    Raises:
        SourceFailed: The text is not of this form.
    """
    if not text.strip():
        return Notice("operator")
    found = json_object(text)
    kind, deadline = found.get("kind", "operator"), found.get("deadline")
    if not isinstance(kind, str) or not _KIND.fullmatch(kind) or found.keys() - {"kind", "deadline"}:
        raise SourceFailed(f"not a notice: {shown(text)}")
    if deadline is None:
        return Notice(kind)
    if isinstance(deadline, bool) or not isinstance(deadline, int | float) or not 0 <= deadline < 1e11:
        raise SourceFailed(f"not a deadline: {shown(text)}")
    return Notice(kind, float(deadline))


def json_object(text: str) -> dict[str, Any]:
    try:
        found = json.loads(text)
    except (ValueError, RecursionError):
        found = None
    if not isinstance(found, dict):
        raise SourceFailed(f"not a JSON object: {shown(text)}")
    return found


def shown(text: str) -> str:
    """Return the part of a stranger's text that a log may have."""
    return repr(text[:80])


def _read(path: Path) -> str | None:
    """Return the text of a small regular file, None where there is none."""
    try:
        fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK)
        try:
            data = os.read(fd, MOST_BYTES + 1)
        finally:
            os.close(fd)
    except FileNotFoundError:
        return None
    except OSError as error:
        raise SourceFailed(f"{path} cannot be read: {error.strerror}") from error
    if len(data) > MOST_BYTES:
        raise SourceFailed(f"{path} has more than {MOST_BYTES} bytes")
    return data.decode("utf-8", errors="replace")


def sources_of(setting: str, url: str = METADATA_URL) -> Sequence[NoticeSource]:
    """Return the sources of a setting: `off`, `file:/PATH`, or the name of an extension.

    Raises:
        ValueError: The setting names none of them.
    """
    kind, _, path = setting.partition(":")
    if setting == "off":
        return ()
    if kind == "file" and path.startswith("/"):
        return (NoticeFile(Path(path)),)
    if setting not in plugin_names(PluginGroup.NOTICES):
        raise ValueError(f"one of off, {', '.join(plugin_names(PluginGroup.NOTICES))}, file:/PATH")
    found: Sequence[NoticeSource] = load_plugin(PluginGroup.NOTICES, setting)(url)
    return found
