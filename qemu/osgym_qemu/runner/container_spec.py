"""Specification of a runner container for Docker. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from osgym_host.runtimes.replica_cgroup import Caps

ENTRY_PATH = "/usr/lib/osgym/entry.py"
"""Path of the entry in the runner image."""

LABEL_INSTANCE = "osgym.instance"
LABEL_NAME = "osgym.vm"

_MIB = 1024 * 1024
_NOFILE = 1024
_TMP = "rw,noexec,nosuid,nodev,size=16m,mode=1777"


@dataclass(frozen=True, slots=True)
class ContainerPlan:
    """Plan of one container.

    Attributes:
        mark: Mark of the instance, unique on this daemon.
        folder: Folder of the machine, the only writable one besides a small /tmp.
        reads: Files and folders that QEMU reads.
        kvm: True to pass /dev/kvm on.
        kvm_group: Group of /dev/kvm, where not everybody may use it.
    """

    mark: str
    name: str
    image: str
    user: int
    folder: Path
    reads: tuple[Path, ...] = ()
    caps: Caps = field(default_factory=Caps)
    max_file_mib: int | None = None
    kvm: bool = False
    kvm_group: int | None = None


def create_body(plan: ContainerPlan) -> dict[str, Any]:
    """Return the body of Docker's `POST /containers/create` (API 1.41).

    Paths are mounted where they are on the host, so one argument vector fits both ways to run. Output is
    not logged by the daemon: the entry is given a bounded file for it.
    """
    return {
        "Image": plan.image,
        "Entrypoint": ["/usr/bin/python3", "-I", "-S", ENTRY_PATH],
        "Cmd": [],
        "User": f"{plan.user}:{plan.user}",
        "WorkingDir": str(plan.folder),
        "Env": [],
        "Labels": labels(plan.mark, plan.name),
        "Hostname": "runner",
        "HostConfig": {
            "NetworkMode": "none",
            "IpcMode": "none",
            "CapDrop": ["ALL"],
            "SecurityOpt": ["no-new-privileges:true"],  # the daemon's seccomp profile stays on
            "ReadonlyRootfs": True,
            "Tmpfs": {"/tmp": _TMP},  # noqa: S108  # inside
            "Mounts": [_mount(plan.folder, read_only=False)]
            + [_mount(path, read_only=True) for path in plan.reads],
            "LogConfig": {"Type": "none", "Config": {}},
            "RestartPolicy": {"Name": "no", "MaximumRetryCount": 0},
            "Ulimits": _limits(plan),
            **_devices(plan),
            **_caps(plan.caps),
        },
    }


def labels(mark: str, name: str | None = None) -> dict[str, str]:
    return {LABEL_INSTANCE: mark} | ({LABEL_NAME: name} if name is not None else {})


def label_filters(mark: str) -> Mapping[str, list[str]]:
    """Return the filter of `GET /containers/json` for an instance's containers."""
    return {"label": [f"{LABEL_INSTANCE}={mark}"]}


def _mount(path: Path, *, read_only: bool) -> dict[str, Any]:
    options = {"Propagation": "rprivate"}
    return {
        "Type": "bind",
        "Source": str(path),
        "Target": str(path),
        "ReadOnly": read_only,
        "BindOptions": options,
    }


def _limits(plan: ContainerPlan) -> list[dict[str, Any]]:
    limits = {"core": 0, "nofile": _NOFILE}
    if plan.max_file_mib is not None:
        limits["fsize"] = plan.max_file_mib * _MIB
    return [{"Name": name, "Soft": value, "Hard": value} for name, value in limits.items()]


def _devices(plan: ContainerPlan) -> dict[str, Any]:
    if not plan.kvm:
        return {}
    device = {"PathOnHost": "/dev/kvm", "PathInContainer": "/dev/kvm", "CgroupPermissions": "rw"}
    groups = [str(plan.kvm_group)] if plan.kvm_group is not None else []
    return {"Devices": [device], "GroupAdd": groups}


def _caps(caps: Caps) -> dict[str, Any]:
    found: dict[str, Any] = {}
    if caps.ram_mib is not None:
        found |= {"Memory": caps.ram_mib * _MIB, "MemorySwap": caps.ram_mib * _MIB}
    if caps.cpus is not None:
        found["NanoCpus"] = max(10_000_000, round(caps.cpus * 1e9))
    if caps.pids is not None:
        found["PidsLimit"] = caps.pids
    return found
