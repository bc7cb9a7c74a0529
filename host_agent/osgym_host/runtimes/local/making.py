"""Making of a replica, in the zygote. Standard library only.

Two forks: the first one is in the outer user namespace (see `outer`) and makes the second one, the
replica's first process (see `inside`), as a child of the zygote.
"""

from __future__ import annotations

import contextlib
import os
import signal
from dataclasses import dataclass, replace
from typing import Any

from osgym_host.runtimes.local import detached, inside, outer
from osgym_host.runtimes.local import syscalls as sc
from osgym_host.runtimes.local.criu import restoring
from osgym_host.runtimes.local.protocol import ID_COUNT

_OOM_SCORE_ADJ = 500
"""Score by which the kernel kills replicas long before the host agent when the host is out of memory."""


@dataclass
class Starting:
    """Replica whose session does not run yet.

    Attributes:
        status_r: Through this pipe come the first process's PID and the inode of the guest agent's socket as
            a line, then errors as `step`, line end, text. It closes when the session runs, or when maker and
            first process have ended.
        maker: PID of the process that makes its first one (see `outer`), 0 when it is gone.
        pid: PID of its first process, 0 until the maker named it.
        listening: Inode of the guest agent's socket, 0 until the maker named it.
        told: Bytes that came through the pipe besides.
        network: Its network namespace, if the host agent puts a link there; -1: it does not.
        restored_in: Folder of a replica that CRIU restores: its maker is CRIU, which names the first process
            in a file when it ends. Empty for others.
    """

    request: int
    key: str
    status_r: int
    maker: int
    own_devices: bool
    pid: int = 0
    listening: int = 0
    told: bytes = b""
    network: int = -1
    restored_in: str = ""


@dataclass(frozen=True)
class _Parts:
    """Descriptors that the zygote opens with its rights for a maker.

    Attributes:
        numbers: User and group of the replica's first ids in the outer namespace.
        image: See `inside.Descriptors`.
        groups: See `inside.Descriptors`.
        template: Template of a clone; None for others.
    """

    numbers: tuple[int, int]
    image: int
    dev: int
    groups: tuple[int, ...]
    template: restoring.Template | None


def start_maker(message: dict[str, Any], fds: list[int], program: bytes) -> Starting:
    """Start carrying out a `spawn` request (see `protocol`).

    Returns:
        The replica under way: a child makes its first process, as another child, and ends.

    Raises:
        StepFailed: The kernel refused; neither of the two is left.
        OSError: The kernel refused; neither of the two is left.
    """
    ids = message["uid_base"], message["gid_base"]
    _prepare(message["folder"], *ids, restored=bool(message.get("restore")))
    with contextlib.ExitStack() as passed_on, contextlib.ExitStack() as undo:
        go_r, go_w = _pipe(passed_on, os.O_CLOEXEC)
        status_r, status_w = _pipe(undo, os.O_CLOEXEC | os.O_NONBLOCK)
        parts = _open_parts(message, passed_on)
        with signals_blocked(), _owner(*ids):
            maker = sc.clone(outer.NAMESPACES)
            if maker == 0:
                os.close(go_w)
                os.close(status_r)
                given = inside.Descriptors(fds[0], status_w, parts.image, parts.dev, groups=parts.groups)
                what = inside.inside_from(message, given, program)
                _be_maker(_around(message, parts.numbers, (go_r, status_w, *fds[1:])), what, parts.template)
        undo.callback(_end, maker)
        network = _admit(message, maker, parts)
        if network >= 0:
            undo.callback(os.close, network)
        os.write(go_w, b"g")
        undo.pop_all()
        os.close(status_w)
    return Starting(
        message["id"],
        message["key"],
        status_r,
        maker,
        own_devices=parts.dev >= 0,
        network=network,
        restored_in="" if parts.template is None else message["folder"],
    )


def _pipe(closing: contextlib.ExitStack, flags: int) -> tuple[int, int]:
    read_end, write_end = os.pipe2(flags)
    closing.callback(os.close, read_end)
    closing.callback(os.close, write_end)
    return read_end, write_end


