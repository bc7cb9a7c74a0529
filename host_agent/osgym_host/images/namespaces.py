"""Programs as root inside a user namespace, by which image files get their shifted owners."""

from __future__ import annotations

import contextlib
import json
import os
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import IO, Any

from osgym_host.images.errors import ImageError, NamespaceUnavailable
from osgym_host.images.idmap import IdMap, write_maps

CLEAN_ENV = {
    "PATH": "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin",
    "HOME": "/root",
    "LANG": "C.UTF-8",
    "LC_ALL": "C.UTF-8",
    "TZ": "UTC",
    "DEBIAN_FRONTEND": "noninteractive",
}


@dataclass(frozen=True, slots=True)
class Overlay:
    """An overlay to mount first; paths are relative to the working directory."""

    lower: str
    upper: str
    work: str
    merged: str


@dataclass(frozen=True, slots=True)
class NamespaceSpec:
    """Namespace of a program.

    Attributes:
        cwd: Working directory; all other paths are relative to it.
        idmap: Ids of the user namespace, or None to stay in the caller's.
        overlay: Overlay that is mounted before the program starts.
        view: Second place of the overlay: an absolute path of this machine, so that the machine's own
            programs reach it even below a home that is closed to the mapped root.
        root: Tree to chroot into, with /proc, /dev, /tmp and /run mounted.
        network: Keep the caller's network.
    """

    cwd: Path
    idmap: IdMap | None
    overlay: Overlay | None = None
    view: str | None = None
    root: str | None = None
    network: bool = False
    env: dict[str, str] = field(default_factory=dict)


@contextlib.contextmanager
def running(
    inside: NamespaceSpec,
    argv: list[str] | None = None,
    *,
    operation: tuple[str, dict[str, Any]] | None = None,
    stdin: int | IO[bytes] | None = subprocess.DEVNULL,
    stdout: int | IO[bytes] | None = None,
    stderr: int | IO[bytes] | None = None,
) -> Iterator[subprocess.Popen[bytes]]:
    """Start `argv` (or a named operation of `tree.py`) inside; it is dead on exit of the block.

    Raises:
        NamespaceUnavailable: No user namespace could be made.
    """
    ready_r, ready_w = os.pipe()
    go_r, go_w = os.pipe()
    spec: dict[str, Any] = {
        "cwd": str(inside.cwd),
        "user_namespace": inside.idmap is not None,
        "ready_fd": ready_w,
        "go_fd": go_r,
        "overlay": asdict(inside.overlay) if inside.overlay else None,
        "view": inside.view,
        "root": inside.root,
        "network": inside.network,
        "argv": argv,
        "env": {**CLEAN_ENV, **inside.env},
    }
    if operation is not None:
        spec["operation"], spec["arguments"] = operation
    # -I does not look at the environment: who asked us to leave no compiled modules asks that of it, too.
    quiet = ["-B"] if sys.dont_write_bytecode else []
    try:
        process = subprocess.Popen(
            [sys.executable, "-I", *quiet, "-m", "osgym_host.images.enter", json.dumps(spec)],
            stdin=stdin,
            stdout=stdout,
            stderr=stderr,
            pass_fds=(ready_w, go_r),
            start_new_session=True,
        )
    except BaseException:
        for fd in (ready_r, ready_w, go_r, go_w):
            os.close(fd)
        raise
    os.close(ready_w)
    os.close(go_r)
    try:
        if inside.idmap is not None:
            if os.read(ready_r, 1) != b"u":
                raise NamespaceUnavailable(
                    "user namespaces are not allowed on this machine",
                    "check sysctl kernel.unprivileged_userns_clone, user.max_user_namespaces and "
                    "kernel.apparmor_restrict_unprivileged_userns",
                )
            write_maps(process.pid, inside.idmap)
            os.write(go_w, b"g")
        yield process
    finally:
        os.close(ready_r)
        os.close(go_w)
        _end(process)


def _end(process: subprocess.Popen[bytes]) -> None:
    if process.poll() is None:
        process.terminate()
        try:
            process.wait(timeout=10)
        except subprocess.TimeoutExpired:
            process.kill()
    process.wait()
    for stream in (process.stdin, process.stdout, process.stderr):
        if stream is not None:
            with contextlib.suppress(BrokenPipeError):
                stream.close()


def call(inside: NamespaceSpec, argv: list[str], *, timeout_s: float = 600.0) -> str:
    """Run `argv` inside to its end and return its output.

    Raises:
        ImageError: It failed or took longer than `timeout_s`; the message has the end of its output.
    """
    with running(inside, argv, stdout=subprocess.PIPE, stderr=subprocess.STDOUT) as process:
        try:
            output, _ = process.communicate(timeout=timeout_s)
        except subprocess.TimeoutExpired as exc:
            raise ImageError(f"{argv[0]} took longer than {timeout_s:.0f} s") from exc
    text = output.decode(errors="replace")
    if process.returncode != 0:
        raise ImageError(f"{argv[0]} ended with {process.returncode}: {text[-2000:]}")
    return text


def operate(inside: NamespaceSpec, operation: str, *, timeout_s: float = 600.0, **arguments: Any) -> Any:
    """Run one operation of `tree.py` as root inside and return its result.

    Raises:
        ImageError: It failed or took longer than `timeout_s`.
    """
    pipe = subprocess.PIPE
    with running(inside, operation=(operation, arguments), stdout=pipe, stderr=pipe) as process:
        try:
            output, errors = process.communicate(timeout=timeout_s)
        except subprocess.TimeoutExpired as exc:
            raise ImageError(f"{operation} took longer than {timeout_s:.0f} s") from exc
    if process.returncode != 0:
        raise ImageError(f"{operation} failed: {errors.decode(errors='replace')[-2000:]}")
    return json.loads(output)
