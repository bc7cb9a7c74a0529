"""Resuming of parked processes as replicas: caps, state, first instruction, identity."""

from __future__ import annotations

import asyncio
import logging
import secrets
from dataclasses import dataclass

from osgym_host.errors import OsgymHostError
from osgym_host.runtimes.base import (
    PointNotFound,
    ReplicaCreateFailed,
    ReplicaDestroyFailed,
    ReplicaSpec,
    RuntimeNotRunning,
    RuntimeUnsupported,
)
from osgym_host.runtimes.replica_cgroup import Caps
from osgym_qemu.agentless.attach import AgentlessGuests, is_agentless
from osgym_qemu.branching import BranchChild, BranchPointStore
from osgym_qemu.cloning import guest_identity as identity
from osgym_qemu.cloning.guest_identity import IdentityRefused
from osgym_qemu.cloning.managed_vm import ManagedVm
from osgym_qemu.cloning.replica import QemuReplica
from osgym_qemu.cloning.snapshot_registry import ParkedPools
from osgym_qemu.cloning.vm_manager import VmManager
from osgym_qemu.golden.snapshot import GoldenSnapshot
from osgym_qemu.machine.records import ReplicaFacts, VmPhase
from osgym_qemu.network.base import Network

log = logging.getLogger(__name__)

_TOKEN_BYTES = 24
_LOAD_TIMEOUT_S = 15.0


