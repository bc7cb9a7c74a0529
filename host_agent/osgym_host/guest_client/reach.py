"""Calls below `/v1/reach` of a guest agent, by which a client works in its desktop past the screen."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any, TypeVar
from urllib.parse import urlencode

from osgym_host.guest_client.answers import GuestRefused, json_object
from osgym_host.guest_client.body import Body
from osgym_host.guest_client.calls import GuestCalls
from osgym_host.guest_client.errors import GuestAnswerTooLarge, GuestProtocolError, GuestUnreachable
from osgym_host.guest_client.http import HttpClient, HttpResponse
from osgym_host.guest_client.tunnel import GuestTunnel
from osgym_protocol.codec import Message, WireFormatError
from osgym_protocol.codes import GuestErrorCode
from osgym_protocol.limits import MAX_BLOB_BYTES, MAX_OUTPUT_BYTES, MAX_WINDOWS
from osgym_protocol.reach import CommandResult, WindowsAnswer

M = TypeVar("M", bound=Message)

SLACK_S = 20.0
"""Grace period after a command's own deadline before the host treats the guest as hung."""
TRANSFER_S = 60.0
SHORT_S = 30.0
PROBE_S = 5.0
MAX_RESULT_BYTES = 2 * 6 * MAX_OUTPUT_BYTES + 4096
"""Bound of a result: two outputs with every character escaped."""


class ReachCalls:
    """The calls. Each raises the exceptions of `GuestClient` besides those that it names."""

    def __init__(self, http: HttpClient, calls: GuestCalls) -> None:
        self._http = http
        self._calls = calls

    async def execute(self, order: Mapping[str, Any], timeout_s: float) -> CommandResult:
        """Run a command to its end, once for each `request_id`.

        Raises:
            GuestRefused: `cannot_start`, `no_such_file` (its folder), `answer_lost`, `busy`.
        """
        data = json.dumps(order, ensure_ascii=False).encode()
        path, whole_s = "/v1/reach/execute", timeout_s + SLACK_S
        answer = await self._calls.large_json(
            "POST", path, data, timeout_s=whole_s, max_body=MAX_RESULT_BYTES
        )
        return _message(CommandResult, answer)

    async def read(self, path: str, max_bytes: int) -> Body:
        """Read a file.

        Raises:
            GuestRefused: `no_such_file`, `path_refused`, `too_large`; it changed while it was read.
        """
        try:
            return (
                await self._json("read", {"path": path, "max_bytes": max_bytes}, TRANSFER_S, max_bytes)
            ).body
        except GuestAnswerTooLarge as exc:
            raise GuestRefused(413, GuestErrorCode.TOO_LARGE, "the file grew while it was read", {}) from exc
        except GuestUnreachable as exc:
            if not exc.delivered:
                raise
            # An agent that sends a file which becomes shorter can only hang up; one that is gone is gone.
            await self._calls.answer("GET", "/v1/health", timeout_s=PROBE_S, max_body=4096)
            text = "the file changed while it was read, or could not be read to its end"
            raise GuestRefused(409, GuestErrorCode.PATH_REFUSED, text, {}) from exc

    async def write(self, path: str, data: bytes, mode: str | None) -> None:
        """Write a file whole; folders above it are made.

        Raises:
            GuestRefused: `path_refused`, `no_such_file`.
        """
        query = {"path": path} if mode is None else {"path": path, "mode": mode}
        path = f"/v1/reach/write?{urlencode(query)}"
        await self._calls.answer("POST", path, data, timeout_s=TRANSFER_S, max_body=4096)

    async def windows(self) -> WindowsAnswer:
        answer = _message(WindowsAnswer, json_object(await self._json("windows", {}, SHORT_S)))
        if len(answer.windows) > MAX_WINDOWS:
            raise GuestProtocolError(f"windows: the answer has {len(answer.windows)} windows")
        return answer

    async def start_recording(self, order: Mapping[str, Any]) -> None:
        """Begin a video of the screen.

        Raises:
            GuestRefused: `not_available` without ffmpeg, `busy` while there is another.
        """
        await self._json("record/start", order, SHORT_S)

    async def end_recording(self, recording_id: str) -> Body:
        """End it and return the MP4.

        Raises:
            GuestRefused: `bad_request`: there is none of this id.
        """
        body = {"recording_id": recording_id}
        return (await self._json("record/end", body, TRANSFER_S, MAX_BLOB_BYTES)).body

    async def accessibility(self, timeout_s: float, max_bytes: int) -> str:
        """Return the accessibility tree as XML (hostile), by OSWorld's endpoint.

        Args:
            timeout_s: Deadline of each application.

        Raises:
            GuestRefused: There is no accessibility bus, or it is larger than `max_bytes` by far.
        """
        path, whole_s = f"/accessibility?deadline_s={timeout_s:g}", timeout_s + SLACK_S
        try:
            answer = await self._calls.large_json("GET", path, timeout_s=whole_s, max_body=max_bytes)
        except GuestAnswerTooLarge as exc:
            raise GuestRefused(413, GuestErrorCode.TOO_LARGE, f"the tree is too large: {exc}", {}) from exc
        if not isinstance(tree := answer.get("AT"), str):
            raise GuestProtocolError("accessibility: the answer has no tree")
        return tree

    async def tunnel(self, port: int) -> GuestTunnel:
        """Connect to a port of the guest's loopback; see `GuestTunnel.open`."""
        return await GuestTunnel.open(self._http, port, timeout_s=SHORT_S)

    async def _json(
        self, name: str, body: Mapping[str, Any], timeout_s: float, max_body: int = 32 * 1024
    ) -> HttpResponse:
        data = json.dumps(body, ensure_ascii=False).encode()
        path = f"/v1/reach/{name}"
        return await self._calls.answer("POST", path, data, timeout_s=timeout_s, max_body=max_body)


def _message(kind: type[M], value: Mapping[str, Any]) -> M:
    try:
        return kind.from_dict(value)
    except WireFormatError as exc:
        raise GuestProtocolError(f"{kind.__name__}: {exc}") from exc
