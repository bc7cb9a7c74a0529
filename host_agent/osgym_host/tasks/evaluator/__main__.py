"""The zygote: imports the parsers once, then forks a confined child for each job.

Its arguments are the folders of distributions with metrics, which `python -I` may not look into by itself.
It has one socket (its standard input, SOCK_SEQPACKET). A job arrives as one message: a JSON header
``{"id", "timeout_s", "cpu_s", "memory_bytes", "program_s", "quick_s"}`` (memory: beyond what the parsers
take themselves; program_s: how long a metric may run a result's program, 0 if it runs none; quick_s: running
time after which its niceness is raised) with descriptors [verdict pipe, job, files…]. The child
writes its verdict to the pipe; the zygote reports ``{"id", "exit", "end"}`` when the child is gone, killed
after ``timeout_s`` at the latest. When the socket ends, everything ends.
"""

from __future__ import annotations

import contextlib
import encodings.cp437
import encodings.idna
import encodings.utf_8_sig
import io
import json
import os
import select
import signal
import socket
import sys
import time
import zipfile
from dataclasses import dataclass

from PIL import Image

from osgym_host.tasks.evaluator import confine
from osgym_host.tasks.evaluator.program import served, wire
from osgym_host.tasks.evaluator.registry import METRICS, READERS, MetricEnd
from osgym_host.tasks.evaluator.run import run_job
from osgym_protocol.plugins import PluginError

PRELOADED = (encodings.cp437, encodings.idna, encodings.utf_8_sig)
MAX_MESSAGE = 16 * 1024
MAX_FDS = 70
SLOW_NICENESS = 5
"""Niceness of a metric that has run for ``quick_s``: a quick one beside it gets three times its CPU time.

It is no higher since an honest metric may be slow as well. With a sixth of a processor, a metric uses up its
CPU limit before its wall clock limit, so that the load of others does not end it.
"""


@dataclass(slots=True)
class _MetricProcess:
    job_id: int
    pid: int
    deadline: float
    slow_at: float
    killed: bool = False
    slow: bool = False


def main() -> int:
    """Serve jobs until the socket ends."""
    control = socket.socket(fileno=os.dup(0))
    Image.init()  # imports every image plugin now: a confined child can import nothing
    sys.path.extend(folder for folder in sys.argv[1:] if folder not in sys.path)
    lacking = warm_up()
    confine.drop_root()
    confine.die_with_parent(os.getppid())
    layers = confine.available_layers()
    held = "namespaces" in layers or "seccomp" in layers
    if held:
        hello: dict[str, object] = {"ready": True, "confinement": list(layers), "lacking": lacking}
    else:
        hello = {"error": "neither user namespaces nor seccomp work here"}
    with contextlib.suppress(BrokenPipeError, ConnectionResetError):  # the host has gone meanwhile
        control.send(json.dumps(hello).encode())
        if held:
            _serve(control, frozenset(layers))
    return 0 if held else 1


def _serve(control: socket.socket, layers: frozenset[str]) -> None:
    children: dict[int, _MetricProcess] = {}
    try:
        _take_jobs(control, layers, children)
    finally:
        _end(children)


def _take_jobs(control: socket.socket, layers: frozenset[str], children: dict[int, _MetricProcess]) -> None:
    """Take jobs until the socket ends. The processes in ``children`` then still run."""
    poll = select.poll()
    poll.register(control, select.POLLIN)
    while True:
        for fd, _ in poll.poll(_wait_ms(children)):
            if fd == control.fileno():
                message, fds, _, _ = socket.recv_fds(control, MAX_MESSAGE, MAX_FDS)
                if not message:
                    return
                pidfd, child = _spawn(json.loads(message), fds, layers)
                children[pidfd] = child
                poll.register(pidfd, select.POLLIN)
            else:
                poll.unregister(fd)
                _report(control, children.pop(fd))
                os.close(fd)
        _act_on_time(children)


def _act_on_time(children: dict[int, _MetricProcess]) -> None:
    """Kill children past their deadline, and raise the niceness of those that have run for ``quick_s``."""
    now = time.monotonic()
    for child in children.values():
        if not child.killed and now >= child.deadline:
            child.killed = True
            os.kill(child.pid, signal.SIGKILL)
        if not child.slow and now >= child.slow_at:
            child.slow = True
            with contextlib.suppress(OSError):  # it has ended, or has no group of its own yet
                os.setpriority(os.PRIO_PGRP, child.pid, SLOW_NICENESS)


def _wait_ms(children: dict[int, _MetricProcess]) -> int | None:
    waiting = [c.deadline for c in children.values() if not c.killed]
    waiting += [c.slow_at for c in children.values() if not c.slow]
    return max(0, int((min(waiting) - time.monotonic()) * 1000) + 1) if waiting else None


