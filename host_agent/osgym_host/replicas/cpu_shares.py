"""CPU weights of replicas: heavy users get a lower one, so that steps of their neighbours stay fast."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable, Sequence

from osgym_host.core.cpu_credit import CpuCredit, CreditTerms
from osgym_host.core.states import ReplicaState
from osgym_host.log_subject import Named, about
from osgym_host.replicas.manager import ReplicaManager
from osgym_host.runtimes import base

log = logging.getLogger(__name__)

TICK_S = 0.5
_LIVE = (ReplicaState.READY, ReplicaState.LEASED)


class CpuShares:
    """Tracks the CPU credit of every replica of a pool."""

    def __init__(
        self,
        runtime: base.Runtime,
        managers: Callable[[], Sequence[ReplicaManager]],
        terms: CreditTerms | None = None,
        tick_s: float = TICK_S,
    ) -> None:
        """Prepare. Without credit to give, weights are not changed."""
        self._runtime = runtime
        self._managers = managers
        self._terms = terms or CreditTerms()
        self._tick_s = tick_s
        self._credits: dict[tuple[str, int], CpuCredit] = {}

    async def run(self) -> None:
        """Check the replicas until cancelled."""
        while self._terms.burst_cpu_s > 0:
            await asyncio.sleep(self._tick_s)
            live = [(m, m.clone) for m in self._managers() if m.state in _LIVE and m.clone and m.awake]
            await asyncio.to_thread(self._look, live)

    def _look(self, live: Sequence[tuple[ReplicaManager, base.Replica]]) -> None:
        """Read and write files of the kernel: some 20 µs for each replica."""
        keys = {(clone.replica_id, clone.generation) for _, clone in live}
        for key in self._credits.keys() - keys:
            del self._credits[key]
        for manager, clone in live:
            with about(Named(clone.replica_id, clone.generation)):
                try:
                    manager.cpu_lowered = self._judge(clone)
                except (base.RuntimeFault, OSError) as error:  # it is ending, most likely
                    log.debug(
                        "the CPU weight of replica %s could not be changed: %s", clone.replica_id, error
                    )

    def _judge(self, clone: base.Replica) -> bool:
        """Set a replica's CPU weight by its credit; return whether the weight is low."""
        used_cpu_s = self._runtime.used_cpu_s(clone)
        if used_cpu_s is None:
            return False
        key = (clone.replica_id, clone.generation)
        credit = self._credits.get(key)
        if credit is None:
            credit = self._credits[key] = CpuCredit(self._terms)
            self._runtime.set_cpu_weight(clone, credit.weight)  # a previous host agent may have lowered it
        if not credit.take(time.monotonic(), used_cpu_s):
            return credit.low
        self._runtime.set_cpu_weight(clone, credit.weight)
        if credit.low:
            log.info(
                "replica %s has used its credit of CPU time (%.0f s of it in all): its CPU weight is %d now",
                clone.replica_id,
                used_cpu_s,
                credit.weight,
            )
        return credit.low
