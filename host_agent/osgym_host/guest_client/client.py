"""The client of the guest agent: typed calls in, typed results or typed errors out.

What a guest answers is hostile input. Everything is bounded (`osgym_host.guest_client.http`) by what its kind
of answer has reason for, checked for its shape (`osgym_host.guest_client.answers`), and never used as a path,
a length or code.
"""

from __future__ import annotations

import asyncio
import json
import secrets
from collections.abc import Mapping, Sequence
from typing import Any
from urllib.parse import quote, urlencode

from osgym_host.addresses import GuestAddress
from osgym_host.guest_client.answers import (
    MAX_SMALL_JSON_BYTES,
    CommandResult,
    GuestHealth,
    GuestRefused,
    command_result,
    frame,
    health,
    json_object,
    large_json_object,
    refusal,
    text_of,
    typed,
)
from osgym_host.guest_client.body import Body
from osgym_host.guest_client.errors import GuestAnswerTooLarge, GuestProtocolError, GuestTimeout
from osgym_host.guest_client.frame_checks import AskedImage
from osgym_host.guest_client.http import MAX_BODY_BYTES, HttpClient, HttpResponse
from osgym_host.guest_client.reach import ReachCalls
from osgym_protocol.codec import Message
from osgym_protocol.codes import GuestErrorCode, ImageFormat
from osgym_protocol.limits import MAX_BLOB_BYTES, MAX_GUEST_META_BYTES
from osgym_protocol.observation import ObservedFrame
from osgym_protocol.options import ObserveOptions, SettleOptions

DEFAULT_TIMEOUT_S = 10.0
MAX_TEXT_BYTES = 64 * 1024
"""Of what a set-up step says."""
MAX_JSON_BYTES = 16 * 1024 * 1024
"""Of what a command printed, an accessibility tree, a terminal's text: long texts, parsed in pieces. Also of
the names below a folder, which are not parsed here."""
MAX_FRAME_BYTES = MAX_BLOB_BYTES + MAX_GUEST_META_BYTES + 8
SLACK_S = 5.0
"""How much longer than the guest's own deadline the host waits before it calls the guest hung."""


