"""The parent of all replicas: a small process with one thread that forks one child per replica.

The host agent is large and has threads: forking it would be slow and unsafe. This process starts
once, knows only `protocol`, and answers in the order in which children get ready. When the host
agent goes away, however it does, the zygote kills its replicas and ends; when the zygote is killed,
the kernel kills the replicas (parent-death signal).

For an ordinary user it first enters a user namespace that holds the user's whole range of
subordinate ids, as root of it; everything after that is the same as for root.

Run as `python -I -m osgym_host.runtimes.local.zygote CONTROL_FD LOCK_FD root|user`.
"""

from __future__ import annotations

import contextlib
import os
import select
import signal
import socket
import sys
from typing import Any

from osgym_host.runtimes.held_files import held_files
from osgym_host.runtimes.local import inside, protocol, seccomp, trees
from osgym_host.runtimes.local import syscalls as sc

_ID_COUNT = 65536
_OOM_SCORE_ADJ = 500
"""Replicas go first when the whole host is out of memory, long before the host agent."""


class Zygote:
    """The loop, and what it knows: children being prepared, replicas, helpers."""

    def __init__(self, control: socket.socket) -> None:
        self._control = control
        self._poller = select.poll()
        self._wake_r, self._wake_w = os.pipe2(os.O_NONBLOCK | os.O_CLOEXEC)
        self._starting: dict[int, tuple[int, str, int]] = {}  # status pipe → request id, key, pid
        self._replicas: dict[int, str] = {}  # pid → key
        self._helpers: dict[int, tuple[int, int]] = {}  # pid → request id, result pipe
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
                elif fd in self._starting:
                    self._started(fd)

    def _serve(self) -> bool:
        try:
            received = protocol.receive(self._control)
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
                case "remove" | "measure":
                    self._help(message, fds)
        except OSError as exc:
            self._answer({"id": message["id"], "ok": False, "step": message["op"], "error": str(exc)})
        finally:
            for fd in fds:
                os.close(fd)
        return True

    def _answer(self, message: dict[str, Any], fds: tuple[int, ...] = ()) -> None:
        # When the host agent is gone, the end of the connection says so in the loop.
        with contextlib.suppress(ConnectionError):
            protocol.send(self._control, message, fds)

    def _spawn(self, message: dict[str, Any], fds: list[int]) -> None:
        uid_base, gid_base = message["uid_base"], message["gid_base"]
        _prepare(message["folder"], uid_base, gid_base)
        go_r, go_w = os.pipe2(os.O_CLOEXEC)
        status_r, status_w = os.pipe2(os.O_CLOEXEC)
        pid = 0
        try:
            with _signals_blocked():
                pid = sc.clone(inside.NAMESPACES)
                if pid == 0:
                    os.close(go_w)
                    os.close(status_r)
                    _child(inside.inside_from(message, fds, go_r, status_w, self._program))
            self._replicas[pid] = message["key"]
            _write(f"/proc/{pid}/uid_map", f"0 {uid_base} {_ID_COUNT}")
            _write(f"/proc/{pid}/gid_map", f"0 {gid_base} {_ID_COUNT}")
            _write(f"/proc/{pid}/oom_score_adj", str(_OOM_SCORE_ADJ))
            for path in message["cgroup_procs"]:
                _write(path, str(pid))
            os.write(go_w, b"g")
        except OSError:
            os.close(status_r)
            if pid:
                self._discard(pid)
            raise
        finally:
            for fd in (go_r, go_w, status_w):
                os.close(fd)
        self._starting[status_r] = (message["id"], message["key"], pid)
        self._poller.register(status_r, select.POLLIN)

    def _started(self, status_r: int, dead_status: int | None = None) -> None:
        """Answer a spawn request: the pipe closed by `execve`, or an error came through it."""
        request, _key, pid = self._starting.pop(status_r)
        self._poller.unregister(status_r)
        error = os.read(status_r, 4096).decode("utf-8", "replace")
        os.close(status_r)
        if dead_status is not None and not error:
            error = f"session\nit died at once (wait status {dead_status})"
        if error:
            if dead_status is None:
                self._discard(pid)
            step, _, text = error.partition("\n")
            self._answer({"id": request, "ok": False, "step": step, "error": text})
            return
        # It was not waited for yet, so the number still names the child, dead or alive.
        pidfd = os.pidfd_open(pid)
        self._answer({"id": request, "ok": True, "pid": pid}, (pidfd,))
        os.close(pidfd)

    def _discard(self, pid: int) -> None:
        """End a child that did not become a session; its failure is the answer to the request."""
        os.kill(pid, signal.SIGKILL)
        os.waitpid(pid, 0)
        self._replicas.pop(pid, None)

    def _kill(self, key: str) -> None:
        for pid, name in self._replicas.items():
            if name == key:
                os.kill(pid, signal.SIGKILL)

    def _help(self, message: dict[str, Any], fds: list[int]) -> None:
        """Remove or measure trees in a fork, which may take its time."""
        result_r, result_w = os.pipe2(os.O_CLOEXEC)
        with _signals_blocked():
            pid = os.fork()
            if pid == 0:
                code, text = 1, "unexpected"
                try:
                    text = _helper_main(message, fds[0])
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
        key = self._replicas.pop(pid, None)
        for status_r, (_request, _key, starting) in list(self._starting.items()):
            if starting == pid:
                self._started(status_r, status)
                return
        if key is not None:
            self._answer({"event": "exit", "key": key, "status": status})

    def _end(self) -> None:
        """Kill every replica; the kernel takes all of a PID namespace with its first process."""
        for pid in self._replicas:
            os.kill(pid, signal.SIGKILL)
        while True:
            try:
                os.waitpid(-1, 0)
            except ChildProcessError:
                return


