"""Machines of a former host agent that go on under this one."""

from __future__ import annotations

import asyncio
import contextlib
from dataclasses import dataclass

from osgym_host.runtimes.base import ImageLike, ReplicaSpec
from osgym_host.runtimes.cgroups import Caps
from osgym_host.runtimes.qemu.records import ReplicaFacts, VmRecord
from osgym_host.runtimes.qemu.vms import Vm, VmYard

_AT_ONCE = 16


@dataclass(frozen=True, slots=True)
class GoneImage:
    """A snapshot that is no longer in the store, though machines cloned from it still run."""

    digest: str


async def find_replicas(yard: VmYard) -> dict[str, Vm]:
    """Take over every replica that still runs, by its id; the others are left to `VmYard.reap`."""
    slots = asyncio.Semaphore(_AT_ONCE)

    async def adopt(record: VmRecord) -> Vm | None:
        async with slots:
            vm = await yard.adopt(record)
        if vm is not None:
            await _cap(vm)
        return vm

    records = [record for record in yard.records.read_all() if record.adoptable]
    found = await asyncio.gather(*map(adopt, records))
    return {facts_of(vm).replica_id: vm for vm in found if vm is not None}


async def _cap(vm: Vm) -> None:
    """Cap a machine as it was: under systemd its group loses the caps before the next host agent starts."""
    facts = facts_of(vm)
    if vm.group is not None:
        caps = Caps(ram_mib=facts.ram_mib, cpus=facts.cpus, pids=facts.pids)
        with contextlib.suppress(OSError):
            await asyncio.to_thread(vm.group.set_caps, caps)


def facts_of(vm: Vm) -> ReplicaFacts:
    """Which replica a machine is; only for one that is a replica."""
    assert vm.record.replica is not None
    return vm.record.replica


def spec_of(vm: Vm, image: ImageLike) -> ReplicaSpec:
    """The spec of a replica as it was created with, but for where it came from."""
    facts = facts_of(vm)
    return ReplicaSpec(
        replica_id=facts.replica_id,
        generation=facts.generation,
        image=image,
        screen=vm.record.screen(),
        ram_mib=facts.ram_mib,
        cpus=facts.cpus,
        pids=facts.pids,
        egress=facts.egress,
        token=facts.token,
    )
