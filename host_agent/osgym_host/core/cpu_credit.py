"""CPU credit of replicas: without credit a replica runs with a low CPU weight. Pure.

The credit is a token bucket: it grows at a steady rate up to a bound, and what a replica computes is taken
from it. Starting an application fits in; endless loops do not. A low weight costs nothing while processors
are idle, and beside others it leaves them theirs.
"""

from __future__ import annotations

from dataclasses import dataclass, field

NORMAL_WEIGHT = 100
"""The kernel's default (cgroup v2, `cpu.weight`)."""


@dataclass(frozen=True, slots=True)
class CreditTerms:
    """CPU time that a replica may use at its full weight.

    Attributes:
        burst_cpu_s: Largest credit, in seconds of one core. A start of LibreOffice uses about 4.
        cores: Credit per second, which is the CPU share that a replica may always use.
        low_weight: Weight without credit; `NORMAL_WEIGHT` with it. Measured by
            `benchmarks.noisy_neighbour`: see benchmarks/README.md.
    """

    burst_cpu_s: float = 4.0
    cores: float = 0.5
    low_weight: int = 2


@dataclass(slots=True)
class CpuCredit:
    """Credit of one replica, full at first."""

    terms: CreditTerms
    left_cpu_s: float = field(init=False)
    low: bool = False
    _seen: tuple[float, float] | None = None

    def __post_init__(self) -> None:
        self.left_cpu_s = self.terms.burst_cpu_s

    def take(self, now: float, used_cpu_s: float) -> bool:
        """Subtract the CPU time used since creation; return whether the weight changes.

        The weight is low from the moment that nothing is left until half of the burst is there again. Debt
        is bounded by the burst, so that one who stops is soon let off.
        """
        seen, self._seen = self._seen, (now, used_cpu_s)
        if seen is None:
            return False
        gained = max(0.0, now - seen[0]) * self.terms.cores
        spent = max(0.0, used_cpu_s - seen[1])
        burst = self.terms.burst_cpu_s
        self.left_cpu_s = min(burst, max(-burst, self.left_cpu_s + gained - spent))
        was = self.low
        self.low = self.left_cpu_s < burst / 2 if was else self.left_cpu_s <= 0
        return self.low is not was

    @property
    def weight(self) -> int:
        return self.terms.low_weight if self.low else NORMAL_WEIGHT
