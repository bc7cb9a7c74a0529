"""OSWorld's endpoints of a guest, forwarded to its server or answered from its screen.

A guest that runs OSWorld's own server gets them passed on, bounded in size and time. Of a guest without
any agent only what the screen tells can be answered; the rest is 501 with a code of its own, so that a
task that needs files or commands ends with a reason and not with a score.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from osgym_host.addresses import GuestAddress
from osgym_host.guest_client.errors import GuestAnswerTooLarge, GuestError, GuestProtocolError, GuestTimeout
from osgym_host.guest_client.http import HttpClient
from osgym_protocol.codes import GuestErrorCode
from osgym_qemu.agentless.serve import HttpRequest, RefusedRequest, ServedResponse

MAX_ANSWER_BYTES = 64 << 20
MAX_SCREENSHOT_BYTES = 32 << 20
"""Largest screenshot: noise of 4K as PNG has 26 MB."""
PLAIN_TIMEOUT_S = 30.0


@dataclass(frozen=True, slots=True)
class ForwardedEndpoint:
    """Endpoint of OSWorld's server.

    Attributes:
        timeout_s: Deadline, a little longer than that of OSWorld's server.
    """

    methods: tuple[str, ...]
    timeout_s: float = PLAIN_TIMEOUT_S


ENDPOINTS: dict[str, ForwardedEndpoint] = {
    "/screenshot": ForwardedEndpoint(("GET",)),
    "/terminal": ForwardedEndpoint(("GET",)),
    "/accessibility": ForwardedEndpoint(("GET",), 120),
    "/platform": ForwardedEndpoint(("GET",)),
    "/cursor_position": ForwardedEndpoint(("GET",)),
    "/screen_size": ForwardedEndpoint(("GET", "POST")),
    "/window_size": ForwardedEndpoint(("POST",)),
    "/desktop_path": ForwardedEndpoint(("POST",)),
    "/wallpaper": ForwardedEndpoint(("POST",)),
    "/list_directory": ForwardedEndpoint(("POST",)),
    "/file": ForwardedEndpoint(("POST",), 120),
    "/execute": ForwardedEndpoint(("POST",), 135),
    "/setup/execute": ForwardedEndpoint(("POST",), 135),
    "/execute_with_verification": ForwardedEndpoint(("POST",), 150),
    "/setup/execute_with_verification": ForwardedEndpoint(("POST",), 150),
    "/setup/launch": ForwardedEndpoint(("POST",), 60),
    "/run_python": ForwardedEndpoint(("POST",), 60),
    "/run_bash_script": ForwardedEndpoint(("POST",), 130),
    "/setup/upload": ForwardedEndpoint(("POST",), 120),
    "/setup/change_wallpaper": ForwardedEndpoint(("POST",)),
    "/setup/download_file": ForwardedEndpoint(("POST",), 300),
    "/setup/open_file": ForwardedEndpoint(("POST",), 120),
    "/setup/activate_window": ForwardedEndpoint(("POST",)),
    "/setup/close_window": ForwardedEndpoint(("POST",)),
    "/start_recording": ForwardedEndpoint(("POST",)),
    "/end_recording": ForwardedEndpoint(("POST",), 120),
}
"""Forwarded endpoints by path."""


def endpoint(request: HttpRequest) -> ForwardedEndpoint:
    """Return the endpoint of a request's path.

    Raises:
        RefusedRequest: 404 or 405.
    """
    found = ENDPOINTS.get(request.path)
    if found is None:
        raise RefusedRequest(404, GuestErrorCode.NOT_FOUND, f"unknown path {request.path}")
    if request.method not in found.methods:
        raise RefusedRequest(
            405, GuestErrorCode.METHOD_NOT_ALLOWED, f"{request.path} accepts {found.methods}"
        )
    return found


def not_available(request: HttpRequest) -> RefusedRequest:
    """Return the refusal of an endpoint that this guest lacks."""
    message = f"this guest has no agent: {request.path} is not available, only its screen and input are"
    return RefusedRequest(501, GuestErrorCode.NOT_AVAILABLE, message, {"path": request.path})


class OsworldServer:
    """OSWorld's own server in a guest. Its answers are hostile: bounded here, judged by the caller."""

    def __init__(self, address: GuestAddress, token: str | None = None) -> None:
        self._http = HttpClient(address, token=token)

    async def ready(self, timeout_s: float) -> None:
        """Wait until it answers.

        Raises:
            RefusedRequest: 504 `not_ready` when it does not, or not in time.
        """
        try:
            answer = await self.call("GET", "/platform", timeout_s=timeout_s)
        except RefusedRequest as exc:
            raise RefusedRequest(
                504, GuestErrorCode.NOT_READY, f"the guest's own server: {exc.message}"
            ) from exc
        if answer.status != 200:
            raise RefusedRequest(
                504,
                GuestErrorCode.NOT_READY,
                f"the guest's own server: /platform answered with {answer.status}",
            )

    async def pass_on(self, request: HttpRequest) -> ServedResponse:
        """Forward a request and return the answer.

        Raises:
            RefusedRequest: 502 or 504, no usable answer came.
        """
        known = endpoint(request)
        return await self.call(
            request.method, request.target, request.body, request.content_type, known.timeout_s
        )

    async def call(
        self,
        method: str,
        target: str,
        body: bytes = b"",
        content_type: str = "application/json",
        timeout_s: float = PLAIN_TIMEOUT_S,
        max_body: int | None = None,
    ) -> ServedResponse:
        """Call one of its endpoints.

        Raises:
            RefusedRequest: 502 or 504, no usable answer came.
        """
        try:
            answer = await self._http.request(
                method,
                target,
                body,
                content_type=content_type or "application/json",
                timeout_s=timeout_s,
                max_body=MAX_ANSWER_BYTES if max_body is None else max_body,
            )
        except GuestAnswerTooLarge as exc:
            raise RefusedRequest(502, GuestErrorCode.ANSWER_TOO_LARGE, str(exc)) from exc
        except GuestTimeout as exc:
            raise RefusedRequest(504, GuestErrorCode.DEADLINE, f"the guest's own server: {exc}") from exc
        except (GuestProtocolError, GuestError) as exc:
            raise RefusedRequest(502, GuestErrorCode.GUEST_FAILED, f"the guest's own server: {exc}") from exc
        content = answer.headers.get("content-type", "application/octet-stream")
        safe = content if content.isprintable() and content.isascii() else "application/octet-stream"
        return ServedResponse(answer.status, safe, (answer.body,))

    def close(self) -> None:
        """Close the connections. Idempotent."""
        self._http.close()


def screen_size_answer(size: tuple[int, int]) -> dict[str, Any]:
    """Return an answer in the form of OSWorld's `/screen_size`."""
    return {"width": size[0], "height": size[1]}
