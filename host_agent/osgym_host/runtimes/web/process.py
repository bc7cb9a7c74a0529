"""The process of the proxy: takes replicas' sockets from the host agent and serves them until that is gone.

Run as `python -I -m osgym_host.runtimes.web.process CONTROL_FD`, with the options as JSON on stdin. Started
by root it is nobody by the time that it serves: what it reads was written by guests and by sites.

CONTROL_FD takes and gives `packets`. Requests: `{"id", "op": "open", "key"}` with a listening socket as
descriptor, `{"id", "op": "close", "key"}`, which is answered when every connection of that replica has ended,
`{"id", "op": "stats"}`. Answers: `{"id", "ok", …}`. Unasked, once: `{"event": "serving", "note"}` or
`{"event": "failed", "error"}`.
"""

from __future__ import annotations

import asyncio
import contextlib
import ctypes
import encodings.idna  # noqa: F401  # what looks names up imports it when no file can be opened any more
import logging
import os
import resource
import socket
import ssl
import sys
from typing import Any

from osgym_host.runtimes import packets
from osgym_host.runtimes.egress.resolver import NameLookup
from osgym_host.runtimes.local import syscalls
from osgym_host.runtimes.web.dial import Dialler
from osgym_host.runtimes.web.filtering import Filtering
from osgym_host.runtimes.web.judge import Judge
from osgym_host.runtimes.web.listener import ConnectionBudget, Handler, ProxyListener
from osgym_host.runtimes.web.options import ProxyOptions, WebMode

_NOBODY = 65534
_OWN_IDS, _OWN_COUNT = 1_900_000_000, 4_194_304
"""User ids that systemd's list of ranges leaves unused, one for each process id."""
_PR_SET_NO_NEW_PRIVS, _PR_SET_DUMPABLE = 38, 4
_LOOKUPS = 32
"""Number of simultaneous name look-ups of all replicas, so that one alone cannot hold up the others."""
_SPARE_FILES = 128
_LEAST_MEMORY_BYTES = 4 << 30
"""Least address space of the process: an archive of 512 MiB with an entry of 128 MiB takes some 1.5 GiB, and
each thread 8 MiB."""


class Service:
    """Listeners by key, and the requests of the host agent."""

    def __init__(self, control: socket.socket, handler: Handler, budget: ConnectionBudget) -> None:
        self._control = control
        self._handler = handler
        self._budget = budget
        self._listeners: dict[str, ProxyListener] = {}
        self._loop = asyncio.get_running_loop()
        self._tasks: set[asyncio.Task[None]] = set()
        self.ended: asyncio.Future[None] = self._loop.create_future()

    def start(self, note: str) -> None:
        """Begin to read the host agent's requests."""
        self._loop.add_reader(self._control.fileno(), self._readable)
        self._tell({"event": "serving", "note": note})

    async def close(self) -> None:
        """End every connection."""
        for listener in tuple(self._listeners.values()):
            await listener.close()

    def _readable(self) -> None:
        found, open_still = packets.receive_all(self._control)
        for message, fds in found:
            task = self._loop.create_task(self._do(message, fds))
            self._tasks.add(task)
            task.add_done_callback(self._tasks.discard)
        if not open_still:
            self._loop.remove_reader(self._control.fileno())
            self.ended.set_result(None)

    async def _do(self, message: dict[str, Any], fds: list[int]) -> None:
        answer: dict[str, Any] = {"id": message["id"], "ok": True}
        try:
            match message["op"]:
                case "open" if message["key"] not in self._listeners:
                    await self._open(message["key"], socket.socket(fileno=fds.pop()))
                case "close":
                    listener = self._listeners.pop(message["key"], None)
                    if listener is not None:
                        await listener.close()
                case "stats":
                    answer["connections"] = {
                        key: listener.connections for key, listener in self._listeners.items()
                    }
        except OSError as exc:
            answer = {"id": message["id"], "ok": False, "error": str(exc)}
        finally:
            for fd in fds:
                os.close(fd)
        self._tell(answer)

    async def _open(self, key: str, sock: socket.socket) -> None:
        sock.setblocking(False)
        # Known before it is open, so that a request to close it, which may come meanwhile, finds it.
        listener = self._listeners[key] = ProxyListener(self._handler, self._budget)
        try:
            await listener.open(sock)
        except OSError:
            self._listeners.pop(key, None)
            raise

    def _tell(self, message: dict[str, Any]) -> None:
        # When the host agent is gone, the end of the connection says so.
        with contextlib.suppress(ConnectionError, BlockingIOError):
            packets.send(self._control, message)