@dataclass(frozen=True, slots=True)
class CloneResumer:
    """Maker of replicas from parked machines.

    Attributes:
        slots: Semaphore for clones that resume at the same time.
        identity_timeout_s: Deadline from the clone's first instruction to its acknowledged identity.
    """

    vms: VmManager
    pools: ParkedPools
    network: Network
    points: BranchPointStore
    agentless: AgentlessGuests
    slots: asyncio.Semaphore
    parked_caps: Caps
    identity_timeout_s: float

    async def create(self, spec: ReplicaSpec, golden: GoldenSnapshot) -> QemuReplica:
        """Take a parked machine and make a replica of it. On failure nothing of it is left.

        Raises:
            ReplicaCreateFailed: A step failed; the error names it.
            PointNotFound: The spec's origin was released.
            RuntimeNotRunning: The pools are closed.
        """
        pool = self.pools.of(golden)
        try:
            vm = await pool.take()
        except RuntimeNotRunning:
            raise
        except (OsgymHostError, OSError) as exc:
            raise ReplicaCreateFailed(str(exc), step="park", replica_id=spec.replica_id) from exc
        with pool.resuming():
            async with self.slots:
                return await self._resume(vm, spec, golden)

    async def _resume(self, vm: ManagedVm, spec: ReplicaSpec, golden: GoldenSnapshot) -> QemuReplica:
        """Make a replica of a parked machine. On failure, also when cancelled, the machine is removed.

        Raises:
            ReplicaCreateFailed: A step failed; the error names it.
            PointNotFound: The spec's origin was released.
        """
        step = "prepare"
        replica: QemuReplica | None = None
        try:
            token = spec.token or secrets.token_urlsafe(_TOKEN_BYTES)
            await self._apply_spec(vm, spec, token)
            step = "load"
            old_token = await self._load(vm, spec, golden)
            replica = QemuReplica(spec, vm, token)
            step = "wake"
            await vm.machine.cont(timeout_s=_LOAD_TIMEOUT_S)
            step = "identity"
            if is_agentless(golden):
                await self.serve_agentless(replica, golden)
                await self.agentless.identify(golden, vm.address, spec.replica_id)
            else:
                await self._identify(replica, old_token, token)
            self.vms.update_record(vm, vm.record.model_copy(update={"phase": VmPhase.RUNNING}))
        except BaseException as exc:
            await asyncio.shield(self._discard(vm, replica))
            if isinstance(exc, PointNotFound) or not isinstance(exc, OsgymHostError | OSError):
                raise
            tail = replica.console_tail() if replica is not None else ""
            raise ReplicaCreateFailed(
                f"a clone of {golden.name} could not be resumed: {exc}",
                step=step,
                replica_id=spec.replica_id,
                log_tail=tail,
            ) from exc
        return replica

    async def serve_agentless(self, replica: QemuReplica, golden: GoldenSnapshot) -> None:
        """Serve the guest protocol for a machine without a guest agent.

        Raises:
            QmpError, OSError: Its screen cannot be reached, or its socket not be made.
        """
        vm = replica.vm
        replica.agentless = await self.agentless.serve(
            golden, vm.name, vm.folder, vm.pid, vm.address, replica.generation
        )

    async def _apply_spec(self, vm: ManagedVm, spec: ReplicaSpec, token: str) -> None:
        """Apply the spec's caps to a parked machine, and record the replica."""
        facts = ReplicaFacts(
            replica_id=spec.replica_id,
            generation=spec.generation,
            token=token,
            screen=(spec.screen.width_px, spec.screen.height_px),
            ram_mib=spec.ram_mib,
            cpus=spec.cpus,
            pids=spec.pids,
            egress=spec.egress,
        )
        self.vms.update_record(vm, vm.record.model_copy(update={"phase": VmPhase.RESUMING, "replica": facts}))
        if facts.caps != self.parked_caps and vm.group is not None:
            vm.group.set_caps(facts.caps)
        await self.network.allow(vm.name, spec.egress)

    async def _load(self, vm: ManagedVm, spec: ReplicaSpec, golden: GoldenSnapshot) -> str | None:
        """Load the state of the snapshot or of the branch point; return the token that its guest knows."""
        if spec.origin is None:
            if vm.control is not None:
                vm.control.close()
            await vm.machine.load_state(golden.state, timeout_s=_LOAD_TIMEOUT_S)
            return golden.token
        child = BranchChild(vm.machine, vm.ram, vm.folder, vm.overlay, golden, vm.control)
        return await self.points.restore(spec.origin, child)

    async def _identify(self, replica: QemuReplica, old_token: str | None, token: str) -> None:
        """Give the clone an identity of its own, unless it dies first.

        Raises:
            IdentityRefused: The guest refused the identity, or the clone died.
        """
        spec = replica.spec
        made = identity.new_identity(spec.generation, token)
        asking = asyncio.create_task(
            identity.assign(replica.guest, old_token, made, timeout_s=self.identity_timeout_s)
        )
        dying = asyncio.create_task(replica.wait_dead())
        try:
            await asyncio.wait((asking, dying), return_when=asyncio.FIRST_COMPLETED)
            if not asking.done():
                raise IdentityRefused(f"the clone ended: {dying.result().detail}")
            replica.desktop_ready = (await asking).get("desktop_ready") is True
        finally:
            for task in (asking, dying):
                task.cancel()
            await asyncio.gather(asking, dying, return_exceptions=True)

    async def _discard(self, vm: ManagedVm, replica: QemuReplica | None) -> None:
        if replica is not None:
            await replica.read_console()
            replica.destroying = True
        try:
            await vm.remove()
        except ReplicaDestroyFailed:  # its record is still there, and the next start reads it
            log.exception("a clone that failed could not be removed completely")
        if replica is not None:
            await replica.close()


def check_spec(spec: ReplicaSpec, golden: GoldenSnapshot, network: Network) -> None:
    """Refuse a spec that a clone of the snapshot cannot have.

    Raises:
        RuntimeUnsupported: The spec asks for another screen, egress or image; the message says what to do.
    """
    if spec.egress not in network.egress:
        raise RuntimeUnsupported(
            f"this host's virtual machines cannot have egress {spec.egress.value!r}.",
            remedy=f"Possible values: {', '.join(sorted(network.egress))}.",
            replica_id=spec.replica_id,
        )
    if spec.screen != golden.screen:
        raise RuntimeUnsupported(
            f"the desktop of {golden.name} was frozen at {golden.screen}, not {spec.screen}.",
            remedy="Leave `screen` out, or make a snapshot with that screen size.",
            replica_id=spec.replica_id,
        )
    if spec.environment:
        raise RuntimeUnsupported(
            "the session of a clone already runs, so it cannot get an environment", replica_id=spec.replica_id
        )
    if spec.origin is not None and spec.origin.image_digest != golden.digest:
        raise RuntimeUnsupported(
            "a child needs the snapshot that its parent was cloned from", replica_id=spec.replica_id
        )
