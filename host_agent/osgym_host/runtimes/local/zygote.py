"""Zygote: a small process with one thread that forks one child per replica.

The host agent is large and has threads: forking it would be slow and unsafe. This process starts
once, knows only `protocol`, and answers in the order in which children get ready. When the host
agent goes away, however it does, the zygote kills its replicas and ends. It is the first process of a
PID namespace, so when it is killed, the kernel kills all that it ever made, whatever they did to escape.
Its own numbers of processes mean nothing outside; messages and `/proc` have the host's.

For an ordinary user it first enters a user namespace that holds the user's whole range of
subordinate ids, as root of it; everything after that is the same as for root.

Run as `python -I -m osgym_host.runtimes.local.zygote CONTROL_FD root|user LOCK_FD…`.
"""

from __future__ import annotations

import contextlib
import json
import os
import select
import signal
import socket
import sys
from typing import Any

from osgym_host.runtimes import packets
from osgym_host.runtimes.held_files import held_files
from osgym_host.runtimes.local import agent_check, inside, outer, seccomp, trees
from osgym_host.runtimes.local import syscalls as sc
from osgym_host.runtimes.local.criu import restoring
from osgym_host.runtimes.local.making import Starting, signals_blocked, start_maker


class Zygote:
    """Event loop with children being prepared, replicas and helpers."""

    def __init__(self, control: socket.socket) -> None:
        self._control = control
        self._poller = select.poll()
        self._wake_r, self._wake_w = os.pipe2(os.O_NONBLOCK | os.O_CLOEXEC)
        self._starting: dict[int, Starting] = {}  # by status pipe
        self._replicas: dict[int, str] = {}  # pid → key
        self._helpers: dict[int, tuple[int, int]] = {}  # pid → request id, result pipe
        self._unknown: dict[int, int] = {}  # pid → wait status, of who ended while something is restored
        self._program = seccomp.program(sc.MACHINE)

    def run(self) -> None:
        """Serve until the host agent is gone, then kill every replica and wait for its end."""
        signal.signal(signal.SIGCHLD, lambda *_: None)
        signal.set_wakeup_fd(self._wake_w, warn_on_full_buffer=False)
        for fd in (self._control.fileno(), self._wake_r):
            self._poller.register(fd, select.POLLIN)
        while True:
            for fd, _events in self._poller.poll():
                if fd == self._control.fileno():
                    if not self._serve():
                        self._end()
                        return
                elif fd == self._wake_r:
                    with contextlib.suppress(BlockingIOError):
                        os.read(self._wake_r, 4096)
                    self._reap()
                elif fd in self._starting and self._hear(fd):
                    self._status_closed(fd)

    def _serve(self) -> bool:
        try:
            received = packets.receive(self._control)
        except ConnectionError:
            return False
        if received is None:
            return False
        message, fds = received
        try:
            match message["op"]:
                case "spawn":
                    self._spawn(message, fds)
                case "kill":
                    self._kill(message["key"])
                    self._answer({"id": message["id"], "ok": True})
                case "remove" | "measure" | "identify" | "check":
                    self._help(message, fds)
        except inside.StepFailed as exc:
            self._answer({"id": message["id"], "ok": False, "step": exc.step, "error": exc.reason})
        except OSError as exc:
            self._answer({"id": message["id"], "ok": False, "step": message["op"], "error": str(exc)})
        finally:
            for fd in fds:
                os.close(fd)
        return True

    def _answer(self, message: dict[str, Any], fds: tuple[int, ...] = ()) -> None:
        # When the host agent is gone, the end of the connection says so in the loop.
        with contextlib.suppress(ConnectionError):
            packets.send(self._control, message, fds)

    def _spawn(self, message: dict[str, Any], fds: list[int]) -> None:
        starting = start_maker(message, fds, self._program)
        self._starting[starting.status_r] = starting
        self._poller.register(starting.status_r, select.POLLIN)

    def _hear(self, status_r: int) -> bool:
        """Read from the pipe; return whether it closed, by `execve` or by the end of all holders."""
        starting = self._starting[status_r]
        ended = False
        with contextlib.suppress(BlockingIOError):
            while not ended:
                heard = os.read(status_r, 4096)
                ended = not heard
                starting.told += heard
        line, line_end, rest = starting.told.partition(b"\n")
        number, _, inode = line.partition(b" ")
        if starting.listening == 0 and line_end and number.isdigit():
            starting.pid, starting.listening, starting.told = int(number), int(inode), rest
            if starting.pid:  # CRIU names the first process later
                self._replicas[starting.pid] = starting.key
        return ended

    def _status_closed(self, status_r: int) -> None:
        starting = self._starting[status_r]
        if starting.restored_in and starting.maker and not starting.told:
            self._poller.unregister(status_r)  # CRIU runs; its end says more
            return
        self._started(status_r)

    def _criu_ended(self, status_r: int, status: int) -> None:
        """Answer a request to restore: the first process lives, or has ended already, or none exists."""
        starting = self._starting[status_r]
        dead_status: int | None = None
        if not starting.told and status == 0:
            try:
                starting.pid, dead_status = self._restored(starting.restored_in)
            except (OSError, ValueError) as exc:
                starting.told = f"criu\nthe restore did not name the first process: {exc}".encode()
            if starting.pid and dead_status is None:
                self._replicas[starting.pid] = starting.key
        elif not starting.told:
            why = restoring.error_of(starting.restored_in) or f"wait status {status}"
            starting.told = f"criu\n{why}".encode("utf-8", "replace")
        self._started(status_r, dead_status)
        if not any(other.restored_in for other in self._starting.values()):
            self._unknown.clear()

    def _restored(self, folder: str) -> tuple[int, int | None]:
        """Return the first process that CRIU names, and its status if it has ended already.

        Raises:
            OSError, ValueError: It names none, or one that is not the clone's.
        """
        pid = restoring.first_process(folder)
        if pid in self._unknown:
            return pid, self._unknown.pop(pid)
        for status_r in self._starting:
            self._hear(status_r)
        others = (*self._replicas, *self._helpers, *(starting.maker for starting in self._starting.values()))
        if pid in others:
            raise ValueError(f"{pid} is another process")
        os.waitid(os.P_PID, pid, os.WEXITED | os.WNOHANG | os.WNOWAIT)  # raises for who is no child
        return pid, None

    def _started(self, status_r: int, dead_status: int | None = None) -> None:
        """Answer a spawn request when the session runs, or an error came."""
        starting = self._starting.pop(status_r)
        with contextlib.suppress(KeyError):  # CRIU was waited for
            self._poller.unregister(status_r)
        os.close(status_r)
        try:
            self._tell_started(starting, dead_status)
        finally:
            if starting.network >= 0:
                os.close(starting.network)

    def _tell_started(self, starting: Starting, dead_status: int | None) -> None:
        error = starting.told.decode("utf-8", "replace")
        if not error and dead_status is not None:
            error = f"session\nthe first process ended at once (wait status {dead_status})"
        elif not error and starting.pid == 0:
            error = "session\nthe process that makes it was killed"
        if error:
            if dead_status is None and starting.pid:
                self._discard(starting.pid)
            step, _, text = error.partition("\n")
            self._answer({"id": starting.request, "ok": False, "step": step, "error": text})
            return
        # It was not waited for yet, so the number still names the child, dead or alive.
        pidfd = os.pidfd_open(starting.pid)
        try:
            answer = {
                "pid": outer.pid_in_proc(pidfd),
                "listening": starting.listening,
                "own_devices": starting.own_devices,
            }
            fds = (pidfd,) if starting.network < 0 else (pidfd, starting.network)
            self._answer({"id": starting.request, "ok": True, **answer}, fds)
        finally:
            os.close(pidfd)

    def _discard(self, pid: int) -> None:
        """Kill a child that did not become a session; its failure is the answer to the request."""
        os.kill(pid, signal.SIGKILL)
        os.waitpid(pid, 0)
        self._replicas.pop(pid, None)

    def _kill(self, key: str) -> None:
        makers = ((starting.maker, starting.key) for starting in self._starting.values() if starting.maker)
        for pid, name in (*self._replicas.items(), *makers):
            if name == key:
                os.kill(pid, signal.SIGKILL)

    def _help(self, message: dict[str, Any], fds: list[int]) -> None:
        """Remove or measure trees in a fork, which may take its time."""
        result_r, result_w = os.pipe2(os.O_CLOEXEC)
        with signals_blocked():
            pid = os.fork()
            if pid == 0:
                code, text = 1, "unexpected"
                try:
                    text = _helper_main(message, fds)
                    code = 0
                except OSError as exc:
                    text = str(exc)
                finally:
                    # Also for what nobody expects: this process must not go on as a second zygote.
                    os.write(result_w, text.encode("utf-8", "replace")[:2048])
                    os._exit(code)
        os.close(result_w)
        self._helpers[pid] = (message["id"], result_r)

    def _reap(self) -> None:
        while True:
            try:
                pid, status = os.waitpid(-1, os.WNOHANG)
            except ChildProcessError:
                return
            if pid == 0:
                return
            self._ended(pid, status)

    def _ended(self, pid: int, status: int) -> None:
        helper = self._helpers.pop(pid, None)
        if helper is not None:
            request, result_r = helper
            text = os.read(result_r, 4096).decode("utf-8", "replace")
            os.close(result_r)
            if status == 0:
                self._answer({"id": request, "ok": True, "result": text})
            else:
                text = text or f"the helper ended with wait status {status}"
                self._answer({"id": request, "ok": False, "step": "helper", "error": text})
            return
        for status_r, starting in list(self._starting.items()):
            self._hear(status_r)  # a first process is named before it can end
            if starting.maker == pid:
                starting.maker = 0
                if starting.restored_in:
                    self._criu_ended(status_r, status)
                return
            if starting.pid == pid:
                self._replicas.pop(pid)
                self._started(status_r, status)
                return
        key = self._replicas.pop(pid, None)
        if key is not None:
            self._answer({"event": "exit", "key": key, "status": status})
        elif any(starting.restored_in for starting in self._starting.values()):
            self._unknown[pid] = status

    def _end(self) -> None:
        """Kill every replica; with the first process of a PID namespace the kernel kills all others."""
        makers = (starting.maker for starting in self._starting.values() if starting.maker)
        for pid in (*makers, *self._replicas):
            os.kill(pid, signal.SIGKILL)
        while True:
            try:
                os.waitpid(-1, 0)
            except ChildProcessError:
                return


