"""The host agent's side of the proxy: starts its process, also again, and gives it replicas' sockets."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import signal
import socket
import subprocess
import sys
from typing import Any

from osgym_host.runtimes.base import Egress, RuntimeFault, RuntimeUnsupported
from osgym_host.runtimes.local import protocol
from osgym_host.runtimes.web.inside import Given, given
from osgym_host.runtimes.web.options import ProxyOptions, WebMode

_log = logging.getLogger(__name__)

_START_S = 60.0
"""Reading a large archive takes its time."""
_ANSWER_S = 10.0
_END_S = 5.0
_RESTART_S = 1.0
_MOST_RESTART_S = 30.0
_BUFFER_BYTES = 1 << 20
_MODULE = "osgym_host.runtimes.web.process"


class ProxyFailed(RuntimeFault):
    """The proxy does not do what it was asked for."""


class ReplicaProxy:
    """The proxy of one instance. When its process dies, another takes over the replicas there are."""

    def __init__(self, options: ProxyOptions) -> None:
        """Nothing runs before `start`."""
        self._options = options
        self._process: subprocess.Popen[bytes] | None = None
        self._control: socket.socket | None = None
        self._doors: dict[str, socket.socket] = {}
        self._waiting: dict[int, asyncio.Future[dict[str, Any]]] = {}
        self._hello: asyncio.Future[dict[str, Any]] | None = None
        self._next_id = 0
        self._restarting: asyncio.Task[None] | None = None
        self._stopped = True
        self.note = ""

    @property
    def egress(self) -> frozenset[Egress]:
        """The policies that replicas may have."""
        if self._options.mode is WebMode.OFF:
            return frozenset({Egress.NONE, self._options.egress})
        return frozenset({self._options.egress})

    def serves(self, egress: Egress) -> bool:
        """Whether a replica with this policy gets a way to the proxy."""
        return egress is not Egress.NONE or self._options.mode is not WebMode.OFF

    def given(self) -> Given:
        """What a replica gets so that its programs use the proxy."""
        authority = self._options.authority
        return given(None if authority is None else authority.certificate)

    @property
    def pid(self) -> int:
        """Of the process; 0 while there is none."""
        return 0 if self._process is None else self._process.pid

    async def start(self) -> None:
        """Start the process. Idempotent.

        Raises:
            RuntimeUnsupported: It cannot do what it is to do; the message says why.
            ProxyFailed: It did not start.
        """
        if self._stopped:
            self._stopped = False
            try:
                await self._launch()
            except BaseException:
                self._stopped = True
                raise

    async def stop(self) -> None:
        """End the process and every connection. Idempotent."""
        self._stopped = True
        if self._restarting is not None:
            self._restarting.cancel()
            await asyncio.gather(self._restarting, return_exceptions=True)
            self._restarting = None
        for door in self._doors.values():
            door.close()
        self._doors.clear()
        await self._bury()

    async def open(self, key: str, listener: socket.socket) -> None:
        """Serve a replica from now on.

        Args:
            listener: Listens in the replica's network; ours from now on.

        Raises:
            ProxyFailed: The proxy does not; the replica is as it was.
        """
        self._doors[key] = listener
        if self._control is None and not self._stopped:
            return  # it starts anew, and gets all there are
        try:
            await self._request({"op": "open", "key": key}, [listener.fileno()])
        except ProxyFailed:
            self._doors.pop(key).close()
            raise

    async def close(self, key: str) -> None:
        """End every connection of a replica; where that cannot be had, of all. Idempotent."""
        listener = self._doors.pop(key, None)
        if listener is None:
            return
        listener.close()
        if self._control is None:
            return
        try:
            await self._request({"op": "close", "key": key})
        except ProxyFailed as exc:
            _log.error("the proxy is ended, since it keeps connections of a replica that is gone: %s", exc)
            if self._process is not None:
                self._process.kill()

    async def connections(self) -> dict[str, int]:
        """Return how many connections each replica has.

        Raises:
            ProxyFailed: The proxy does not say.
        """
        answer = await self._request({"op": "stats"})
        found: dict[str, int] = answer["connections"]
        return found

    async def _launch(self) -> None:
        ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        loop = asyncio.get_running_loop()
        with theirs:
            ours.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, _BUFFER_BYTES)
            ours.setblocking(False)
            # A new session: Ctrl-C in a terminal is for the host agent, which then ends this.
            self._process = await asyncio.to_thread(
                subprocess.Popen,
                [sys.executable, "-I", "-m", _MODULE, str(theirs.fileno())],
                stdin=subprocess.PIPE,
                pass_fds=(theirs.fileno(),),
                start_new_session=True,
                env={"PATH": os.environ.get("PATH", os.defpath), "LANG": "C.UTF-8"},
                cwd="/",
            )
        self._control = ours
        self._hello = loop.create_future()
        loop.add_reader(ours.fileno(), self._readable)
        try:
            async with asyncio.timeout(_START_S):
                await asyncio.to_thread(_say, self._process, self._options.to_json().encode())
                hello = await self._hello
        except TimeoutError as exc:
            await self._bury()
            raise ProxyFailed(f"the proxy of replicas did not start within {_START_S:g} s") from exc
        except BaseException:
            await self._bury()
            raise
        if hello["event"] != "serving":
            await self._bury()
            raise RuntimeUnsupported(
                f"the proxy of replicas cannot start: {hello.get('error', 'it ended')}.",
                remedy="See the settings egress, web and web_archive.",
            )
        self.note = hello["note"]
        if self.note:
            _log.info("%s", self.note)

    async def _request(self, fields: dict[str, Any], fds: list[int] | None = None) -> dict[str, Any]:
        control = self._control
        if control is None:
            raise ProxyFailed("the proxy of replicas is not running")
        self._next_id += 1
        number = self._next_id
        future: asyncio.Future[dict[str, Any]] = asyncio.get_running_loop().create_future()
        self._waiting[number] = future
        try:
            async with asyncio.timeout(_ANSWER_S):
                while True:
                    try:
                        protocol.send(control, {"id": number, **fields}, fds or [])
                        break
                    except BlockingIOError:
                        await asyncio.sleep(0.01)  # the deadline is above
                answer = await future
        except (OSError, TimeoutError) as exc:
            raise ProxyFailed(f"the proxy of replicas does not answer: {exc}") from exc
        finally:
            self._waiting.pop(number, None)
        if not answer["ok"]:
            raise ProxyFailed(f"the proxy of replicas: {answer['error']}")
        return answer

    def _readable(self) -> None:
        while self._control is not None:
            try:
                received = protocol.receive(self._control)
            except BlockingIOError:
                return
            except OSError:
                received = None
            if received is None:
                self._lost()
                return
            message = received[0]
            future = self._waiting.get(message["id"]) if "id" in message else self._hello
            if future is not None and not future.done():
                future.set_result(message)

    def _lost(self) -> None:
        self._let_go()
        if self._hello is not None and not self._hello.done():
            self._hello.set_result({"event": "lost"})
        elif not self._stopped and (self._restarting is None or self._restarting.done()):
            _log.error("the proxy of replicas ended and is started again")
            self._restarting = asyncio.get_running_loop().create_task(self._restart())

    async def _restart(self) -> None:
        wait_s = _RESTART_S
        while True:
            await self._bury()
            await asyncio.sleep(wait_s)
            try:
                await self._launch()
                for key, listener in tuple(self._doors.items()):
                    await self._request({"op": "open", "key": key}, [listener.fileno()])
                return
            except (RuntimeFault, OSError) as exc:
                wait_s = min(2 * wait_s, _MOST_RESTART_S)
                _log.error("the proxy of replicas does not start, again in %g s: %s", wait_s, exc)

    def _let_go(self) -> None:
        """Close our end, which is the request to end."""
        if self._control is not None:
            asyncio.get_running_loop().remove_reader(self._control.fileno())
            self._control.close()
            self._control = None
        for future in self._waiting.values():
            if not future.done():
                future.set_exception(ProxyFailed("the proxy of replicas is gone"))

    async def _bury(self) -> None:
        self._let_go()
        process, self._process = self._process, None
        if process is not None:
            await asyncio.shield(asyncio.to_thread(_wait, process))


def _say(process: subprocess.Popen[bytes], text: bytes) -> None:
    assert process.stdin is not None
    with contextlib.suppress(BrokenPipeError), process.stdin as pipe:
        pipe.write(text)


def _wait(process: subprocess.Popen[bytes]) -> None:
    if process.stdin is not None:
        with contextlib.suppress(OSError):
            process.stdin.close()
    try:
        process.wait(_END_S)
    except subprocess.TimeoutExpired:
        process.send_signal(signal.SIGKILL)
        process.wait()