class GuestClient:
    """Calls to the guest agent of one replica. Safe for many tasks of one event loop.

    Every method raises, besides what it names:
        GuestUnreachable: No connection, or it broke (`delivered` says whether it may have acted).
        GuestTimeout: The deadline passed.
        GuestRefused: An error status of the guest.
        GuestProtocolError: The answer makes no sense.
    """

    def __init__(self, address: GuestAddress, *, token: str | None = None) -> None:
        """Nothing is opened before the first call."""
        self._http = HttpClient(address, token=token)
        self.reach = ReachCalls(self._http)

    def close(self) -> None:
        """Close the connections. Idempotent."""
        self._http.close()

    def drop_idle(self) -> None:
        """Close the connections that wait for the next call; it makes a new one."""
        self._http.drop_idle()

    def socket_inodes(self) -> list[int]:
        """Return the inodes of our ends of the connections that wait for the next call."""
        return self._http.socket_inodes()

    def waiting_s(self) -> float:
        """Return how long the oldest call that is under way has waited; 0 when none is."""
        return self._http.waiting_s()

    async def __aenter__(self) -> GuestClient:
        """Return the client itself."""
        return self

    async def __aexit__(self, *exc: object) -> None:
        """Close the connections."""
        self.close()

    # The step protocol -----------------------------------------------------------------------

    async def health(self, *, timeout_s: float = DEFAULT_TIMEOUT_S) -> GuestHealth:
        """Ask how the guest agent is."""
        return health(await self._small("GET", "/v1/health", timeout_s=timeout_s))

    async def ready(self, *, timeout_s: float = 30.0) -> GuestHealth:
        """Wait until the desktop is drawn and quiet.

        The guest's socket queues the call while the guest agent still starts.

        Raises:
            GuestRefused: 504 `not_ready` when it was not within `timeout_s`.
        """
        body = {"timeout_s": timeout_s}
        return health(await self._small("POST", "/v1/ready", body, timeout_s=timeout_s + SLACK_S))

    async def step(
        self,
        seq: int,
        actions: Sequence[Mapping[str, Any]],
        *,
        settle: SettleOptions | Mapping[str, Any] | None = None,
        observe: ObserveOptions | Mapping[str, Any] | None = None,
        timeout_s: float,
    ) -> ObservedFrame:
        """Act, settle, observe. Repeating `seq` gives the stored answer and acts no second time.

        Raises:
            GuestRefused: 409 `bad_sequence`, 400 for what the guest does not accept.
            GuestProtocolError: Also when the answer is for another step.
        """
        body: dict[str, Any] = {"seq": seq, "actions": list(actions)}
        _put(body, "settle", settle)
        _put(body, "observe", observe)
        answer = await self._frame("/v1/step", body, timeout_s)
        if answer.observation.seq != seq:
            raise GuestProtocolError(f"/v1/step: step {seq} was answered as {answer.observation.seq}")
        return answer

    async def observe(
        self,
        observe: ObserveOptions | Mapping[str, Any] | None = None,
        *,
        timeout_s: float = DEFAULT_TIMEOUT_S,
    ) -> ObservedFrame:
        """Take a frame as the screen is now."""
        body: dict[str, Any] = {}
        _put(body, "observe", observe)
        return await self._frame("/v1/observe", body, timeout_s)

    async def final(
        self,
        seq: int,
        *,
        wait_s: float,
        observe: ObserveOptions | Mapping[str, Any] | None = None,
        timeout_s: float | None = None,
    ) -> ObservedFrame:
        """Wait up to `wait_s` until the frame after step `seq` is final; `observation.final` says."""
        body: dict[str, Any] = {"seq": seq, "timeout_ms": round(wait_s * 1000)}
        _put(body, "observe", observe)
        return await self._frame("/v1/final", body, wait_s + SLACK_S if timeout_s is None else timeout_s)

    async def release(self, *, timeout_s: float = DEFAULT_TIMEOUT_S) -> None:
        """Let go of every held key and button."""
        await self._ok("POST", "/v1/release", b"{}", timeout_s=timeout_s, max_body=MAX_TEXT_BYTES)

    async def set_clock(self, start_ns: int, *, frozen: bool, timeout_s: float = 30.0) -> None:
        """Set the desktop's wall clock (nanoseconds since 1970), once; it shows when this returns.

        Raises:
            GuestRefused: 501 `not_available`, or 404, where the guest cannot.
        """
        body = {"start_ns": start_ns, "frozen": frozen}
        await self._small("POST", "/v1/clock", body, timeout_s=timeout_s)

    async def free_caches(self, *, timeout_s: float) -> None:
        """Have the kernel of a virtual machine free what it keeps of files."""
        await self._small("POST", "/v1/maintenance/free_caches", {}, timeout_s=timeout_s)

    async def trim_disk(self, *, timeout_s: float) -> int:
        """Have a virtual machine tell its disk which blocks hold nothing; return how many MiB that are."""
        answer = await self._small("POST", "/v1/maintenance/trim_disk", {}, timeout_s=timeout_s)
        return typed(answer, "trimmed_mib", int)

    # OSWorld's endpoints ---------------------------------------------------------------------

    async def execute(
        self,
        command: str | Sequence[str],
        *,
        shell: bool = False,
        timeout_s: float = 130.0,
        isolated: bool = False,
    ) -> CommandResult:
        """Run a command and wait for it. Any return code is a result, not an error.

        Args:
            isolated: The guest agent runs it as a check's: with the image's programs first, without variables
                that programs load things by, its output where no other process can write.
        """
        body = {
            "command": _plain(command),
            "shell": shell,
            "timeout": _time_inside(timeout_s),
            **({"isolated": True} if isolated else {}),
        }
        return command_result(await self._output("/setup/execute", body, timeout_s=timeout_s))

    async def execute_with_verification(
        self,
        command: str | Sequence[str],
        *,
        shell: bool = False,
        verification: Mapping[str, Any],
        max_wait_s: float = 10.0,
        check_interval_s: float = 1.0,
        timeout_s: float = 130.0,
    ) -> CommandResult:
        """Run a command and wait until what it should bring about is seen.

        Raises:
            GuestRefused: 500 when it was not seen within `max_wait_s`.
        """
        body = {
            "command": _plain(command),
            "shell": shell,
            "verification": dict(verification),
            "max_wait_time": max_wait_s,
            "check_interval": check_interval_s,
        }
        path = "/setup/execute_with_verification"
        return command_result(await self._output(path, body, timeout_s=timeout_s + max_wait_s))

    async def launch(
        self, command: str | Sequence[str], *, shell: bool = False, timeout_s: float = 30.0
    ) -> str:
        """Start a program and do not wait for its end."""
        body = {"command": _plain(command), "shell": shell}
        return await self._text("POST", "/setup/launch", body, timeout_s=timeout_s)

    async def run_bash_script(
        self, script: str, *, run_timeout_s: float = 100.0, working_dir: str | None = None
    ) -> CommandResult:
        """Run a bash script in the guest; its output is merged into `output`."""
        body: dict[str, Any] = {"script": script, "timeout": run_timeout_s}
        if working_dir is not None:
            body["working_dir"] = working_dir
        return command_result(await self._output("/run_bash_script", body, timeout_s=run_timeout_s + SLACK_S))

    async def upload(self, guest_path: str, data: bytes, *, timeout_s: float = 60.0) -> None:
        """Write a file in the guest; folders above it are made."""
        boundary = secrets.token_hex(16)
        head = (
            f'--{boundary}\r\nContent-Disposition: form-data; name="file_path"\r\n\r\n'.encode()
            + guest_path.encode()
            + f'\r\n--{boundary}\r\nContent-Disposition: form-data; name="file_data"; '
            'filename="file"\r\nContent-Type: application/octet-stream\r\n\r\n'.encode()
        )
        body = b"".join((head, data, f"\r\n--{boundary}--\r\n".encode()))
        kind = f"multipart/form-data; boundary={boundary}"
        await self._ok(
            "POST", "/setup/upload", body, content_type=kind, timeout_s=timeout_s, max_body=MAX_TEXT_BYTES
        )

    async def file(
        self, guest_path: str, *, max_bytes: int = MAX_BODY_BYTES, timeout_s: float = 60.0
    ) -> Body:
        """Read a file of the guest, without a copy of it.

        Raises:
            GuestRefused: 404 when it is not there.
            GuestProtocolError: It is larger than `max_bytes`.
        """
        body = urlencode({"file_path": guest_path}).encode()
        kind = "application/x-www-form-urlencoded"
        answer = await self._ok(
            "POST", "/file", body, content_type=kind, timeout_s=timeout_s, max_body=max_bytes
        )
        return answer.body

    async def list_directory(self, guest_path: str, *, timeout_s: float = 30.0) -> Body:
        """Return the tree below a folder as it came: JSON (hostile: parse it where nobody waits).

        `{"directory_tree": …}`, nested `{"type","name","children"}`.
        """
        data = json.dumps({"path": guest_path}).encode()
        return (await self._bounded("POST", "/list_directory", data, timeout_s, MAX_JSON_BYTES)).body

    async def open_file(self, guest_path: str, *, timeout_s: float = 60.0) -> str:
        """Open a file in its application and wait for the window."""
        body = {"path": guest_path, "timeout": _time_inside(timeout_s)}
        return await self._text("POST", "/setup/open_file", body, timeout_s=timeout_s)

    async def activate_window(
        self, window_name: str, *, strict: bool = False, by_class: bool = False, timeout_s: float = 30.0
    ) -> str:
        """Bring a window to the front; also succeeds when none matched."""
        body = {"window_name": window_name, "strict": strict, "by_class": by_class}
        return await self._text("POST", "/setup/activate_window", body, timeout_s=timeout_s)

    async def close_window(
        self, window_name: str, *, strict: bool = False, by_class: bool = False, timeout_s: float = 30.0
    ) -> str:
        """Close a window; also succeeds when none matched."""
        body = {"window_name": window_name, "strict": strict, "by_class": by_class}
        return await self._text("POST", "/setup/close_window", body, timeout_s=timeout_s)

    async def wallpaper(self, *, max_bytes: int = MAX_BODY_BYTES, timeout_s: float = 60.0) -> Body:
        """Read the picture behind the desktop.

        Raises:
            GuestRefused: 404 when there is none.
            GuestProtocolError: It is larger than `max_bytes`.
        """
        answer = await self._ok("POST", "/wallpaper", b"", timeout_s=timeout_s, max_body=max_bytes)
        return answer.body

    async def change_wallpaper(self, guest_path: str, *, timeout_s: float = 30.0) -> str:
        """Set the desktop's wallpaper to an image file of the guest."""
        return await self._text("POST", "/setup/change_wallpaper", {"path": guest_path}, timeout_s=timeout_s)

    async def accessibility(self, *, timeout_s: float = 30.0, deadline_s: float | None = None) -> str:
        """Return the accessibility tree as XML (hostile: parse it defused).

        Args:
            timeout_s: Deadline of the whole answer.
            deadline_s: Time that programs have to answer the agent; later ones are left out.
        """
        path = "/accessibility" if deadline_s is None else f"/accessibility?deadline_s={deadline_s:g}"
        tree = (await self._large(path, timeout_s)).get("AT")
        if not isinstance(tree, str):
            raise GuestProtocolError("/accessibility: no tree")
        return tree

    async def terminal(self, *, timeout_s: float = 30.0) -> str | None:
        """Return the text of the focused terminal, None when there is none."""
        output = (await self._large("/terminal", timeout_s)).get("output")
        if output is not None and not isinstance(output, str):
            raise GuestProtocolError("/terminal: output is not text")
        return output

    async def screenshot(self, *, timeout_s: float = DEFAULT_TIMEOUT_S) -> Body:
        """Return the screen as PNG or JPEG, by OSWorld's endpoint."""
        return (await self._ok("GET", "/screenshot", timeout_s=timeout_s)).body

    async def screen_size(self, *, timeout_s: float = DEFAULT_TIMEOUT_S) -> tuple[int, int]:
        """Return width and height in pixels."""
        answer = await self._small("POST", "/screen_size", {}, timeout_s=timeout_s)
        return typed(answer, "width", int), typed(answer, "height", int)

    async def window_size(self, app_class_name: str, *, timeout_s: float = 30.0) -> tuple[int, int]:
        """Return width and height of an application's window.

        Raises:
            GuestRefused: 400 when there is no such window.
        """
        body = urlencode({"app_class_name": app_class_name}).encode()
        kind = "application/x-www-form-urlencoded"
        answer = json_object(
            await self._ok(
                "POST",
                "/window_size",
                body,
                content_type=kind,
                timeout_s=timeout_s,
                max_body=MAX_SMALL_JSON_BYTES,
            )
        )
        return typed(answer, "width", int), typed(answer, "height", int)

    async def get_text(self, path: str, *, timeout_s: float = DEFAULT_TIMEOUT_S) -> str:
        """GET any other endpoint of OSWorld (`/platform`, `/cursor_position`) as text."""
        target = quote(path, safe="/?=&")
        return text_of(await self._ok("GET", target, timeout_s=timeout_s, max_body=MAX_TEXT_BYTES))

    async def post_json(
        self, path: str, body: Mapping[str, Any], *, timeout_s: float = 30.0
    ) -> dict[str, Any]:
        """POST to any other endpoint of OSWorld that answers with a small JSON object."""
        return await self._small("POST", path, body, timeout_s=timeout_s)

    # What all share --------------------------------------------------------------------------

    async def _ok(
        self,
        method: str,
        path: str,
        body: bytes = b"",
        *,
        content_type: str = "application/json",
        timeout_s: float,
        max_body: int = MAX_BODY_BYTES,
    ) -> HttpResponse:
        answer = await self._http.request(
            method, path, body, content_type=content_type, timeout_s=timeout_s, max_body=max_body
        )
        if answer.status >= 300:
            raise refusal(answer)
        return answer

    async def _small(
        self, method: str, path: str, body: Mapping[str, Any] | None = None, *, timeout_s: float
    ) -> dict[str, Any]:
        data = b"" if body is None else json.dumps(body).encode()
        answer = await self._ok(method, path, data, timeout_s=timeout_s, max_body=MAX_SMALL_JSON_BYTES)
        return json_object(answer)

    async def _text(self, method: str, path: str, body: Mapping[str, Any], *, timeout_s: float) -> str:
        data = json.dumps(body).encode()
        return text_of(await self._bounded(method, path, data, timeout_s, MAX_TEXT_BYTES))

    async def _output(self, path: str, body: Mapping[str, Any], *, timeout_s: float) -> dict[str, Any]:
        data = json.dumps(body).encode()
        return await self._parsed("POST", path, data, timeout_s)

    async def _large(self, path: str, timeout_s: float) -> dict[str, Any]:
        return await self._parsed("GET", path, b"", timeout_s)

    async def _parsed(self, method: str, path: str, data: bytes, timeout_s: float) -> dict[str, Any]:
        """Take an answer with a few long texts; reading and parsing have one deadline."""
        try:
            async with asyncio.timeout(timeout_s):
                answer = await self._bounded(method, path, data, timeout_s, MAX_JSON_BYTES)
                return await large_json_object(answer)
        except GuestAnswerTooLarge as exc:
            raise _too_large(exc) from exc
        except TimeoutError as exc:
            message = f"{method} {path}: no answer within {timeout_s:g} s"
            raise GuestTimeout(message, delivered=True, timeout_s=timeout_s) from exc

    async def _bounded(
        self, method: str, path: str, data: bytes, timeout_s: float, max_body: int
    ) -> HttpResponse:
        """Take an answer that a command's output may make endless: too long is no fault of the guest."""
        try:
            return await self._ok(method, path, data, timeout_s=timeout_s, max_body=max_body)
        except GuestAnswerTooLarge as exc:
            raise _too_large(exc) from exc

    async def _frame(self, path: str, body: Mapping[str, Any], timeout_s: float) -> ObservedFrame:
        data = json.dumps(body, ensure_ascii=False).encode()
        answer = await self._ok("POST", path, data, timeout_s=timeout_s, max_body=MAX_FRAME_BYTES)
        return frame(path, answer, _asked(body.get("observe")))


def _plain(command: str | Sequence[str]) -> str | list[str]:
    return command if isinstance(command, str) else list(command)


def _time_inside(timeout_s: float) -> float:
    """What the guest is given of a call's time, so that it can still say what it was waiting for.

    Our guest agent's own field; OSWorld's server ignores it and takes its fixed times.
    """
    return min(max(timeout_s - 2.0, timeout_s * 0.7), 600.0)


def _too_large(error: GuestAnswerTooLarge) -> GuestRefused:
    return GuestRefused(502, GuestErrorCode.ANSWER_TOO_LARGE, str(error), {})


def _asked(observe: Mapping[str, Any] | None) -> AskedImage:
    wanted = observe or {}
    size = wanted.get("size")
    kind = ImageFormat(wanted.get("format", ImageFormat.PNG))
    known = wanted.get("unless_hash")
    return AskedImage(kind, None if size is None else (int(size[0]), int(size[1])), known)


def _put(body: dict[str, Any], name: str, value: Message | Mapping[str, Any] | None) -> None:
    if value is not None:
        body[name] = value.to_dict() if isinstance(value, Message) else dict(value)