def _helper_main(message: dict[str, Any], fds: list[int]) -> str:
    if message["op"] == "identify":
        try:
            return json.dumps(agent_check.identify(message["pids"], message["listening"]))
        except (agent_check.NoAgent, agent_check.Tampered, agent_check.TooBusy) as exc:
            raise OSError(str(exc)) from exc
    if message["op"] == "check":
        keys = ("before", "pids", "listening", "connections", "rootfs", "upper")
        try:
            return agent_check.check(*(message[key] for key in keys))
        except agent_check.TooBusy as exc:
            raise OSError(str(exc)) from exc
    dir_fd = fds[0]
    if message["op"] == "measure":
        used = trees.measure_tree(dir_fd, message["name"])
        held = held_files(message["pids"], set(message["devices"]))
        written = -1 if held.written_bytes is None else held.written_bytes
        return f"{used} {held.deleted_bytes} {held.fds_in_flight} {written}"
    for name in message["names"]:
        trees.remove_tree(dir_fd, name)
    return ""


def enter_user_namespace(control: socket.socket) -> None:
    """Become root of a namespace with all ids of the user; the host agent writes the maps.

    Raises:
        OSError: The kernel refused.
    """
    sc.unshare(sc.CLONE_NEWUSER)
    packets.send(control, {"event": "unshared", "pid": os.getpid()})
    if packets.receive(control) is None:
        sys.exit(0)
    os.setgroups([])
    os.setresgid(0, 0, 0)
    os.setresuid(0, 0, 0)


def main(argv: list[str]) -> int:
    """Serve the socket of the given descriptor."""
    control = socket.socket(fileno=int(argv[1]))
    control.set_inheritable(False)
    for fd in argv[3:]:
        os.set_inheritable(int(fd), False)  # locks that are held for as long as this process lives
    sc.set_process_name("osgym-zygote")
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, signal.SIG_IGN)
    try:
        if argv[2] == "user":
            enter_user_namespace(control)
        sc.keep_capabilities()
        # Its parent is then the host agent, which waits for it.
        pid = sc.clone(sc.CLONE_NEWPID | sc.CLONE_PARENT)
        if pid:
            packets.send(control, {"event": "serving", "pid": pid})
            return 0
    except OSError as exc:
        with contextlib.suppress(OSError):
            packets.send(control, {"event": "failed", "error": str(exc)})
        return 1
    Zygote(control).run()
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv))
