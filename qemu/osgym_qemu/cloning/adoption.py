"""Machines of a previous host agent that go on under this one."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Collection
from dataclasses import dataclass

from osgym_host.errors import OsgymHostError
from osgym_host.runtimes.base import ReplicaNotFound, ReplicaRecord, ReplicaSpec, Screen
from osgym_qemu.agentless.attach import is_agentless
from osgym_qemu.cloning.managed_vm import ManagedVm
from osgym_qemu.cloning.replica import QemuReplica
from osgym_qemu.cloning.resume import CloneResumer
from osgym_qemu.cloning.snapshot_registry import MissingImage, SnapshotRegistry
from osgym_qemu.cloning.vm_manager import VmManager
from osgym_qemu.golden.snapshot import GoldenSnapshot
from osgym_qemu.machine.records import ReplicaFacts, VmRecord

_AT_ONCE = 16


@dataclass(frozen=True, slots=True)
class AdoptableVms:
    """The replicas of a previous host agent that still run, until each is adopted or reaped."""

    by_id: dict[str, ManagedVm]

    @classmethod
    async def find(cls, vms: VmManager) -> AdoptableVms:
        """Take over every machine that runs as a replica; `VmManager.reap` removes the others."""
        slots = asyncio.Semaphore(_AT_ONCE)

        async def adopt(record: VmRecord) -> ManagedVm | None:
            async with slots:
                vm = await vms.adopt(record)
            if vm is not None:
                await _cap(vm)
            return vm

        records = [record for record in vms.records.read_all() if record.adoptable]
        found = await asyncio.gather(*map(adopt, records))
        return cls({_facts_of(vm).replica_id: vm for vm in found if vm is not None})

    @property
    def names(self) -> Collection[str]:
        return [vm.name for vm in self.by_id.values()]

    def records(self) -> tuple[ReplicaRecord, ...]:
        return tuple(vm.record.as_replica(vm.address) for vm in self.by_id.values())

    def require(self, record: ReplicaRecord) -> ManagedVm:
        """Return the machine of a record.

        Raises:
            ReplicaNotFound: The machine is gone, or of another generation.
        """
        vm = self._get(record)
        if vm is None or not vm.is_alive:
            raise ReplicaNotFound(f"{record.replica_id} no longer exists", replica_id=record.replica_id)
        return vm

    async def adopt(self, vm: ManagedVm, snapshots: SnapshotRegistry, resumer: CloneResumer) -> QemuReplica:
        """Make a replica of a running machine: same process, same guest, same token.

        Raises:
            ReplicaNotFound: The machine cannot be used any more.
        """
        golden = snapshots.find(vm.record.snapshot)
        spec = _spec_of(vm, golden or MissingImage(vm.record.snapshot))
        del self.by_id[spec.replica_id]
        replica = QemuReplica(spec, vm, spec.token)
        if golden is not None and is_agentless(golden):
            try:
                await resumer.serve_agentless(replica, golden)
            except (OsgymHostError, OSError) as exc:
                self.by_id[spec.replica_id] = vm
                await replica.close()
                raise ReplicaNotFound(f"{spec.replica_id}: {exc}", replica_id=spec.replica_id) from exc
        return replica

    async def reap(self, record: ReplicaRecord) -> None:
        """Remove a machine that nobody adopts. Idempotent.

        Raises:
            ReplicaDestroyFailed: Something is left.
        """
        vm = self._get(record)
        if vm is not None:
            await asyncio.shield(vm.remove())
            self.by_id.pop(record.replica_id, None)

    async def remove_all(self) -> list[BaseException]:
        """Remove the machines that were neither adopted nor reaped; return the errors."""
        removals = (vm.remove() for vm in self.by_id.values())
        results = await asyncio.gather(*removals, return_exceptions=True)
        self.by_id.clear()
        return [result for result in results if isinstance(result, BaseException)]

    def _get(self, record: ReplicaRecord) -> ManagedVm | None:
        vm = self.by_id.get(record.replica_id)
        return vm if vm is not None and _facts_of(vm).generation == record.generation else None


async def _cap(vm: ManagedVm) -> None:
    """Set a machine's caps again: under systemd its group loses them before the next host agent starts."""
    if vm.group is not None:
        with contextlib.suppress(OSError):
            await asyncio.to_thread(vm.group.set_caps, _facts_of(vm).caps)


def _facts_of(vm: ManagedVm) -> ReplicaFacts:
    assert vm.record.replica is not None  # checked by `adoptable`
    return vm.record.replica


def _spec_of(vm: ManagedVm, image: GoldenSnapshot | MissingImage) -> ReplicaSpec:
    """Return the spec with which a replica was created, without its origin."""
    facts = _facts_of(vm)
    return ReplicaSpec(
        replica_id=facts.replica_id,
        generation=facts.generation,
        image=image,
        screen=Screen(*facts.screen),
        ram_mib=facts.ram_mib,
        cpus=facts.cpus,
        pids=facts.pids,
        egress=facts.egress,
        token=facts.token,
    )