def _end(maker: int) -> None:
    os.kill(maker, signal.SIGKILL)
    os.waitpid(maker, 0)


def _open_parts(message: dict[str, Any], closing: contextlib.ExitStack) -> _Parts:
    uid, gid = message["uid_base"], message["gid_base"]
    numbers = message["image_uid_base"], message["image_gid_base"]
    image = -1
    template: restoring.Template | None = None
    if (uid, gid) != numbers:
        with _named("id-mapped image"):
            image = detached.clone_tree(message["rootfs"])
        closing.callback(os.close, image)
    dev = _devices(uid, gid)
    if dev >= 0:
        closing.callback(os.close, dev)
    groups = []
    for path in message["session_procs"]:
        # The kernel checks the rights of the process that opens the file, not of the one that writes to it.
        with _named("session's control groups"):
            groups.append(os.open(path, os.O_WRONLY | os.O_CLOEXEC))
        closing.callback(os.close, groups[-1])
    if message.get("restore"):
        with _named("template"):
            template = restoring.open_template(message["restore"], message["folder"], uid, gid)
        for fd in template.descriptors:
            closing.callback(os.close, fd)
        numbers = 0, 0  # CRIU can restore the ids of processes only as id 0 of the namespace that it is in
    return _Parts(numbers, image, dev, tuple(groups), template)


def _admit(message: dict[str, Any], maker: int, parts: _Parts) -> int:
    """Give the process in the outer namespace its ids, its image and its control group.

    Returns:
        Descriptor of its network namespace, if the host agent puts a link there; -1: it does not.
    """
    folder = outer.proc_folder(maker)
    outer.write_file(f"{folder}/uid_map", f"{parts.numbers[0]} {message['uid_base']} {ID_COUNT}")
    outer.write_file(f"{folder}/gid_map", f"{parts.numbers[1]} {message['gid_base']} {ID_COUNT}")
    with _named("id-mapped image"):
        if parts.template is not None:
            _map_by_helper(message, parts.image)
        elif parts.image >= 0:
            _map_image(parts.image, f"{folder}/ns/user")
    outer.write_file(f"{folder}/oom_score_adj", str(_OOM_SCORE_ADJ))
    for path in message["cgroup_procs"]:
        outer.write_file(path, str(maker))
    if not message["name_server"]:
        return -1
    # Now, while nothing of the guest runs that could enter another.
    return os.open(f"{folder}/ns/net", os.O_RDONLY | os.O_CLOEXEC)


def _around(message: dict[str, Any], numbers: tuple[int, int], fds: tuple[int, ...]) -> outer.Outer:
    """Return the settings of the outer namespace; `fds`: go, status, and with a proxy its channel."""
    return outer.Outer(
        image_uid_base=numbers[0],
        image_gid_base=numbers[1],
        go_fd=fds[0],
        status_fd=fds[1],
        folder=message["folder"],
        counts=message["counts"],
        limits=message["limits"],
        proxy_port=message["proxy_port"],
        proxy_fd=fds[2] if message["proxy_port"] else -1,
    )


def _be_maker(around: outer.Outer, what: inside.Inside, template: restoring.Template | None) -> None:
    """Run the process in the outer namespace. Never returns."""
    if template is None:
        _make(around, what)
    else:
        _restore(around, what, template)


def _prepare(folder: str, uid: int, gid: int, *, restored: bool) -> None:
    """Make the overlay's folders, owned by the replica's root; a clone has its upper folder already."""
    for name in ("lower", *(() if restored else ("upper",)), "work", "merged"):
        path = f"{folder}/{name}"
        os.mkdir(path, 0o755)  # noqa: PTH102 (no pathlib in what is forked)
        os.chown(path, uid, gid, follow_symlinks=False)


def _devices(uid: int, gid: int) -> int:
    """Return a detached /dev; -1 for ordinary users, who may not make device nodes."""
    try:
        return detached.devices(uid, gid)
    except OSError:
        return -1