def _report(control: socket.socket, child: _MetricProcess) -> None:
    _, status = os.waitpid(child.pid, 0)
    if child.killed:
        how, end = "it took too long", MetricEnd.OUTSIDE
    elif os.WIFSIGNALED(status):
        how, end = f"killed by signal {os.WTERMSIG(status)}", MetricEnd.OUTSIDE
    else:
        code = os.WEXITSTATUS(status)
        crashed = f"ended with status {code}", MetricEnd.CRASHED
        how, end = _EXITS.get(code, crashed)
    control.send(json.dumps({"id": child.job_id, "exit": how, "end": end.value}).encode())


def _end(children: dict[int, _MetricProcess]) -> None:
    for child in children.values():
        os.kill(child.pid, signal.SIGKILL)
        os.waitpid(child.pid, 0)


def _spawn(header: dict[str, float], fds: list[int], layers: frozenset[str]) -> tuple[int, _MetricProcess]:
    timeout_s = float(header["timeout_s"])
    zygote = os.getpid()
    memory_bytes = confine.address_space_bytes() + int(header["memory_bytes"])
    pid = os.fork()
    if pid == 0:
        status = _NOT_CONFINED
        try:
            bounds = _Bounds(memory_bytes, float(header["cpu_s"]), float(header["program_s"]))
            status = _helper(zygote, bounds, fds, layers)
        finally:
            os._exit(status)
    for fd in fds:
        os.close(fd)
    now = time.monotonic()
    child = _MetricProcess(int(header["id"]), pid, now + timeout_s, now + float(header["quick_s"]))
    return os.pidfd_open(pid), child


@dataclass(frozen=True, slots=True)
class _Bounds:
    memory_bytes: int
    cpu_s: float
    program_s: float


_CRASHED, _NOT_CONFINED, _CPU_USED_UP, _TOO_LONG, _BY_SIGNAL = 1, 70, 71, 72, 100
_EXITS = {
    0: ("it wrote no verdict", MetricEnd.CRASHED),
    _NOT_CONFINED: ("it could not be confined", MetricEnd.OUTSIDE),
    _CPU_USED_UP: ("it used too much CPU time", MetricEnd.CPU_TIME),
    _TOO_LONG: ("the result's program did not end", MetricEnd.PROGRAM_TIME),
    _BY_SIGNAL + signal.SIGXCPU: ("it used too much CPU time", MetricEnd.CPU_TIME),
    _BY_SIGNAL + signal.SIGKILL: ("it was killed from outside", MetricEnd.OUTSIDE),
    _BY_SIGNAL + signal.SIGSEGV: ("it crashed (SIGSEGV)", MetricEnd.CRASHED),
    _BY_SIGNAL + signal.SIGABRT: ("it crashed (SIGABRT)", MetricEnd.CRASHED),
}
"""Meaning of a child's exit status. The limit on CPU time kills in the end, as the host does when it is out
of memory; the two are told apart by the signal that came before (`_note_cpu_limit`)."""


def _helper(zygote: int, bounds: _Bounds, fds: list[int], layers: frozenset[str]) -> int:
    """Make the namespaces, wait for the worker, and return its exit code; die with the zygote.

    Only this process can tell that a worker was stopped from outside or never began. An exit code that the
    worker chose itself means no more than a crash.
    """
    confine.die_with_parent(zygote)
    os.setpgid(0, 0)
    _close_all_but(fds)
    if "namespaces" in layers:
        confine.enter_namespaces()
    helper = os.getpid()
    noted, note = os.pipe2(os.O_NONBLOCK | os.O_CLOEXEC)
    begun, begin = os.pipe2(os.O_NONBLOCK | os.O_CLOEXEC)
    runs_program = bounds.program_s > 0 and layers >= confine.PROGRAM_LAYERS
    ours, theirs = socket.socketpair() if runs_program else (None, None)
    pid = os.fork()
    if pid == 0:
        status = _CRASHED
        try:
            confine.die_with_parent(helper)
            _note_cpu_limit(note)
            if ours is not None and theirs is not None:
                theirs.close()
                confine.may_ask_program(ours.fileno())
            confine.confine_self(bounds.memory_bytes, bounds.cpu_s, layers)
            os.write(begin, b"1")
            os.close(begin)
            run_job(fds[1], fds[2:], fds[0])
            status = 0
        finally:
            os._exit(status)
    for fd in fds:
        os.close(fd)
    if ours is not None and theirs is not None:
        ours.close()
        _start_program(theirs, helper, bounds, layers)
    if bounds.program_s > 0:  # here, where what runs in there cannot call it off
        signal.signal(signal.SIGALRM, lambda *_: os._exit(_kill(pid)))
        signal.setitimer(signal.ITIMER_REAL, bounds.program_s)
    status = _wait_for(pid)
    if not select.select([begun], [], [], 0)[0] or not os.read(begun, 1):
        return _NOT_CONFINED
    if os.WIFSIGNALED(status):
        by_limit = os.WTERMSIG(status) == signal.SIGKILL and select.select([noted], [], [], 0)[0]
        return _CPU_USED_UP if by_limit else _BY_SIGNAL + os.WTERMSIG(status)
    code = os.WEXITSTATUS(status)
    return code if code in {0, _CPU_USED_UP} else _CRASHED


