"""Client of the guest agent: typed calls, typed results and typed errors.

A guest's answer is hostile input. Every answer has a bounded size (`osgym_host.guest_client.http`) and a
checked form (`osgym_host.guest_client.answers`), and is never used as a path, a length or code.
"""

from __future__ import annotations

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
    command_result,
    frame,
    health,
    json_object,
    text_of,
    typed,
)
from osgym_host.guest_client.body import Body
from osgym_host.guest_client.calls import FORM, MAX_JSON_BYTES, MAX_TEXT_BYTES, GuestCalls
from osgym_host.guest_client.errors import GuestProtocolError
from osgym_host.guest_client.frame_checks import AskedImage
from osgym_host.guest_client.http import MAX_BODY_BYTES, HttpClient
from osgym_host.guest_client.reach import ReachCalls
from osgym_host.guest_client.wake_lock import WakeLock
from osgym_protocol.codec import Message
from osgym_protocol.codes import ImageFormat
from osgym_protocol.limits import MAX_BLOB_BYTES, MAX_GUEST_META_BYTES
from osgym_protocol.observation import ObservedFrame
from osgym_protocol.options import ObserveOptions, SettleOptions

DEFAULT_TIMEOUT_S = 10.0
MAX_FRAME_BYTES = MAX_BLOB_BYTES + MAX_GUEST_META_BYTES + 8
SLACK_S = 5.0
"""Grace period after the guest's own deadline before the host treats the guest as hung."""


