"""Layers of a machine's disk: frozen ones below, one on top that is written to.

Names in a machine's folder are the record; nothing else has to be written down or found again:

- `below-<k>.qcow2`: frozen layers it was born with, from the bottom up; links to files that the
  parent and other children have too, so the last user of a layer removes it;
- its overlay (node `d0`): the first layer of its own;
- `top-<n>.qcow2` (node `d0-<n>`): the layer it got when it was branched for the n-th time; all below
  are frozen from then on.

Which of them is on top QEMU is asked. Below all of them is the snapshot's frozen disk. Headers name no
backing files: who opens a chain says what is below what.

The folder belongs to the user that QEMU runs as, who is not trusted: files there are opened without
following links, and handled by their descriptors.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import re
import stat
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from osgym_host.errors import OsgymHostError
from osgym_qemu.machine.argv import BASE_NODE, DISK_FILE_NODE, DISK_NODE, Disk, block_options
from osgym_qemu.machine.qmp import Qmp, QmpError

_BELOW = re.compile(r"below-(\d{2})\.qcow2\Z")
_TOP = re.compile(r"top-(\d{1,6})\.qcow2\Z")
_TOP_NODE = re.compile(re.escape(DISK_NODE) + r"-(\d{1,6})\Z")
_FROZEN_NODE = "frozen"
_STREAM_JOB = "flatten"
_STREAM_TIMEOUT_S = 120.0
_POLL_S = 0.02
_QMP_TIMEOUT_S = 10.0


class DiskChainError(OsgymHostError):
    """Error of a disk's layers: unexpected, or not changed."""


@dataclass(frozen=True, slots=True)
class DiskChain:
    """Layers of a running machine's own, from the bottom up; the last one is written to.

    Attributes:
        number: Number of its branchings: 0 as long as its first overlay is on top.
    """

    folder: Path
    overlay: Path
    layers: tuple[Path, ...]
    number: int

    @property
    def top_node(self) -> str:
        """Block node of the layer that is written to."""
        return _node(self.number)


@dataclass(frozen=True, slots=True)
class NewLayer:
    """Empty layer that QEMU has open but does not use yet."""

    node: str
    path: Path


async def read_chain(qmp: Qmp, folder: Path, overlay: Path) -> DiskChain:
    """Read the layers of a running machine's disk.

    Raises:
        DiskChainError: QEMU's answer is malformed, or files are missing.
        QmpError: QEMU does not answer.
    """
    number = _top_number(await qmp.execute("query-block", timeout_s=_QMP_TIMEOUT_S))
    layers = await asyncio.to_thread(_layers, folder, overlay, number)
    expected = _path(folder, number) if number else overlay
    if not layers or layers[-1] != expected:
        raise DiskChainError(f"the disk's top layer {expected.name} is not in the machine's folder")
    return DiskChain(folder, overlay, tuple(layers), number)


async def open_top(qmp: Qmp, chain: DiskChain, prepared: Path) -> NewLayer:
    """Move an empty qcow2 file into the machine's folder and open it in QEMU, ahead of its use.

    Raises:
        OSError: It cannot be moved.
        QmpError: QEMU refused; nothing is left.
    """
    number = chain.number + 1
    path, node = _path(chain.folder, number), _node(number)
    await asyncio.to_thread(_place, prepared, path)
    file, top = block_options(Disk(path))
    file["node-name"] = f"{node}f"
    try:
        await qmp.execute(
            "blockdev-add",
            {**top, "node-name": node, "file": file, "backing": None},
            timeout_s=_QMP_TIMEOUT_S,
        )
    except BaseException:
        path.unlink(missing_ok=True)
        raise
    return NewLayer(node, path)


async def use_top(qmp: Qmp, chain: DiskChain, top: NewLayer) -> None:
    """Put the new layer on top; everything written before is frozen from now on."""
    await qmp.execute(
        "blockdev-snapshot", {"node": chain.top_node, "overlay": top.node}, timeout_s=_QMP_TIMEOUT_S
    )


async def drop_top(qmp: Qmp, top: NewLayer) -> None:
    """Close and remove a layer that was not used. Never raises."""
    with contextlib.suppress(QmpError):
        await qmp.execute("blockdev-del", {"node-name": top.node}, timeout_s=_QMP_TIMEOUT_S)
        top.path.unlink(missing_ok=True)


async def flatten(qmp: Qmp, chain: DiskChain, *, timeout_s: float = _STREAM_TIMEOUT_S) -> DiskChain:
    """Copy all frozen layers into the one on top, while the machine runs, and remove them.

    Raises:
        DiskChainError: It took too long, or QEMU could not read or write; the chain is unchanged.
        QmpError: QEMU refused or is gone.
    """
    if len(chain.layers) == 1:
        return chain
    job = f"{_STREAM_JOB}-{chain.number}"
    with qmp.subscribe("BLOCK_JOB_COMPLETED", "BLOCK_JOB_CANCELLED") as events:
        await qmp.execute(
            "block-stream",
            {"job-id": job, "device": chain.top_node, "base-node": BASE_NODE},
            timeout_s=_QMP_TIMEOUT_S,
        )
        try:
            async with asyncio.timeout(timeout_s):
                async for event in events:
                    if event.data.get("device") == job:
                        break
                else:
                    raise DiskChainError("QEMU ended while its disk's layers were joined")
        except BaseException as exc:
            with contextlib.suppress(QmpError):
                await asyncio.shield(_cancel_job(qmp, job))
            if isinstance(exc, TimeoutError):
                raise DiskChainError(f"joining the disk's layers took more than {timeout_s:.0f} s") from exc
            raise
    if event.name != "BLOCK_JOB_COMPLETED" or event.data.get("error") is not None:
        raise DiskChainError(f"the disk's layers could not be joined: {event.data.get('error', 'cancelled')}")
    await _forget_nodes(qmp, chain)
    for path in chain.layers[:-1]:
        path.unlink(missing_ok=True)
    return DiskChain(chain.folder, chain.overlay, chain.layers[-1:], chain.number)


