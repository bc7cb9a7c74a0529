"""Sources of Google Cloud's notices: preemption and maintenance, from the metadata of Compute Engine."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence

from osgym_host.notices.sources import REQUEST_S, MetadataService, NoticeSource, SourceFailed, shown
from osgym_protocol.host_api import Notice

PREEMPTED_S = 30.0
"""Time from a preemption notice to the end (Compute Engine, "Spot VMs", preemption process)."""
MAINTENANCE_S = 60.0
"""Time from a maintenance notice (Compute Engine, "Query … maintenance event notices")."""


def sources(url: str) -> Sequence[NoticeSource]:
    """Return the sources of a Compute Engine instance.

    Args:
        url: Address of the metadata service.
    """
    return (
        GcpValue(url, "preempted", preempted, PREEMPTED_S),
        GcpValue(url, "maintenance-event", maintenance, MAINTENANCE_S),
    )


class GcpValue(NoticeSource):
    """One value of the Compute Engine metadata that announces an end, watched for changes.

    Compute Engine, "Query VM metadata": `wait_for_change`, `timeout_sec`, `last_etag`; 0 answers at once.
    """

    pause_s = 0.5
    """Pause between requests, for a service that answers at once instead of waiting."""
    WAIT_S = 60
    limit_s = WAIT_S + 2 * REQUEST_S

    def __init__(self, url: str, value: str, kind_of: Callable[[str], str | None], lasts_s: float) -> None:
        """Prepare; `lasts_s` is the time that the machine lives on after such a notice."""
        self.name = f"gcp {value}"
        self._metadata = MetadataService(url)
        self._path = f"/computeMetadata/v1/instance/{value}?wait_for_change=true&timeout_sec={self.WAIT_S}"
        self._kind_of = kind_of
        self._lasts_s = lasts_s
        self._etag = "0"
        self._notice: Notice | None = None

    async def aclose(self) -> None:
        await self._metadata.aclose()

    async def poll(self) -> Notice | None:
        """Wait until the value changes, or the time is up; return the notice that holds then."""
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


def preempted(text: str) -> str | None:
    """Parse `instance/preempted` of the Compute Engine metadata: the kind of notice, None for none.

    Raises:
        SourceFailed: It is neither TRUE nor FALSE.
    """
    match text.strip():
        case "TRUE":
            return "preempted"
        case "FALSE":
            return None
        case other:
            raise SourceFailed(f"not a preemption state: {shown(other)}")


def maintenance(text: str) -> str | None:
    """Parse `instance/maintenance-event`: the kind of notice; None for none, and for a live migration.

    Raises:
        SourceFailed: The text is not of this form.
    """
    match text.strip():
        case "TERMINATE_ON_HOST_MAINTENANCE":
            return "maintenance"
        case "NONE" | "MIGRATE_ON_HOST_MAINTENANCE":
            return None
        case other:
            raise SourceFailed(f"not a maintenance event: {shown(other)}")
