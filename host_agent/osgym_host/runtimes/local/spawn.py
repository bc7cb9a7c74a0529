"""Checks of a replica's spec, and the request to the zygote that is made of it."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from osgym_host.images.idmap import IdMap
from osgym_host.runtimes.base import HOSTNAME, Egress, ReplicaSpec, RootfsImage, RuntimeUnsupported
from osgym_host.runtimes.local import isolation
from osgym_host.runtimes.local.replica import LocalReplica
from osgym_host.runtimes.replica_table import check_name
from osgym_host.runtimes.web.proxy_setup import PORT, ProxySetup

ONE_PID_NAMESPACE = "OSGYM_ONE_PID_NAMESPACE"
"""Environment variable that makes the image's session start programs in the guest agent's own namespaces."""
_RUN_MIB = 128
_LEAST_TMP_MIB = 256
_DEFAULT_RAM_MIB = 4096
_NOFILE = 65536


def request(
    replica: LocalReplica,
    pids_capped: bool,
    name_server: str = "",
    web: ProxySetup | None = None,
    *,
    can_be_dumped: bool = False,
) -> dict[str, Any]:
    """Return the fields of a `spawn` request (see `protocol`).

    Args:
        can_be_dumped: True if CRIU may dump the replica. CRIU dumps no nested PID namespaces, so programs of
            the desktop then share that of the guest agent.
        web: Variables and files that make programs use the host's proxy; None: no proxy.
    """
    spec = replica.spec
    image = rootfs_image(spec)
    manifest = image.manifest
    # For an ordinary user the zygote numbers the user's subordinate ids from 1.
    of_image = (manifest.uid_base, manifest.gid_base) if os.geteuid() == 0 else (1, 1)
    uid_base, gid_base = of_image if replica.ids is None else (replica.ids.base, replica.ids.base)
    return {
        "key": replica.key,
        "rootfs": os.fspath(image.rootfs.absolute()),
        "folder": os.fspath(replica.folder.absolute()),
        "uid_base": uid_base,
        "gid_base": gid_base,
        "image_uid_base": of_image[0],
        "image_gid_base": of_image[1],
        "hostname": HOSTNAME,
        "environment": _environment(spec, {} if web is None else web.environment, can_be_dumped),
        "limits": _limits(spec, pids_capped),
        "counts": isolation.counts(own_ids=replica.ids is not None),
        "cgroup_procs": replica.group.procs_files,
        "session_procs": [] if replica.group.session is None else replica.group.session.procs_files,
        "name_server": name_server,
        "files": [] if web is None else web.files,
        "proxy_port": 0 if web is None else PORT,
    }


def rootfs_image(spec: ReplicaSpec) -> RootfsImage:
    """Return the spec's image, which must be a folder of files.

    Raises:
        RuntimeUnsupported: The image is of another kind, such as a virtual machine's snapshot.
    """
    if not isinstance(spec.image, RootfsImage):
        raise RuntimeUnsupported(
            "the local runtime needs an image that is a folder of files",
            remedy="Bake one with `osgym image build`.",
            replica_id=spec.replica_id,
        )
    return spec.image


def check_spec(spec: ReplicaSpec, idmap: IdMap, egress: frozenset[Egress], *, origins: bool = False) -> None:
    """Refuse a spec that is malformed or asks for what this host cannot do.

    Args:
        egress: Policies that can be carried out.
        origins: True if clones of branch points can be made.

    Raises:
        ValueError: A field is malformed.
        RuntimeUnsupported: Another egress, or an image of another user.
    """
    check_name("replica_id", spec.replica_id)
    if spec.origin is not None and not origins:
        raise RuntimeUnsupported(
            "the local runtime was started without branch points",
            remedy="Set branching, task_templates or warm_clones to on.",
            replica_id=spec.replica_id,
        )
    if spec.generation < 0:
        raise ValueError(f"generation must not be negative: {spec.generation}")
    for name, cap in (("ram_mib", spec.ram_mib), ("cpus", spec.cpus), ("pids", spec.pids)):
        if cap is not None and cap <= 0:
            raise ValueError(f"{name} must be positive: {cap}")
    if spec.egress not in egress:
        raise RuntimeUnsupported(
            f"the local runtime was started without egress {spec.egress}.",
            remedy=f"Run the host agent with egress set to {spec.egress}.",
            replica_id=spec.replica_id,
        )
    manifest = rootfs_image(spec).manifest
    if os.geteuid() != 0 and (manifest.uid_base, manifest.gid_base) != (idmap.uid_base, idmap.gid_base):
        raise RuntimeUnsupported(
            "the image belongs to another user's subordinate ids.",
            remedy="Bake it as this user.",
            replica_id=spec.replica_id,
        )


def _environment(spec: ReplicaSpec, web: dict[str, str], can_be_dumped: bool) -> dict[str, str]:
    environment = {"PATH": "/usr/local/bin:/usr/bin:/bin:/usr/sbin:/sbin", **web, **dict(spec.environment)}
    environment |= {
        "OSGYM_SCREEN": str(spec.screen),
        "OSGYM_REPLICA_ID": spec.replica_id,
        "OSGYM_GENERATION": str(spec.generation),
        "LISTEN_FDS": "1",
    }
    if spec.token is not None:
        environment["OSGYM_TOKEN"] = spec.token
    if can_be_dumped:
        environment[ONE_PID_NAMESPACE] = "1"
    return environment


def _limits(spec: ReplicaSpec, pids_capped: bool) -> dict[str, int]:
    """Return bounds that hold without control groups. A memory cap also bounds files in memory."""
    half = max(_LEAST_TMP_MIB, (spec.ram_mib or _DEFAULT_RAM_MIB) // 2)
    nproc = spec.pids if spec.pids is not None and not pids_capped else 0
    return {
        "run_mib": _RUN_MIB,
        "tmp_mib": half,
        "shm_mib": half,
        "nofile": _NOFILE,
        "nproc": nproc,
        "sigpending": isolation.SIGPENDING,
        "msgqueue": isolation.MSGQUEUE_BYTES,
    }


@contextlib.contextmanager
def console(folder: Path) -> Iterator[int]:
    """Open the console log of a fresh replica for appending."""
    flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_APPEND | os.O_CLOEXEC
    fd = os.open(folder / "console.log", flags, 0o600)
    try:
        # So that a program inside may open /dev/stderr; nobody outside can reach the folder.
        os.fchmod(fd, 0o622)
        yield fd
    finally:
        os.close(fd)