def _prepare(folder: str, uid: int, gid: int) -> None:
    """Make the folders of the overlay; its root folder belongs to the replica's root."""
    for name in ("upper", "work", "merged"):
        path = f"{folder}/{name}"
        os.mkdir(path, 0o755)  # noqa: PTH102 (no pathlib in what is forked)
        os.chown(path, uid, gid, follow_symlinks=False)


def _helper_main(message: dict[str, Any], dir_fd: int) -> str:
    if message["op"] == "measure":
        used = trees.measure_tree(dir_fd, message["name"])
        held = held_files(message["pids"], set(message["devices"]))
        written = -1 if held.written_bytes is None else held.written_bytes
        return f"{used} {held.deleted_bytes} {held.fds_in_flight} {written}"
    for name in message["names"]:
        trees.remove_tree(dir_fd, name)
    return ""


def _child(what: inside.Inside) -> None:
    """The new process, from `clone` to its session or its end. Never returns."""
    signal.set_wakeup_fd(-1)
    text = "session\n?"
    try:
        inside.enter(what)
    except inside.StepFailed as exc:
        text = f"{exc.step}\n{exc}"
    finally:
        # Also for what nobody expects: this process must not go on as a second zygote.
        with contextlib.suppress(OSError):
            os.write(what.status_fd, text.encode("utf-8", "replace")[:2048])
        os._exit(1)


class _signals_blocked(contextlib.AbstractContextManager["_signals_blocked"]):
    """No handler of the zygote runs in a child."""

    def __enter__(self) -> _signals_blocked:
        self._before = signal.pthread_sigmask(signal.SIG_BLOCK, signal.valid_signals())
        return self

    def __exit__(self, *exc: object) -> None:
        signal.pthread_sigmask(signal.SIG_SETMASK, self._before)


def _write(path: str, text: str) -> None:
    fd = os.open(path, os.O_WRONLY | os.O_CLOEXEC)
    try:
        os.write(fd, text.encode())
    except OSError as exc:
        raise OSError(exc.errno, f"writing {text!r} to {path}: {os.strerror(exc.errno or 0)}") from exc
    finally:
        os.close(fd)


def enter_user_namespace(control: socket.socket) -> None:
    """Become root of a namespace with all ids of the user; the host agent writes the maps.

    Raises:
        OSError: The kernel refused.
    """
    sc.unshare(sc.CLONE_NEWUSER)
    protocol.send(control, {"event": "unshared", "pid": os.getpid()})
    if protocol.receive(control) is None:
        sys.exit(0)
    os.setgroups([])
    os.setresgid(0, 0, 0)
    os.setresuid(0, 0, 0)


def main(argv: list[str]) -> int:
    """Serve the socket given by its descriptor."""
    control = socket.socket(fileno=int(argv[1]))
    control.set_inheritable(False)
    os.set_inheritable(int(argv[2]), False)  # a lock that is held for as long as this process lives
    sc.set_process_name("osgym-zygote")
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, signal.SIG_IGN)
    try:
        if argv[3] == "user":
            enter_user_namespace(control)
        protocol.send(control, {"event": "serving", "pid": os.getpid()})
    except OSError as exc:
        with contextlib.suppress(OSError):
            protocol.send(control, {"event": "failed", "error": str(exc)})
        return 1
    Zygote(control).run()
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv))
