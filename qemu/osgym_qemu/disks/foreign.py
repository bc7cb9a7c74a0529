"""Disks in formats of other hypervisors, converted by qemu-img under limits.

A VMDK may name other files as its parts, and a child its parent; here those would be files of this machine.
So whatever qemu-img would follow is checked first, and a file that names others is refused.
"""

from __future__ import annotations

import json
import os
import re
import resource
import selectors
import shutil
import struct
import subprocess
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from osgym_host.images.errors import ImageError
from osgym_host.images.qcow2 import MAX_VIRTUAL_BYTES

FORMATS = {
    b"KDMV": "vmdk",
    b"vhdx": "vhdx",
    b"conectix": "vpc",
    b"<<< ": "vdi",
}
"""Name that qemu-img has for a format, by the first bytes of a file."""
_MEMORY_BYTES = 2 << 30
_INFO_TIMEOUT_S = 30.0
_CHECK_TIMEOUT_S = 900.0
_LEAKS_ONLY = 3
"""Exit code of `qemu-img check` when blocks are lost, and no data."""
_CPU_S = 4 * 3600
_CONVERT_TIMEOUT_S = 6 * 3600.0
_MAX_OUTPUT_BYTES = 1 << 20
_SLACK_BYTES = 256 << 20
_PERCENT = re.compile(rb"\((\d{1,3}\.\d\d)/100%\)")
_VMDK_CAPACITY_AT = 12


def foreign_format(head: bytes) -> str | None:
    """Return the format of a file by its first bytes; None for one that is not of another hypervisor."""
    return next((name for magic, name in FORMATS.items() if head.startswith(magic)), None)


def convert(source: Path, name: str, target: Path, moved: Callable[[int, int], None]) -> None:
    """Write a foreign disk as qcow2.

    Args:
        name: Format, from `foreign_format`.
        moved: Called with the number of bytes done and in all.

    Raises:
        ImageError: It names other files, is broken or too large, or qemu-img is missing.
    """
    tool = shutil.which("qemu-img")
    if tool is None:
        raise ImageError(f"{source} is {name}, which qemu-img converts", "apt-get install qemu-utils")
    _check_vmdk(source, name)
    virtual = _check_info(tool, source, name)
    argv = [tool, "convert", "-p", "-f", name, "-O", "qcow2", str(source.absolute()), str(target)]
    _run(argv, source, virtual + _SLACK_BYTES, lambda share: moved(int(share * virtual), virtual))


def check_qcow2(disk: Path) -> None:
    """Run qemu-img's check, if it is installed, on a qcow2 whose header and tables are sound.

    Raises:
        ImageError: It finds damage, or does not end within its bounds.
    """
    tool = shutil.which("qemu-img")
    if tool is None:
        return
    argv = [tool, "check", "-q", "-U", "-f", "qcow2", str(disk.absolute())]
    status, _, said = _bounded(argv, disk, _CHECK_TIMEOUT_S)
    if status not in (0, _LEAKS_ONLY):
        raise ImageError(
            f"the qcow2 is damaged: qemu-img check ended with {status}, {_tail(said)}",
            "repair it on its original machine: qemu-img convert -O qcow2",
        )


def _bounded(argv: list[str], source: Path, timeout_s: float) -> tuple[int, bytes, bytes]:
    """Run a tool on a hostile file, with bounds on memory, time and output; return status, output, errors.

    Raises:
        ImageError: It cannot be run, or does not end.
    """
    try:
        with tempfile.TemporaryFile() as out, tempfile.TemporaryFile() as err:
            done = subprocess.run(
                argv,
                stdin=subprocess.DEVNULL,
                stdout=out,
                stderr=err,
                timeout=timeout_s,
                check=False,
                preexec_fn=lambda: _limit(_MAX_OUTPUT_BYTES, int(timeout_s)),
            )
            said = [file.read(_MAX_OUTPUT_BYTES) for file in (out, err) if file.seek(0) == 0]
    except (OSError, subprocess.TimeoutExpired) as exc:
        raise ImageError(f"{source} cannot be examined: {exc}") from exc
    return done.returncode, said[0], said[1]


