"""Where notices come from: AWS, Google Cloud, a file.

Every request has a deadline, follows no redirect, uses no proxy, and takes a bounded answer only.
"""

from __future__ import annotations

import asyncio
import logging
import os
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

import httpx

from osgym_host.notices import parse
from osgym_host.notices.parse import MOST_BYTES, SourceFailed
from osgym_protocol.host_api import Notice
from osgym_protocol.http_clients import make_async_client
from osgym_protocol.proxies import DIRECT

log = logging.getLogger(__name__)

METADATA_URL = "http://169.254.169.254"
"""The same link-local address on both clouds; its name on Google Cloud would need a resolver."""
REQUEST_S = 5.0
FAILING = ".failing"
"""Suffix of the file in which whoever writes a notice file says that it knows nothing at present."""


class NoticeSource(ABC):
    """One place to ask.

    Attributes:
        name: Of the source, the same for as long as the process lives.
        pause_s: Between two looks.
        limit_s: Deadline of one look.
    """

    name: str
    pause_s: float
    limit_s: float

    @abstractmethod
    async def poll(self) -> Notice | None:
        """Say what holds now; may wait for a change, within `limit_s`.

        Raises:
            SourceFailed: It cannot be known.
        """

    async def aclose(self) -> None:
        """Let go of connections."""
        return