class GuestClient:
    """Calls to the guest agent of one replica. Safe for many tasks of one event loop.

    Every method raises, besides what it names:
        GuestUnreachable: No connection, or it broke (`delivered` says whether it may have acted).
        GuestTimeout: The deadline passed.
        GuestRefused: An error status of the guest.
        GuestProtocolError: The answer is malformed.
    """

    def __init__(
        self, address: GuestAddress, *, token: str | None = None, wake_lock: WakeLock | None = None
    ) -> None:
        """Args:
        wake_lock: Keeps the replica awake during each call; None: it never sleeps.
        """
        self._http = HttpClient(address, token=token, wake_lock=wake_lock)
        self._calls = GuestCalls(self._http)
        self.reach = ReachCalls(self._http, self._calls)

    def close(self) -> None:
        """Close the connections. Idempotent."""
        self._http.close()

    def drop_idle(self) -> None:
        """Close the idle connections; the next call opens a new one."""
        self._http.drop_idle()

    def socket_inodes(self) -> list[int]:
        """Return the inodes of the host's ends of idle connections."""
        return self._http.socket_inodes()

    def waiting_s(self) -> float:
        """Return the waiting time of the oldest call in flight; 0 without one."""
        return self._http.waiting_s()

    async def __aenter__(self) -> GuestClient:
        return self

    async def __aexit__(self, *exc: object) -> None:
        self.close()

    # The step protocol -----------------------------------------------------------------------

    async def health(self, *, timeout_s: float = DEFAULT_TIMEOUT_S) -> GuestHealth:
        return health(await self._calls.small_json("GET", "/v1/health", timeout_s=timeout_s))

    async def ready(self, *, timeout_s: float = 30.0) -> GuestHealth:
        """Wait until the desktop is drawn and quiet.

        The guest's socket queues the call while the guest agent still starts.

        Raises:
            GuestRefused: 504 `not_ready` when it was not within `timeout_s`.
        """
        body = {"timeout_s": timeout_s}
        return health(await self._calls.small_json("POST", "/v1/ready", body, timeout_s=timeout_s + SLACK_S))

    async def step(
        self,
        seq: int,
        actions: Sequence[Mapping[str, Any]],
        *,
        settle: SettleOptions | Mapping[str, Any] | None = None,
        observe: ObserveOptions | Mapping[str, Any] | None = None,
        expects: str | None = None,
        hold: bool = False,
        timeout_s: float,
    ) -> ObservedFrame:
        """Act, settle, observe. Repeating `seq` gives the stored answer and acts no second time.

        Args:
            hold: Whether all clocks stand still from before the frame on, until `resume_clock`.

        Raises:
            GuestRefused: 409 `bad_sequence`, 400 for what the guest does not accept.
            GuestProtocolError: Also when the answer is for another step.
        """
        body: dict[str, Any] = {"seq": seq, "actions": list(actions)}
        _put(body, "settle", settle)
        _put(body, "observe", observe)
        if expects is not None:
            body["expects"] = expects
        if hold:
            body["hold"] = True
        answer = await self._frame("/v1/step", body, timeout_s)
        if answer.observation.seq != seq:
            raise GuestProtocolError(f"/v1/step: step {seq} was answered as {answer.observation.seq}")
        if answer.observation.screen_changed and (expects is None or answer.observation.results):
            raise GuestProtocolError("/v1/step: actions were refused that expect no frame, or were done")
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
        hold: bool = False,
        timeout_s: float | None = None,
    ) -> ObservedFrame:
        """Wait up to `wait_s` until the frame after step `seq` is final; `observation.final` tells.

        Args:
            hold: As for `step`; the clocks go on if another step has begun meanwhile.
        """
        body: dict[str, Any] = {"seq": seq, "timeout_ms": round(wait_s * 1000)}
        _put(body, "observe", observe)
        if hold:
            body["hold"] = True
        return await self._frame("/v1/final", body, wait_s + SLACK_S if timeout_s is None else timeout_s)

    async def release(self, *, timeout_s: float = DEFAULT_TIMEOUT_S) -> None:
        await self._calls.answer("POST", "/v1/release", b"{}", timeout_s=timeout_s, max_body=MAX_TEXT_BYTES)

    async def hold_clock(self, *, timeout_s: float = DEFAULT_TIMEOUT_S) -> None:
        """Let all clocks of the desktop stand still, until `resume_clock`. Idempotent.

        Raises:
            GuestRefused: 404 or 501 where the image has no such clock.
        """
        await self._calls.small_json("POST", "/v1/clock/hold", {}, timeout_s=timeout_s)

    async def resume_clock(self, charge_s: float | None, *, timeout_s: float = DEFAULT_TIMEOUT_S) -> float:
        """Let the clocks go on, `charge_s` later than they stood; None: by the time that has really passed.

        Returns:
            Seconds of the charge that have not passed yet, since they stood for less.

        Raises:
            GuestRefused: As `hold_clock`.
        """
        body = {"charge_s": charge_s}
        answer = await self._calls.small_json("POST", "/v1/clock/resume", body, timeout_s=timeout_s)
        left_s = typed(answer, "left_s", float)
        return min(max(0.0, left_s), charge_s or 0.0)

    async def set_clock(self, start_ns: int, *, frozen: bool, timeout_s: float = 30.0) -> None:
        """Set the desktop's wall clock (nanoseconds since 1970), once; it shows when this returns.

        Raises:
            GuestRefused: 501 `not_available`, or 404, where the guest cannot.
        """
        body = {"start_ns": start_ns, "frozen": frozen}
        await self._calls.small_json("POST", "/v1/clock", body, timeout_s=timeout_s)

    async def free_caches(self, *, timeout_s: float) -> None:
        """Free the file caches of a virtual machine's kernel."""
        await self._calls.small_json("POST", "/v1/maintenance/free_caches", {}, timeout_s=timeout_s)

    async def trim_disk(self, *, timeout_s: float) -> int:
        """Trim the free blocks of a virtual machine's disk; return their size in MiB."""
        answer = await self._calls.small_json("POST", "/v1/maintenance/trim_disk", {}, timeout_s=timeout_s)
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
        return command_result(await self._calls.output("POST", "/setup/execute", body, timeout_s=timeout_s))

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
        """Run a command and wait until its expected effect is seen.

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
        return command_result(await self._calls.output("POST", path, body, timeout_s=timeout_s + max_wait_s))

    async def launch(
        self, command: str | Sequence[str], *, shell: bool = False, timeout_s: float = 30.0
    ) -> str:
        """Start a program without waiting for its end."""
        body = {"command": _plain(command), "shell": shell}
        return await self._calls.text("/setup/launch", body, timeout_s=timeout_s)

    async def run_bash_script(
        self, script: str, *, run_timeout_s: float = 100.0, working_dir: str | None = None
    ) -> CommandResult:
        """Run a bash script in the guest; its output is merged into `output`."""
        body: dict[str, Any] = {"script": script, "timeout": run_timeout_s}
        if working_dir is not None:
            body["working_dir"] = working_dir
        return command_result(
            await self._calls.output("POST", "/run_bash_script", body, timeout_s=run_timeout_s + SLACK_S)
        )

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
        await self._calls.answer(
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
        answer = await self._calls.answer(
            "POST", "/file", body, content_type=FORM, timeout_s=timeout_s, max_body=max_bytes
        )
        return answer.body

    async def list_directory(self, guest_path: str, *, timeout_s: float = 30.0) -> Body:
        """Return the tree below a folder as unparsed JSON (hostile: parse it where nobody waits).

        `{"directory_tree": …}`, nested `{"type","name","children"}`.
        """
        answer = await self._calls.bounded(
            "/list_directory", {"path": guest_path}, timeout_s=timeout_s, max_body=MAX_JSON_BYTES
        )
        return answer.body

    async def open_file(self, guest_path: str, *, timeout_s: float = 60.0) -> str:
        """Open a file in its application and wait for the window."""
        body = {"path": guest_path, "timeout": _time_inside(timeout_s)}
        return await self._calls.text("/setup/open_file", body, timeout_s=timeout_s)

    async def activate_window(
        self, window_name: str, *, strict: bool = False, by_class: bool = False, timeout_s: float = 30.0
    ) -> str:
        """Bring a window to the front; succeeds without a match too."""
        body = {"window_name": window_name, "strict": strict, "by_class": by_class}
        return await self._calls.text("/setup/activate_window", body, timeout_s=timeout_s)

    async def close_window(
        self, window_name: str, *, strict: bool = False, by_class: bool = False, timeout_s: float = 30.0
    ) -> str:
        """Close a window; succeeds without a match too."""
        body = {"window_name": window_name, "strict": strict, "by_class": by_class}
        return await self._calls.text("/setup/close_window", body, timeout_s=timeout_s)

    async def wallpaper(self, *, max_bytes: int = MAX_BODY_BYTES, timeout_s: float = 60.0) -> Body:
        """Read the picture behind the desktop.

        Raises:
            GuestRefused: 404 when there is none.
            GuestProtocolError: It is larger than `max_bytes`.
        """
        answer = await self._calls.answer("POST", "/wallpaper", b"", timeout_s=timeout_s, max_body=max_bytes)
        return answer.body

    async def change_wallpaper(self, guest_path: str, *, timeout_s: float = 30.0) -> str:
        """Set the desktop's wallpaper to an image file of the guest."""
        return await self._calls.text("/setup/change_wallpaper", {"path": guest_path}, timeout_s=timeout_s)

    async def accessibility(self, *, timeout_s: float = 30.0, deadline_s: float | None = None) -> str:
        """Return the accessibility tree as XML (hostile: parse it defused).

        Args:
            timeout_s: Deadline of the whole answer.
            deadline_s: Time that programs have to answer the agent; later ones are left out.
        """
        path = "/accessibility" if deadline_s is None else f"/accessibility?deadline_s={deadline_s:g}"
        tree = (await self._calls.output("GET", path, timeout_s=timeout_s)).get("AT")
        if not isinstance(tree, str):
            raise GuestProtocolError("/accessibility: the answer has no tree")
        return tree

    async def terminal(self, *, timeout_s: float = 30.0) -> str | None:
        """Return the text of the focused terminal, None when there is none."""
        output = (await self._calls.output("GET", "/terminal", timeout_s=timeout_s)).get("output")
        if output is not None and not isinstance(output, str):
            raise GuestProtocolError("/terminal: the output is not text")
        return output

    async def screenshot(self, *, timeout_s: float = DEFAULT_TIMEOUT_S) -> Body:
        """Return the screen as PNG or JPEG, by OSWorld's endpoint."""
        return (await self._calls.answer("GET", "/screenshot", timeout_s=timeout_s)).body

    async def screen_size(self, *, timeout_s: float = DEFAULT_TIMEOUT_S) -> tuple[int, int]:
        """Return width and height in pixels."""
        answer = await self._calls.small_json("POST", "/screen_size", {}, timeout_s=timeout_s)
        return typed(answer, "width", int), typed(answer, "height", int)

    async def window_size(self, app_class_name: str, *, timeout_s: float = 30.0) -> tuple[int, int]:
        """Return width and height of an application's window.

        Raises:
            GuestRefused: 400 when there is no such window.
        """
        body = urlencode({"app_class_name": app_class_name}).encode()
        answer = json_object(
            await self._calls.answer(
                "POST",
                "/window_size",
                body,
                content_type=FORM,
                timeout_s=timeout_s,
                max_body=MAX_SMALL_JSON_BYTES,
            )
        )
        return typed(answer, "width", int), typed(answer, "height", int)

    async def get_text(self, path: str, *, timeout_s: float = DEFAULT_TIMEOUT_S) -> str:
        """GET any other endpoint of OSWorld (`/platform`, `/cursor_position`) as text."""
        target = quote(path, safe="/?=&")
        return text_of(await self._calls.answer("GET", target, timeout_s=timeout_s, max_body=MAX_TEXT_BYTES))

    async def post_json(
        self, path: str, body: Mapping[str, Any], *, timeout_s: float = 30.0
    ) -> dict[str, Any]:
        """POST to any other endpoint of OSWorld that answers with a small JSON object."""
        return await self._calls.small_json("POST", path, body, timeout_s=timeout_s)

    async def _frame(self, path: str, body: Mapping[str, Any], timeout_s: float) -> ObservedFrame:
        data = json.dumps(body, ensure_ascii=False).encode()
        answer = await self._calls.answer("POST", path, data, timeout_s=timeout_s, max_body=MAX_FRAME_BYTES)
        return frame(path, answer, _asked(body.get("observe")))


def _plain(command: str | Sequence[str]) -> str | list[str]:
    return command if isinstance(command, str) else list(command)


def _time_inside(timeout_s: float) -> float:
    """Return the guest's share of a call's time: it ends early enough to report what it waited for.

    Our guest agent's own field; OSWorld's server ignores it and takes its fixed times.
    """
    return min(max(timeout_s - 2.0, timeout_s * 0.7), 600.0)


def _asked(observe: Mapping[str, Any] | None) -> AskedImage:
    wanted = observe or {}
    size = wanted.get("size")
    kind = ImageFormat(wanted.get("format", ImageFormat.PNG))
    known = wanted.get("unless_hash")
    return AskedImage(kind, None if size is None else (int(size[0]), int(size[1])), known)


def _put(body: dict[str, Any], name: str, value: Message | Mapping[str, Any] | None) -> None:
    if value is not None:
        body[name] = value.to_dict() if isinstance(value, Message) else dict(value)
