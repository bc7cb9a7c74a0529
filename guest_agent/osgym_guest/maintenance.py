"""Endpoints that prepare a virtual machine for freezing, with permissions that its desktop lacks."""

from __future__ import annotations

from osgym_guest.http import HttpError, Request, Response, Router
from osgym_guest.osworld.starter import MAINTENANCE_S, SessionStarter
from osgym_protocol.codes import GuestErrorCode

SLACK_S = 5.0


class Maintenance:
    """Endpoints under /v1/maintenance.

    Args:
        starter: Connection to `osgym-session`, which has the permissions.
    """

    def __init__(self, starter: SessionStarter) -> None:
        self._starter = starter

    def register(self, router: Router) -> None:
        deadline_s = MAINTENANCE_S + SLACK_S
        router.add("POST", "/v1/maintenance/free_caches", self.free_caches, deadline_s=deadline_s)
        router.add("POST", "/v1/maintenance/trim_disk", self.trim_disk, deadline_s=deadline_s)

    async def free_caches(self, request: Request) -> Response:
        """Make the kernel drop its page cache."""
        try:
            await self._starter.free_caches()
        except OSError as exc:
            raise HttpError(503, GuestErrorCode.GUEST_FAILED, f"caches: {exc}") from exc
        return Response.json({"status": "ok"})

    async def trim_disk(self, request: Request) -> Response:
        """Discard the unused blocks of the disk and return their size in MiB."""
        try:
            trimmed_mib = await self._starter.trim_disk()
        except OSError as exc:
            raise HttpError(503, GuestErrorCode.GUEST_FAILED, f"disk: {exc}") from exc
        return Response.json({"status": "ok", "trimmed_mib": trimmed_mib})
