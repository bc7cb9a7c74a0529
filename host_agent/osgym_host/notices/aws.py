"""Source of AWS's notices: the spot interruption notice of EC2, by IMDSv2."""

from __future__ import annotations

import logging
import re
from collections.abc import Sequence
from datetime import datetime

from osgym_host.notices.sources import (
    REQUEST_S,
    MetadataService,
    NoticeSource,
    SourceFailed,
    json_object,
    shown,
)
from osgym_protocol.host_api import Notice

log = logging.getLogger(__name__)

_ACTIONS = ("terminate", "stop", "hibernate")
_TIME = re.compile(r"\d{4}-\d{2}-\d{2}T\d{2}:\d{2}:\d{2}Z", re.ASCII)


def sources(url: str) -> Sequence[NoticeSource]:
    """Return the sources of an EC2 instance.

    Args:
        url: Address of the metadata service.
    """
    return (AwsSpot(url),)


class AwsSpot(NoticeSource):
    """Spot interruption notice of EC2, by IMDSv2.

    EC2 user guide, "Spot Instance interruption notices": 404 while there is none, look every 5 seconds.
    """

    name = "aws"
    pause_s = 5.0
    limit_s = 5 * REQUEST_S
    TOKEN_TTL_S = 21600
    """Longest lifetime that IMDSv2 gives."""

    def __init__(self, url: str) -> None:
        self._metadata = MetadataService(url)
        self._token = ""
        self._recommended: float | None = None

    async def aclose(self) -> None:
        await self._metadata.aclose()

    async def poll(self) -> Notice | None:
        text = await self._get("/latest/meta-data/spot/instance-action")
        notice = None if text is None else instance_action(text)
        if notice is None:
            await self._log_recommendation()
        return notice

    async def _log_recommendation(self) -> None:
        """Log a rebalance recommendation, which is no notice: the host may live on for hours."""
        try:
            text = await self._get("/latest/meta-data/events/recommendations/rebalance")
            at = None if text is None else rebalance_time(text)
        except SourceFailed as error:
            log.debug("rebalance recommendation: %s", error)
            return
        if at is not None and at != self._recommended:
            log.warning("AWS recommends replacing this host, since its risk of interruption is higher")
        self._recommended = at

    async def _get(self, path: str) -> str | None:
        """Return the text of a path, None where there is none; an expired token is replaced."""
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


def instance_action(text: str) -> Notice:
    """Parse `spot/instance-action` of the EC2 metadata: `{"action": "terminate", "time": "…Z"}`.

    Raises:
        SourceFailed: The text is not of this form.
    """
    found = json_object(text)
    action, time = found.get("action"), found.get("time")
    if action not in _ACTIONS or not isinstance(time, str):
        raise SourceFailed(f"not an instance action: {shown(text)}")
    return Notice(action, _unix_time(time))


def rebalance_time(text: str) -> float:
    """Parse `events/recommendations/rebalance`: return the time of the recommendation, in Unix time (s).

    Raises:
        SourceFailed: The text is not of this form.
    """
    time = json_object(text).get("noticeTime")
    if not isinstance(time, str):
        raise SourceFailed(f"not a rebalance recommendation: {shown(text)}")
    return _unix_time(time)


def _unix_time(text: str) -> float:
    try:
        if _TIME.fullmatch(text):
            return datetime.fromisoformat(text).timestamp()
    except ValueError:  # no such day or hour
        pass
    raise SourceFailed(f"not a time: {shown(text)}")