def become_nobody() -> None:
    """Give up root's rights for good, for a user id that nothing else has. Does nothing for others.

    Raises:
        OSError: The kernel refused.
    """
    libc = ctypes.CDLL(None, use_errno=True)
    libc.prctl(_PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0)
    if os.geteuid() != 0:
        return
    os.setgroups([])
    for number in (_OWN_IDS + os.getpid() % _OWN_COUNT, _NOBODY):
        try:
            os.setresgid(number, number, number)
            os.setresuid(number, number, number)
        except OSError:
            if number == _NOBODY:
                raise
            continue  # in a user namespace that has fewer ids
        break
    # Else its own files in /proc would be root's, among them those that certificates are read from.
    libc.prctl(_PR_SET_DUMPABLE, 1, 0, 0, 0)


def _many_files() -> ConnectionBudget:
    """Raise the bound on open files to its maximum; a connection uses two."""
    hard = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    return ConnectionBudget(max(16, (hard - _SPARE_FILES) // 2))


def bound_memory() -> None:
    """Limit the address space of this process to a quarter of the machine's memory, but not below 4 GiB.

    The process parses data from guests and sites. At the limit an archive is refused, or a connection ends.
    """
    total = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    bound = max(_LEAST_MEMORY_BYTES, total // 4)
    hard = resource.getrlimit(resource.RLIMIT_AS)[1]
    bound = bound if hard == resource.RLIM_INFINITY else min(bound, hard)
    resource.setrlimit(resource.RLIMIT_AS, (bound, bound))


def make_handler(options: ProxyOptions, world: dict[str, Any]) -> tuple[Handler, str]:
    """Return the handler of connections, and a note for the host agent; drops root's rights.

    Args:
        world: Small internet of a test (`options.TEST_WORLD`).

    Raises:
        OSError, ValueError: The archive cannot be used.
    """
    known = world.get("names")
    look_up = None if known is None else lambda name: known.get(name, [])
    names = NameLookup(look_up, threads=_LOOKUPS)
    places = {key: (value[0], value[1]) for key, value in world.get("places", {}).items()}
    judge = Judge.of(options.egress, options.allowlist, names)
    if options.mode is WebMode.OFF:
        become_nobody()
        return Filtering(judge, Dialler(places)), ""
    try:
        return _sites(options, judge, Dialler(places), world.get("ca"))
    except (OSError, ValueError) as exc:
        raise ValueError(f"the archive {options.archive}: {exc}") from exc
    except MemoryError as exc:
        raise ValueError(f"the archive {options.archive} needs more memory than the proxy may use") from exc


def _sites(options: ProxyOptions, judge: Judge, dialler: Dialler, ca: str | None) -> tuple[Handler, str]:
    """Open the archive with this user's rights and read it as nobody."""
    from osgym_host.runtimes.web import archive, certificates, sites  # what `osgym-host[web]` brings

    assert options.archive is not None and options.authority is not None
    to_record = options.mode is WebMode.RECORD
    signed = certificates.Certificates(options.authority)
    trust = ssl.create_default_context(cafile=ca)
    trust.set_alpn_protocols(["http/1.1"])
    fd = archive.open_archive(options.archive, to_record=to_record)
    kept = archive.Archive(options.archive.parent)
    become_nobody()
    source: sites.Source
    if to_record:
        source = sites.Record(kept, archive.Recording(fd, kept), judge, dialler, trust)
    else:
        kept.load(fd)
        os.close(fd)
        source = sites.Replay(kept)
    note = f"web {options.mode}: {len(kept.urls)} answers in {options.archive}"
    return sites.Sites(signed, source), note + (f", {kept.skipped} entries skipped" if kept.skipped else "")


async def _serve(control: socket.socket, text: str) -> None:
    budget = _many_files()
    bound_memory()
    try:
        options, world = ProxyOptions.from_json(text)
        handler, note = make_handler(options, world)
    except (OSError, ValueError) as exc:
        with contextlib.suppress(OSError):
            packets.send(control, {"event": "failed", "error": str(exc)})
        return
    service = Service(control, handler, budget)
    service.start(note)
    await service.ended
    await service.close()


def main(argv: list[str]) -> int:
    """Serve the socket of the given descriptor."""
    logging.basicConfig(level=logging.WARNING, format="osgym-web: %(message)s")
    syscalls.set_process_name("osgym-web")
    control = socket.socket(fileno=int(argv[1]))
    control.set_inheritable(False)
    control.setblocking(False)
    text = sys.stdin.read()
    asyncio.run(_serve(control, text))
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv))