def _tail(said: bytes) -> str:
    return said[-300:].decode("utf-8", "replace").strip()


def _check_vmdk(source: Path, name: str) -> None:
    """Refuse a VMDK with a capacity of 0, which stands for a description with names of files."""
    if name != "vmdk":
        return
    with source.open("rb") as file:
        head = file.read(_VMDK_CAPACITY_AT + 8)
    if len(head) < _VMDK_CAPACITY_AT + 8 or not struct.unpack_from("<Q", head, _VMDK_CAPACITY_AT)[0]:
        raise _names_others(source)


def _check_info(tool: str, source: Path, name: str) -> int:
    """Check qemu-img's information on the file; return its virtual size in bytes."""
    said = _info(tool, source, name)
    parts = said.get("format-specific", {}).get("data", {}).get("extents", [])
    own = {str(source.absolute()), str(source)}
    if "backing-filename" in said or any(part.get("filename") not in own for part in parts):
        raise _names_others(source)
    size = said.get("virtual-size")
    if not isinstance(size, int) or not 0 < size <= MAX_VIRTUAL_BYTES:
        raise ImageError(
            f"{source}: the disk claims an implausible size of {size} bytes",
            "disks of up to 2 TiB can be imported",
        )
    return size


def _info(tool: str, source: Path, name: str) -> dict[str, Any]:
    argv = [tool, "info", "--output=json", "-U", "-f", name, str(source.absolute())]
    status, out, err = _bounded(argv, source, _INFO_TIMEOUT_S)
    try:
        said = json.loads(out) if status == 0 else None
    except (ValueError, RecursionError) as exc:
        raise ImageError(f"{source} cannot be examined: {exc}") from exc
    if not isinstance(said, dict):
        raise ImageError(f"{source} is a broken {name}: {_tail(err)}")
    return said


def _names_others(source: Path) -> ImageError:
    return ImageError(
        f"{source} refers to other files",
        "merge them first on the machine that has them: qemu-img convert -O qcow2",
    )


def _limit(file_bytes: int, cpu_s: int = _CPU_S) -> None:
    resource.setrlimit(resource.RLIMIT_AS, (_MEMORY_BYTES, _MEMORY_BYTES))
    resource.setrlimit(resource.RLIMIT_CPU, (cpu_s, cpu_s))
    resource.setrlimit(resource.RLIMIT_FSIZE, (file_bytes, file_bytes))


def _run(argv: list[str], source: Path, file_bytes: int, moved: Callable[[float], None]) -> None:
    process = subprocess.Popen(
        argv,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        preexec_fn=lambda: _limit(file_bytes),
    )
    tail = b""
    try:
        assert process.stdout is not None
        ends_s = time.monotonic() + _CONVERT_TIMEOUT_S
        with selectors.DefaultSelector() as selector:
            selector.register(process.stdout, selectors.EVENT_READ)
            while time.monotonic() < ends_s:
                if not selector.select(1.0):
                    continue
                data = os.read(process.stdout.fileno(), 65536)
                if not data:
                    break
                tail = (tail + data)[-4096:]
                if shares := _PERCENT.findall(tail):
                    moved(float(shares[-1]) / 100)
            else:
                raise ImageError(f"{source} was not converted in {_CONVERT_TIMEOUT_S / 3600:.0f} hours")
        if process.wait(timeout=30) != 0:
            reason = _PERCENT.sub(b"", tail).decode("utf-8", "replace").strip()[-300:]
            raise ImageError(f"{source} cannot be converted: {reason}")
    finally:
        if process.poll() is None:
            process.kill()
        process.wait()
        if process.stdout is not None:
            process.stdout.close()
