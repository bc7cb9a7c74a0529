"""What a guest offers besides screen and input: OSWorld's endpoints, passed on or answered from here.

A guest that runs OSWorld's own server gets them passed on, bounded in size and time. Of a guest without
any agent only what the screen tells can be answered; the rest is 501 with a code of its own, so that a
task that needs files or commands ends with a reason and not with a score.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from osgym_host.guest_http import (
    GuestAnswerTooLarge,
    GuestError,
    GuestProtocolError,
    GuestTimeout,
    HttpClient,
)
from osgym_host.runtimes.base import GuestAddress
from osgym_host.runtimes.qemu.agentless.serve import Answer, Refused, Request

NOT_AVAILABLE = "not_available"
MAX_ANSWER_BYTES = 64 << 20
PLAIN_TIMEOUT_S = 30.0


@dataclass(frozen=True, slots=True)
class Endpoint:
    """One of OSWorld's endpoints.

    Attributes:
        timeout_s: The longest its own server takes, and a little.
    """

    methods: tuple[str, ...]
    timeout_s: float = PLAIN_TIMEOUT_S


ENDPOINTS: dict[str, Endpoint] = {
    "/screenshot": Endpoint(("GET",)),
    "/terminal": Endpoint(("GET",)),
    "/accessibility": Endpoint(("GET",), 120),
    "/platform": Endpoint(("GET",)),
    "/cursor_position": Endpoint(("GET",)),
    "/screen_size": Endpoint(("GET", "POST")),
    "/window_size": Endpoint(("POST",)),
    "/desktop_path": Endpoint(("POST",)),
    "/wallpaper": Endpoint(("POST",)),
    "/list_directory": Endpoint(("POST",)),
    "/file": Endpoint(("POST",), 120),
    "/execute": Endpoint(("POST",), 135),
    "/setup/execute": Endpoint(("POST",), 135),
    "/execute_with_verification": Endpoint(("POST",), 150),
    "/setup/execute_with_verification": Endpoint(("POST",), 150),
    "/setup/launch": Endpoint(("POST",), 60),
    "/run_python": Endpoint(("POST",), 60),
    "/run_bash_script": Endpoint(("POST",), 130),
    "/setup/upload": Endpoint(("POST",), 120),
    "/setup/change_wallpaper": Endpoint(("POST",)),
    "/setup/download_file": Endpoint(("POST",), 300),
    "/setup/open_file": Endpoint(("POST",), 120),
    "/setup/activate_window": Endpoint(("POST",)),
    "/setup/close_window": Endpoint(("POST",)),
    "/start_recording": Endpoint(("POST",)),
    "/end_recording": Endpoint(("POST",), 120),
}
"""Path to what is known of it; nothing else is passed on."""


def endpoint(request: Request) -> Endpoint:
    """Return what is known of a request's path.

    Raises:
        Refused: 404 or 405.
    """
    found = ENDPOINTS.get(request.path)
    if found is None:
        raise Refused(404, "not_found", f"there is no {request.path}")
    if request.method not in found.methods:
        raise Refused(405, "method_not_allowed", f"{request.path} takes {found.methods}")
    return found


def not_available(request: Request) -> Refused:
    """Say that this guest cannot do this."""
    message = f"this guest has no agent: {request.path} is not available, only its screen and input are"
    return Refused(501, NOT_AVAILABLE, message, {"path": request.path})


class OsworldServer:
    """OSWorld's own server in a guest. What it answers is hostile: bounded here, judged by the caller."""

    def __init__(self, address: GuestAddress, token: str | None = None) -> None:
        """Nothing is opened before the first call."""
        self._http = HttpClient(address, token=token)

    async def ready(self, timeout_s: float) -> None:
        """Find out whether it answers.

        Raises:
            Refused: 504 `not_ready` when it does not, or not in time.
        """
        try:
            answer = await self.call("GET", "/platform", timeout_s=timeout_s)
        except Refused as exc:
            raise Refused(504, "not_ready", f"the guest's own server: {exc.message}") from exc
        if answer.status != 200:
            raise Refused(
                504, "not_ready", f"the guest's own server: /platform answered with {answer.status}"
            )

    async def pass_on(self, request: Request) -> Answer:
        """Send a request on and return what was answered.

        Raises:
            Refused: 502 or 504, no usable answer came.
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
    ) -> Answer:
        """Call one of its endpoints.

        Raises:
            Refused: 502 or 504, no usable answer came.
        """
        try:
            answer = await self._http.request(
                method,
                target,
                body,
                content_type=content_type or "application/json",
                timeout_s=timeout_s,
                max_body=MAX_ANSWER_BYTES,
            )
        except GuestAnswerTooLarge as exc:
            raise Refused(502, "answer_too_large", str(exc)) from exc
        except GuestTimeout as exc:
            raise Refused(504, "deadline", f"the guest's own server: {exc}") from exc
        except (GuestProtocolError, GuestError) as exc:
            raise Refused(502, "guest_failed", f"the guest's own server: {exc}") from exc
        content = answer.headers.get("content-type", "application/octet-stream")
        safe = content if content.isprintable() and content.isascii() else "application/octet-stream"
        return Answer(answer.status, safe, (answer.body,))

    def close(self) -> None:
        """Close the connections. Idempotent."""
        self._http.close()


def screen_size_answer(size: tuple[int, int]) -> dict[str, Any]:
    """Answer like OSWorld's `/screen_size`."""
    return {"width": size[0], "height": size[1]}