async def attach(qmp: Qmp, overlay: Path, layers: Sequence[Path], base_image: str) -> None:
    """Insert frozen layers, linked into the machine's folder, between a parked machine's overlay and its
    base.

    Args:
        base_image: Format of the disk image at the bottom (`Disk.base_image`).

    Raises:
        QmpError: QEMU refused.
    """
    below: dict[str, Any] | str = BASE_NODE
    for index, path in enumerate(layers):
        below = {
            "driver": "qcow2",
            "node-name": f"{_FROZEN_NODE}-{index}",
            "read-only": True,
            "file": {"driver": "file", "filename": str(path), "node-name": f"{_FROZEN_NODE}-{index}f"},
            "backing": below,
        }
    if isinstance(below, str):
        return
    await qmp.execute("blockdev-add", below, timeout_s=_QMP_TIMEOUT_S)
    nodes = block_options(Disk(overlay, base_image=base_image))
    top = next(node for node in nodes if node["node-name"] == DISK_NODE)
    options = {**top, "file": DISK_FILE_NODE, "backing": below["node-name"]}
    await qmp.execute("blockdev-reopen", {"options": [options]}, timeout_s=_QMP_TIMEOUT_S)


def freeze(layers: Sequence[Path], folder: Path, name: str = "layer-{:02}.qcow2") -> tuple[Path, ...]:
    """Link frozen layers into another folder, readable by every machine and writable by none.

    Raises:
        OSError: One is missing, is not a regular file, or the folder is on another file system.
    """
    linked = []
    for index, layer in enumerate(layers):
        target = folder / name.format(index)
        with _regular(layer) as fd:
            if os.geteuid() == 0:
                os.fchown(fd, 0, 0)
            os.fchmod(fd, 0o444)
            # Only with a folder's descriptor does Python follow the link to the file that is meant.
            os.link(f"/proc/self/fd/{fd}", target, src_dir_fd=fd, follow_symlinks=True)
        linked.append(target)
    return tuple(linked)


def link_below(layers: Sequence[Path], folder: Path) -> tuple[Path, ...]:
    """Link a point's layers into a child's folder.

    Raises:
        OSError: As `freeze`.
    """
    return freeze(layers, folder, "below-{:02}.qcow2")


def disk_mib(layers: Sequence[Path]) -> float:
    """Return the disk space of layers in MiB."""
    return sum(path.stat(follow_symlinks=False).st_blocks * 512 for path in layers) / (1 << 20)


def _node(number: int) -> str:
    return f"{DISK_NODE}-{number}" if number else DISK_NODE


def _path(folder: Path, number: int) -> Path:
    return folder / f"top-{number}.qcow2"


def _top_number(answer: object) -> int:
    """Return the number of the layer on top, from the answer of `query-block`."""
    for device in answer if isinstance(answer, list) else ():
        inserted = device.get("inserted") if isinstance(device, dict) else None
        node = inserted.get("node-name") if isinstance(inserted, dict) else None
        if node == DISK_NODE:
            return 0
        if isinstance(node, str) and (match := _TOP_NODE.match(node)):
            return int(match.group(1))
    raise DiskChainError("QEMU does not have the replica's disk")


def _layers(folder: Path, overlay: Path, number: int) -> list[Path]:
    """Return the layers in a machine's folder, up to that of this number."""
    below, tops = [], []
    for path in folder.iterdir():
        if _BELOW.match(path.name):
            below.append(path)
        elif (match := _TOP.match(path.name)) and int(match.group(1)) <= number:
            tops.append((int(match.group(1)), path))
    own = [overlay] if overlay.exists() else []
    return [*sorted(below), *own, *(path for _number, path in sorted(tops))]


def _place(prepared: Path, path: Path) -> None:
    """Move a new file into a machine's folder and give it to the machine's user."""
    owner = path.parent.stat()
    with _regular(prepared) as fd:
        if os.geteuid() == 0:
            os.fchown(fd, owner.st_uid, owner.st_gid)
    # One that a killed host agent left there was never used.
    prepared.rename(path)


@contextlib.contextmanager
def _regular(path: Path) -> Iterator[int]:
    fd = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC | os.O_NONBLOCK)
    try:
        if not stat.S_ISREG(os.fstat(fd).st_mode):
            raise OSError(f"{path.name} is not a regular file")
        yield fd
    finally:
        os.close(fd)


async def _forget_nodes(qmp: Qmp, chain: DiskChain) -> None:
    """Close block nodes of layers that are not in use any more."""
    named = [f"{_FROZEN_NODE}-{len(chain.layers)}"]
    named += [f"{_FROZEN_NODE}-{index}" for index in reversed(range(len(chain.layers)))]
    named += [_node(number) for number in reversed(range(chain.number))] + [DISK_FILE_NODE]
    for name in named:
        with contextlib.suppress(QmpError):
            await qmp.execute("blockdev-del", {"node-name": name}, timeout_s=_QMP_TIMEOUT_S)


async def _cancel_job(qmp: Qmp, job: str) -> None:
    await qmp.execute("block-job-cancel", {"device": job, "force": True}, timeout_s=_QMP_TIMEOUT_S)
    deadline = time.monotonic() + _QMP_TIMEOUT_S
    while time.monotonic() < deadline:
        jobs = await qmp.execute("query-block-jobs", timeout_s=_QMP_TIMEOUT_S)
        if not any(entry.get("device") == job for entry in jobs):
            return
        await asyncio.sleep(_POLL_S)
