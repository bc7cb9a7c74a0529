"""Capacity of a host for more replicas, from measurements of its load and its replicas."""

from __future__ import annotations

from collections import defaultdict, deque
from collections.abc import Callable, Sequence

from osgym_host.core.admission import Admission, Budget, ImageLoad, MeasuredLoad, RestingLoad, admit
from osgym_host.core.disk_pressure import DiskRoom
from osgym_host.replicas.manager import ReplicaManager

LoadProbe = Callable[[], tuple[float, int, DiskRoom]]
"""Function that returns available RAM in MiB, cores, and free disk in MiB."""


class MeasuredAdmission:
    """Feeds measurements to `core.admission`, and keeps the peaks of retired replicas."""

    def __init__(self, budget: Budget, probe: LoadProbe) -> None:
        """Admit nothing before the first measurement."""
        self.budget = budget
        self.now = Admission(0, admit(budget, MeasuredLoad(0, 1, 0)).limit, float(budget.ram_cap_mib))
        self._probe = probe
        self._peaks: defaultdict[str, deque[float]] = defaultdict(lambda: deque(maxlen=128))

    def disk_room(self) -> DiskRoom:
        """Return the free space where replicas write."""
        return self._probe()[2]

    def available_mib(self) -> float:
        """Return the available memory of the host."""
        return self._probe()[0]

    def measure(
        self,
        managers: Sequence[ReplicaManager],
        *,
        pending: int,
        existing: int,
        resting: RestingLoad | None = None,
    ) -> Admission:
        """Return how many more replicas may start beside `existing`, of which `pending` still start.

        Raises:
            OSError: The load cannot be read.
        """
        available, cores, disk = self._probe()
        load = MeasuredLoad(
            ram_available_mib=available,
            cores=cores,
            disk_free_mib=disk.free_mib,
            images=self._images(managers),
            pending=pending,
            existing=existing,
            resting=resting,
        )
        return admit(self.budget, load)

    def remember(self, manager: ReplicaManager) -> None:
        """Keep the peak of a replica that is gone, for the estimate."""
        if manager.peak_mib > 0:
            self._peaks[manager.spec.image.digest].append(manager.peak_mib)

    def _images(self, managers: Sequence[ReplicaManager]) -> list[ImageLoad]:
        live: defaultdict[str, list[ReplicaManager]] = defaultdict(list)
        for manager in managers:
            live[manager.spec.image.digest].append(manager)
        return [
            ImageLoad(
                [*self._peaks.get(image, ()), *(m.peak_mib for m in live[image] if m.peak_mib > 0)],
                [m.pss_mib for m in live[image] if m.pss_mib is not None],
            )
            for image in {*self._peaks, *live}
        ]