class _Metadata:
    """A metadata service."""

    def __init__(self, url: str) -> None:
        self._http = make_async_client(DIRECT, base_url=url, timeout=REQUEST_S)

    async def aclose(self) -> None:
        await self._http.aclose()

    async def ask(
        self, method: str, path: str, headers: Mapping[str, str], timeout_s: float = REQUEST_S
    ) -> tuple[int, str, str]:
        """Status, text and ETag of an answer.

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
                        raise SourceFailed(f"the answer to {path} is over {MOST_BYTES} bytes")
        except (httpx.HTTPError, httpx.StreamError, TimeoutError) as error:
            raise SourceFailed(f"{type(error).__name__}: {str(error)[:200]}") from error
        text = data.decode("utf-8", errors="replace")
        return answer.status_code, text, answer.headers.get("etag", "")[:200]


class AwsSpot(NoticeSource):
    """The spot interruption notice of EC2, by IMDSv2.

    EC2 user guide, "Spot Instance interruption notices": 404 while there is none, look every 5 seconds.
    """

    name = "aws"
    pause_s = 5.0
    limit_s = 5 * REQUEST_S
    TOKEN_TTL_S = 21600
    """The longest that IMDSv2 gives."""

    def __init__(self, url: str) -> None:
        """Ask nothing yet."""
        self._metadata = _Metadata(url)
        self._token = ""
        self._recommended: float | None = None

    async def aclose(self) -> None:
        """Let go of connections."""
        await self._metadata.aclose()

    async def poll(self) -> Notice | None:
        """Say what holds now."""
        text = await self._get("/latest/meta-data/spot/instance-action")
        notice = None if text is None else parse.aws_action(text)
        if notice is None:
            await self._log_recommendation()
        return notice

    async def _log_recommendation(self) -> None:
        """A rebalance recommendation is not a notice: the host may go on for hours."""
        try:
            text = await self._get("/latest/meta-data/events/recommendations/rebalance")
            at = None if text is None else parse.aws_rebalance(text)
        except SourceFailed as error:
            log.debug("rebalance recommendation: %s", error)
            return
        if at is not None and at != self._recommended:
            log.warning("AWS recommends to replace this host: it is at a higher risk of interruption")
        self._recommended = at

    async def _get(self, path: str) -> str | None:
        """The text of a path, None where there is none; a token that ran out is replaced."""
        for _ in range(2):
            if not self._token:
                self._token = await self._new_token()
            status, text, _etag = await self._metadata.ask(
                "GET", path, {"X-aws-ec2-metadata-token": self._token}
            )
            if status == 401:
                self._token = ""
                continue
            if status == 404:
                return None
            if status != 200:
                raise SourceFailed(f"{path}: status {status}")
            return text
        raise SourceFailed(f"{path}: a fresh token was refused")

    async def _new_token(self) -> str:
        headers = {"X-aws-ec2-metadata-token-ttl-seconds": str(self.TOKEN_TTL_S)}
        status, token, _ = await self._metadata.ask("PUT", "/latest/api/token", headers)
        token = token.strip()
        if status != 200 or not token.isascii() or not token.isprintable() or not token:
            raise SourceFailed(f"no metadata token: status {status}")
        return token


class GcpValue(NoticeSource):
    """One value of the Compute Engine metadata that says whether the machine goes, by waiting for changes.

    Compute Engine, "Query VM metadata": `wait_for_change`, `timeout_sec`, `last_etag`; 0 answers at once.
    """

    pause_s = 0.5
    """Against a service that would answer at once for ever; waiting is done by the service."""
    WAIT_S = 60
    limit_s = WAIT_S + 2 * REQUEST_S

    def __init__(self, url: str, value: str, kind_of: Callable[[str], str | None], lasts_s: float) -> None:
        """Ask nothing yet; `lasts_s` is how long the machine lives on after such a notice."""
        self.name = f"gcp {value}"
        self._metadata = _Metadata(url)
        self._path = f"/computeMetadata/v1/instance/{value}?wait_for_change=true&timeout_sec={self.WAIT_S}"
        self._kind_of = kind_of
        self._lasts_s = lasts_s
        self._etag = "0"
        self._notice: Notice | None = None

    async def aclose(self) -> None:
        """Let go of connections."""
        await self._metadata.aclose()

    async def poll(self) -> Notice | None:
        """Wait until the value is another, or the time is up; say what holds then."""
        etag, self._etag = self._etag, "0"
        status, text, new = await self._metadata.ask(
            "GET",
            f"{self._path}&last_etag={etag}",
            {"Metadata-Flavor": "Google"},
            timeout_s=self.WAIT_S + REQUEST_S,
        )
        if status != 200:
            raise SourceFailed(f"{self.name}: status {status}")
        kind = self._kind_of(text)
        self._etag = new if new.isalnum() else "0"
        if kind is None:
            self._notice = None
        elif self._notice is None or self._notice.kind != kind:
            self._notice = Notice(kind, round(time.time() + self._lasts_s, 3))
        return self._notice


class NoticeFile(NoticeSource):
    """A file whose existence is the notice; for machines of one's own, and for a watcher beside us."""

    name = "file"
    pause_s = 1.0
    limit_s = REQUEST_S

    def __init__(self, path: Path) -> None:
        """Read nothing yet."""
        self._path = path

    async def poll(self) -> Notice | None:
        """Say what holds now."""
        text = await asyncio.to_thread(_read, self._path)
        if text is not None:
            return parse.file_notice(text)
        failing = await asyncio.to_thread(_read, Path(f"{self._path}{FAILING}"))
        if failing is not None:
            raise SourceFailed(f"whoever writes {self._path}: {parse.shown(failing)}")
        # The watcher's folder goes with the watcher; that it is gone takes no notice back.
        if not await asyncio.to_thread(self._path.parent.is_dir):
            raise SourceFailed(f"the folder of {self._path} is not there")
        return None


def _read(path: Path) -> str | None:
    """The text of a small regular file, None where there is none."""
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
        raise SourceFailed(f"{path} is over {MOST_BYTES} bytes")
    return data.decode("utf-8", errors="replace")


PREEMPTED_S = 30.0
"""Compute Engine, "Spot VMs", preemption process: the machine is cut off 30 seconds after the notice."""
MAINTENANCE_S = 60.0
"""Compute Engine, "Query the metadata server for maintenance event notices": 60 seconds before."""


def sources_of(setting: str, url: str = METADATA_URL) -> Sequence[NoticeSource]:
    """Return the sources that a setting names: `off`, `aws`, `gcp` or `file:PATH`.

    Raises:
        ValueError: The setting names none of them.
    """
    kind, _, path = setting.partition(":")
    match kind:
        case "off" if not path:
            return ()
        case "aws" if not path:
            return (AwsSpot(url),)
        case "gcp" if not path:
            return (
                GcpValue(url, "preempted", parse.gcp_preempted, PREEMPTED_S),
                GcpValue(url, "maintenance-event", parse.gcp_maintenance, MAINTENANCE_S),
            )
        case "file" if path.startswith("/"):
            return (NoticeFile(Path(path)),)
    raise ValueError("one of off, aws, gcp, file:/PATH")