def _make(around: outer.Outer, what: inside.Inside) -> None:
    """Run the process in the outer namespace, from `clone` to its end. Never returns."""
    signal.set_wakeup_fd(-1)
    code, text = 1, "outer namespace\n?"

    def child(go_fd: int, sys_fd: int, listen_fd: int) -> None:
        _child(replace(what, fds=replace(what.fds, go=go_fd, sys=sys_fd, listen=listen_fd)))

    try:
        outer.make_first_process(around, inside.NAMESPACES, child)
        code, text = 0, ""
    except OSError as exc:
        text = f"outer namespace\n{exc}"
    finally:
        # Also for what nobody expects: this process must not go on as a second zygote.
        with contextlib.suppress(OSError):
            os.write(around.status_fd, text.encode("utf-8", "replace")[:2048])
        os._exit(code)


def _restore(around: outer.Outer, what: inside.Inside, template: restoring.Template) -> None:
    """Run the process in the outer namespace of a clone, from `clone` to CRIU or its end. Never returns."""
    signal.set_wakeup_fd(-1)
    text = "criu\n?"
    try:
        restoring.become_criu(around, what, template)
    except inside.StepFailed as exc:
        text = f"{exc.step}\n{exc.reason}"
    except OSError as exc:
        text = f"outer namespace\n{exc}"
    finally:
        # The same.
        with contextlib.suppress(OSError):
            os.write(around.status_fd, text.encode("utf-8", "replace")[:2048])
        os._exit(1)


def _child(what: inside.Inside) -> None:
    """Run the first process of a replica, from `clone` to its session or its end. Never returns."""
    text = "session\n?"
    try:
        inside.enter(what)
    except inside.StepFailed as exc:
        text = f"{exc.step}\n{exc.reason}"
    finally:
        # The same.
        with contextlib.suppress(OSError):
            os.write(what.fds.status, text.encode("utf-8", "replace")[:2048])
        os._exit(1)


def _map_image(image_fd: int, user_namespace: str) -> None:
    """Show the image's files with the ids of a user namespace as owners."""
    namespace = os.open(user_namespace, os.O_RDONLY | os.O_CLOEXEC)
    try:
        detached.map_ids(image_fd, namespace)
    finally:
        os.close(namespace)


def _map_by_helper(message: dict[str, Any], image_fd: int) -> None:
    """Give the image's files the replica's ids as owners, by a user namespace made for just that."""
    go_r, go_w = os.pipe2(os.O_CLOEXEC)
    with signals_blocked():
        pid = sc.clone(sc.CLONE_NEWUSER)
        if pid == 0:
            os.close(go_w)
            os.read(go_r, 1)
            os._exit(0)
    try:
        folder = outer.proc_folder(pid)
        for kind in ("uid", "gid"):
            line = f"{message[f'image_{kind}_base']} {message[f'{kind}_base']} {ID_COUNT}"
            outer.write_file(f"{folder}/{kind}_map", line)
        _map_image(image_fd, f"{folder}/ns/user")
    finally:
        os.close(go_r)
        os.close(go_w)
        os.waitpid(pid, 0)


class _named(contextlib.AbstractContextManager["_named"]):
    """Context that adds the name of a step to errors."""

    def __init__(self, step: str) -> None:
        self._step = step

    def __exit__(self, kind: object, value: BaseException | None, trace: object) -> None:
        if isinstance(value, OSError):
            raise inside.StepFailed(self._step, value) from value


class _owner(contextlib.AbstractContextManager["_owner"]):
    """Context in which new user namespaces belong to these ids and count on their limits."""

    def __init__(self, uid: int, gid: int) -> None:
        self._ids = (uid, gid)

    def __enter__(self) -> _owner:
        sc.act_as(*self._ids)
        return self

    def __exit__(self, *exc: object) -> None:
        sc.act_as(0, 0)


class signals_blocked(contextlib.AbstractContextManager["signals_blocked"]):
    """Context in which no signal handler of the zygote runs in a child."""

    def __enter__(self) -> signals_blocked:
        self._before = signal.pthread_sigmask(signal.SIG_BLOCK, signal.valid_signals())
        return self

    def __exit__(self, *exc: object) -> None:
        signal.pthread_sigmask(signal.SIG_SETMASK, self._before)