def _start_program(stream: socket.socket, helper: int, bounds: _Bounds, layers: frozenset[str]) -> None:
    """Fork the process that runs a result's program; the stream to the test is its only descriptor.

    The test's process is the first of the PID namespace, so the kernel kills the program's process with it.
    """
    if os.fork() != 0:
        stream.close()
        return
    try:
        confine.die_with_parent(helper)
        _close_others({0, 1, 2, stream.fileno()}, 256)
        confine.confine_self(bounds.memory_bytes, bounds.cpu_s, layers)
        served.serve(wire.Channel(stream.fileno()))
    finally:
        os._exit(0)


def _kill(pid: int) -> int:
    os.kill(pid, signal.SIGKILL)
    _wait_for(pid)
    return _TOO_LONG


def _wait_for(worker: int) -> int:
    """Return the worker's status. The process of its program, which ends first, is reaped as well."""
    while True:
        pid, status = os.waitpid(-1, 0)
        if pid == worker:
            return status


def _note_cpu_limit(note: int) -> None:
    """End when the CPU time is used up; write that down first, for a parser that lets no Python run.

    The first process of a PID namespace gets SIGXCPU only when it has a handler.
    """
    signal.set_wakeup_fd(note, warn_on_full_buffer=False)
    signal.signal(signal.SIGXCPU, lambda *_: os._exit(_CPU_USED_UP))


def _close_all_but(fds: list[int]) -> None:
    """Keep the job's descriptors; standard input, output and error go nowhere."""
    null = os.open("/dev/null", os.O_RDWR)
    for fd in (0, 1, 2):
        os.dup2(null, fd)
    _close_others({0, 1, 2, *fds}, null)


def _close_others(keep: set[int], highest: int) -> None:
    for fd in range(3, max(*keep, highest, 64) + 64):
        if fd not in keep:
            try:
                os.close(fd)
            except OSError:
                continue


def warm_up() -> dict[str, str]:
    """Import every installed metric and reader, and call the ``warm_up`` of each module that has one.

    Returns:
        Metrics that cannot run on this machine, each with the reason.

    Raises:
        DuplicatePlugin: Two distributions register a metric, or a reader, of the same name.
    """
    _warm_up_parsers()
    lacking: dict[str, str] = {}
    reasons: dict[str, str] = {}
    for name in METRICS:
        try:
            module = METRICS[name].function.__module__
        except PluginError as error:
            lacking[name] = str(error)
            continue
        if module not in reasons:
            reasons[module] = _warm_up_module(module)
        if reasons[module]:
            lacking[name] = reasons[module]
    for name in READERS:
        with contextlib.suppress(PluginError):  # the host refuses tasks that need it
            if (module := READERS[name].__module__) not in reasons:
                reasons[module] = _warm_up_module(module)
    return lacking


def _warm_up_module(name: str) -> str:
    """Call a module's ``warm_up`` if there is one; return why it failed, else an empty text."""
    function = getattr(sys.modules[name], "warm_up", None)
    if function is None:
        return ""
    try:
        function()
    except OSError as error:  # e.g. a model that does not fit the version of its library
        return str(error)
    except Exception as error:  # noqa: BLE001 - a module of others must not end the metrics of all
        return f"{name}.warm_up failed: {error!r}"
    return ""


def _warm_up_parsers() -> None:
    """Use the parsers of the evaluator itself once, so that their late imports are done."""
    for image_format in ("PNG", "JPEG", "GIF", "BMP", "TIFF", "WEBP"):
        buffer = io.BytesIO()
        Image.new("RGB", (2, 2)).save(buffer, image_format)
        Image.open(io.BytesIO(buffer.getvalue())).load()
    for method in (zipfile.ZIP_DEFLATED, zipfile.ZIP_BZIP2, zipfile.ZIP_LZMA):
        with zipfile.ZipFile(io.BytesIO(), "w", method) as archive:
            archive.writestr("a", b"a")


if __name__ == "__main__":
    sys.exit(main())
