"""How long a step waits for a core: the finite-source queue M/M/c//K. Pure.

K replicas think (exponential, mean Z) and then want one of c cores for D CPU-seconds (exponential), first
come first served. This is the machine-repairman model (Gross, Harris, *Fundamentals of Queueing Theory*,
section on finite-source queues; in Kendall's notation M/M/c//K). What a replica uses while idle (b cores)
is taken off the cores beforehand. Real schedulers share a core instead of queueing; for exponential demand
that has the same mean, and a longer tail for long steps.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import lru_cache

from osgym_infra.errors import BadInput, CannotMeet

P95 = 0.95

NEGLIGIBLE = 1e-13
"""Probability of a state below which it is left out of a tail; thousands of them add less than 1e-9."""


@dataclass(frozen=True, slots=True)
class CpuLoad:
    """What a step of a loaded host looks like. Times are of the step's CPU work, waiting included.

    `slowdown` is the mean response over D; `utilisation` of the cores without the idle part;
    `steps_per_s` of all K replicas.
    """

    response_s: float
    p95_s: float
    slowdown: float
    utilisation: float
    steps_per_s: float


@dataclass(frozen=True, slots=True)
class Station:
    """c servers and one step's demand on them; fewer cores than one make every step slower instead."""

    servers: int
    service_s: float


def station(capacity_cores: float, replicas: int, idle_cores: float, step_cpu_s: float) -> Station | None:
    """The servers left for steps: c = floor(vCPU·ν − K·b); `None` when idling alone takes everything.

    Args:
        capacity_cores: vCPU·ν of the host.
        replicas: K.
        idle_cores: b.
        step_cpu_s: D, CPU-s.
    """
    left = capacity_cores - replicas * idle_cores
    if left <= 0:
        return None
    return Station(int(left), step_cpu_s) if left >= 1 else Station(1, step_cpu_s / left)


def distribution(servers: int, customers: int, ratio: float) -> list[float]:
    """P(n at the station), n = 0..K, of M/M/c//K.

    p(n) ∝ K!/(K−n)! · r^n / (n! for n ≤ c, else c!·c^(n−c)), r = D/Z; summed in logarithms, so that
    thousands of customers neither over- nor underflow.

    Args:
        servers: c ≥ 1.
        customers: K ≥ 0.
        ratio: r = D/Z > 0; infinite when nobody thinks (all K are then at the station).
    """
    if math.isinf(ratio):
        return [0.0] * customers + [1.0]
    logs = [0.0]
    for n in range(1, customers + 1):
        logs.append(logs[-1] + math.log(ratio * (customers - n + 1) / min(n, servers)))
    top = max(logs)
    weights = [math.exp(value - top) for value in logs]
    total = math.fsum(weights)
    return [weight / total for weight in weights]


@lru_cache(maxsize=4096)
def load(servers: int, customers: int, service_s: float, think_s: float) -> CpuLoad:
    """Mean and 95th percentile of the response of M/M/c//K, and its slowdown.

    Throughput X = μ·Σ min(n, c)·p(n); response R = K/X − Z (the interactive response time law). The
    percentile is of what an arriving step sees: by the arrival theorem the state with K − 1 customers.

    Args:
        servers: c ≥ 1.
        customers: K ≥ 1.
        service_s: D > 0, seconds of one core.
        think_s: Z ≥ 0, seconds.

    Raises:
        BadInput: there is no customer, no server or no service time.
    """
    _check(servers, customers, service_s, think_s)
    ratio = service_s / think_s if think_s else math.inf
    states = distribution(servers, customers, ratio)
    busy = math.fsum(min(n, servers) * p for n, p in enumerate(states))
    throughput = busy / service_s
    response = customers / throughput - think_s
    return CpuLoad(
        response_s=response,
        p95_s=quantile(servers, customers, service_s, think_s, P95),
        slowdown=response / service_s,
        utilisation=busy / servers,
        steps_per_s=throughput,
    )


