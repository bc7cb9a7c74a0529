"""Cloning of a golden snapshot: parked machines, resumed as replicas, identified, adopted."""

from osgym_host.runtimes.qemu.cloning.adoption import AdoptableVms
from osgym_host.runtimes.qemu.cloning.guest_identity import (
    IdentityRefused,
    assign,
    give_up_token,
    new_identity,
)
from osgym_host.runtimes.qemu.cloning.managed_vm import VmOptions
from osgym_host.runtimes.qemu.cloning.parked_pool import ParkedPoolOptions
from osgym_host.runtimes.qemu.cloning.replica import QemuReplica
from osgym_host.runtimes.qemu.cloning.resume import CloneResumer, check_spec
from osgym_host.runtimes.qemu.cloning.snapshot_registry import ParkedPools, SnapshotRegistry
from osgym_host.runtimes.qemu.cloning.vm_manager import VmManager

__all__ = [
    "AdoptableVms",
    "CloneResumer",
    "IdentityRefused",
    "ParkedPoolOptions",
    "ParkedPools",
    "QemuReplica",
    "SnapshotRegistry",
    "VmManager",
    "VmOptions",
    "assign",
    "check_spec",
    "give_up_token",
    "new_identity",
]