def exceeds(servers: int, seen: list[float], service_s: float, t_s: float) -> float:
    """P(response > t) when `seen[j]` is the probability of finding j customers at the station.

    Who finds j < c starts at once: e^(−μt). Who finds j ≥ c waits for m = j − c + 1 departures at rate cμ and
    is then served: P(E_m + S > t) = Σ_{i<m} Pois(i; cμt) + C_m with C_m = Pois(m; cμt) + C_{m+1}·(c−1)/c,
    run backwards, where every term is positive and nothing cancels.
    """
    mean = servers * t_s / service_s
    total = math.fsum(seen[:servers]) * math.exp(-t_s / service_s)
    waiting = seen[servers:]
    while waiting and waiting[-1] < NEGLIGIBLE:
        waiting.pop()
    if not waiting:
        return total
    count = len(waiting)
    # Beyond the largest m the tail of C still counts: a few standard deviations past the Poisson's mean.
    last = count + int(mean + 12 * math.sqrt(mean + 1)) + 24
    pois = [math.exp(i * math.log(mean) - mean - math.lgamma(i + 1)) if mean else float(i == 0)
            for i in range(last + 1)]  # fmt: skip
    tail = [0.0] * (last + 2)
    for m in range(last, 0, -1):
        tail[m] = pois[m] + tail[m + 1] * (servers - 1) / servers
    below = 0.0
    for m, probability in enumerate(waiting, start=1):
        below += pois[m - 1]
        total += probability * min(1.0, below + tail[m])
    return total


def quantile(servers: int, customers: int, service_s: float, think_s: float, q: float) -> float:
    """The q-quantile of the response in seconds, to one part in 10⁶, by bisection over `exceeds`."""
    _check(servers, customers, service_s, think_s)
    seen = distribution(servers, customers - 1, service_s / think_s if think_s else math.inf)
    low, high = 0.0, service_s
    while exceeds(servers, seen, service_s, high) > 1 - q:
        low, high = high, high * 2
    while high - low > 1e-6 * high:
        middle = (low + high) / 2
        if exceeds(servers, seen, service_s, middle) > 1 - q:
            low = middle
        else:
            high = middle
    return high


def meets(
    capacity_cores: float, replicas: int, idle_cores: float, step_cpu_s: float, think_s: float, p95_s: float
) -> bool:
    """Whether K replicas keep the 95th percentile of a step's response at or below `p95_s`."""
    at = station(capacity_cores, replicas, idle_cores, step_cpu_s)
    if at is None:
        return False
    seen = distribution(at.servers, replicas - 1, at.service_s / think_s if think_s else math.inf)
    return exceeds(at.servers, seen, at.service_s, p95_s) <= 1 - P95


def largest_k(
    capacity_cores: float,
    idle_cores: float,
    step_cpu_s: float,
    think_s: float,
    p95_s: float,
    limit: int = 8192,
) -> int:
    """The largest K ≤ `limit` whose p95 response is at most `p95_s`; more replicas never answer faster.

    Raises:
        CannotMeet: one replica alone is slower than that. For exponential demand that is D·ln 20 ≈ 3·D.
    """
    if step_cpu_s <= 0:
        return limit

    def good(replicas: int) -> bool:
        return meets(capacity_cores, replicas, idle_cores, step_cpu_s, think_s, p95_s)

    if not good(1):
        alone = station(capacity_cores, 1, idle_cores, step_cpu_s)
        least = math.log(20) * (alone.service_s if alone else math.inf)
        raise CannotMeet(
            "p95_ms",
            f"{p95_s * 1000:.0f} ms is less than one replica alone needs",
            f"{math.ceil(least * 1000)} ms or more would do"
            if math.isfinite(least)
            else "no host of this size can",
            {"least_ms": least * 1000},
        )
    low, high = 1, 2
    while high <= limit and good(high):
        low, high = high, high * 2
    high = min(high, limit + 1)
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (middle, high) if good(middle) else (low, middle)
    return low


def knee(capacity_cores: float, idle_cores: float, step_cpu_s: float, think_s: float) -> float:
    """K* = (vCPU·ν) / (b + D/(Z + D)): where the two asymptotes of the response cross.

    Below it a step runs as if alone, above it each further replica adds D/c to every step (asymptotic
    bounds of closed systems, Lazowska et al. 1984, chapter 5), with the idle CPU b taken off.
    """
    used = idle_cores + (step_cpu_s / (think_s + step_cpu_s) if step_cpu_s else 0.0)
    return capacity_cores / used if used else math.inf


def _check(servers: int, customers: int, service_s: float, think_s: float) -> None:
    if servers < 1:
        raise BadInput("servers", f"{servers} cores cannot serve", "1 or more")
    if customers < 1:
        raise BadInput("replicas", f"{customers} replicas", "1 or more")
    if not service_s > 0:
        raise BadInput("step_cpu_s", f"{service_s} CPU-s per step", "above 0")
    if think_s < 0:
        raise BadInput("think_s", f"{think_s} s", "0 or more")
