"""Fit of memory, CPU and think time of a workload (R_ws, s, D, C, b, Z, knee) from raw series. Pure."""

from __future__ import annotations

import statistics
from collections.abc import Sequence
from datetime import date

from osgym_infra.cost.model import LOCAL
from osgym_infra.errors import BadInput
from osgym_infra.workloads import stats
from osgym_infra.workloads.observations import LoadWindow, Observations
from osgym_infra.workloads.profile import MOST_SHARED, Measured, Parameter, Profile
from osgym_infra.workloads.stats import Estimate


def fit_profile(
    seen: Observations, workload: str, think_s: float | None = None, today: date | None = None
) -> Profile:
    """Fit all parameters for which the series suffice.

    Args:
        think_s: Z of the policy that is planned for, when the benchmark's own pace was another.
        today: The profile's date where no file has one.

    Raises:
        BadInput: No series has figures of memory, or there is no date.
    """
    found: dict[Parameter, Measured] = {}
    notes: list[str] = []
    _memory(seen, found, notes)
    _cpu(seen, found, notes)
    _think(seen, found, think_s)
    _rest(seen, found)
    for parameter, series, how in (
        (Parameter.OVERLAY_MIB, seen.overlay_mib, "mean of what replicas had written to disk"),
        (Parameter.FRAME_KB, seen.frame_kb, "mean size of a frame"),
        (Parameter.STEPS_PER_EPISODE, seen.steps_per_episode, "mean steps of an episode"),
        (Parameter.TRAJECTORY_S, seen.trajectory_s, "mean duration of an episode, reset included"),
        (Parameter.THREADS, seen.threads, "mean number of threads of a replica"),
        (
            Parameter.RESTING_MIB,
            seen.resting_mib,
            "mean of what replicas occupied at rest, compressed pages in it",
        ),
    ):
        if series:
            found[parameter] = _measured(stats.mean(series), how)
    if len({x for x, _ in seen.step_ms}) >= 3:
        try:
            knee = stats.bootstrap(seen.step_ms, stats.hinge, resamples=200)
        except ValueError:
            notes.append("no knee: steps did not become slower with more replicas")
        else:
            found[Parameter.KNEE_REPLICAS] = _measured(
                knee, "where the median step begins to rise; other load on the machine moves it"
            )
    when = max(seen.dates) if seen.dates else today
    if when is None:
        raise BadInput("results", "no file says when it was measured", "machine.date")
    return Profile(
        workload, when, seen.runtime or LOCAL, seen.machine, seen.image, tuple(seen.sources),
        found, tuple(notes), seen.accelerator,
    )  # fmt: skip


def _memory(seen: Observations, found: dict[Parameter, Measured], notes: list[str]) -> None:
    """R_ws is what a replica takes alone; what each further one takes is R_ws·(1 − s) + o, the slope of the
    memory curve. So s = 1 − slope/R_ws, with o counted into it."""
    curve, name = (seen.host_mib, "MemAvailable") if seen.host_mib else (seen.pss_mib, "PSS")
    rising = None
    if len({x for x, _ in curve}) >= 2:
        rising = stats.slope(curve)
        if rising.value <= 0:
            raise BadInput("results", "memory falls with more replicas", "measure on a quiet machine")
    alone = stats.mean(seen.alone_mib) if seen.alone_mib else None
    if alone is None and rising is None:
        raise BadInput("results", "no series speaks of memory", "density, replica_cost or load_curve")
    if alone is None or (rising is not None and rising.value >= alone.value):
        assert rising is not None
        found[Parameter.WORKING_SET_MIB] = _measured(rising, f"slope of {name} over replicas; s unknown, 0")
        notes.append("the shared part is unknown: no replica was measured alone")
        return
    found[Parameter.WORKING_SET_MIB] = _measured(alone, "mean PSS of a replica that runs alone")
    if rising is None:
        notes.append("the shared part is unknown: memory was not measured with several replicas")
        return

    def shared(slope: float, working_set: float) -> float:
        return min(MOST_SHARED, max(0.0, 1 - slope / working_set))

    s = shared(rising.value, alone.value)
    ends = sorted((shared(rising.high, alone.low), shared(rising.low, alone.high)))
    found[Parameter.SHARED_FRACTION] = Measured(
        s, min(s, ends[0]), max(s, ends[1]), rising.n, "1 − private / working set"
    )
    found[Parameter.PRIVATE_MIB] = _measured(rising, f"slope of {name} over replicas")


def _cpu(seen: Observations, found: dict[Parameter, Measured], notes: list[str]) -> None:
    """b from windows without episodes; C = (CPU − b·K·t) / episodes from those whose episodes take no step;
    D = (CPU − b·K·t − C·episodes) / steps from those with steps. Without windows of the second kind C stays
    unknown and its part is in D."""
    idle = [(w.replicas * w.seconds, w.cpu_s) for w in seen.idle if w.replicas]
    b = reset = 0.0
    if idle:
        estimate = stats.ratio(idle)
        b = estimate.value
        found[Parameter.IDLE_CORES] = _measured(estimate, "CPU time of idle replicas over replica-seconds")
    resets = [(float(w.episodes), w.cpu_s - b * w.replicas * w.seconds) for w in seen.resets]
    if resets and all(cpu > 0 for _, cpu in resets):
        estimate = stats.ratio(resets)
        reset = estimate.value
        how = "CPU time above idling of episodes without steps: fresh replica, set-up, scoring"
        found[Parameter.RESET_CPU_S] = _measured(estimate, how)
    busy = [
        (float(w.steps), w.cpu_s - b * w.replicas * w.seconds - reset * w.episodes)
        for w in seen.busy
        if w.steps
    ]
    if busy and all(cpu > 0 for _, cpu in busy):
        kept = "host agent included" if reset else "resets and host agent included"
        found[Parameter.STEP_CPU_S] = _measured(
            stats.ratio(busy), f"CPU time above idling{' and resets' if reset else ''} over steps, {kept}"
        )
        if not reset:
            notes.append("resets are counted in the steps: no series of episodes without steps")
    elif busy:
        notes.append("no CPU per step: idling and resets already take more than was used")


def _think(seen: Observations, found: dict[Parameter, Measured], think_s: float | None) -> None:
    """Fit Z = K·t/steps − D − C/n where nobody waits for a core: the least busy third of the windows."""
    if think_s is not None:
        found[Parameter.THINK_S] = Measured(think_s, think_s, think_s, 0, "given, not measured")
        return
    busy = _least_busy(seen.busy)
    if busy and (step := found.get(Parameter.STEP_CPU_S)):
        reset = found[Parameter.RESET_CPU_S].value if Parameter.RESET_CPU_S in found else 0.0
        values = [
            max(0.0, (w.replicas * w.seconds - reset * w.episodes) / w.steps - step.value) for w in busy
        ]
        found[Parameter.THINK_S] = _measured(
            stats.mean(values), "time of a cycle less its CPU, of the least busy windows"
        )


def _rest(seen: Observations, found: dict[Parameter, Measured]) -> None:
    """Fit W = (CPU − C·episodes)/steps with rest, less (CPU − C·episodes − b·K·t)/steps without.

    Both are of one benchmark that ran them in turns, so that D of that machine cancels out.
    """
    if len({x for x, _ in seen.resting_curve}) >= 2:
        found[Parameter.RESTING_MIB] = _measured(
            stats.slope(seen.resting_curve), "slope of MemAvailable over replicas at rest"
        )
    if not (seen.awake and seen.resting):
        return
    reset, idle = (
        found[name].value if name in found else 0.0 for name in (Parameter.RESET_CPU_S, Parameter.IDLE_CORES)
    )
    rested = stats.ratio([(float(w.steps), w.cpu_s - reset * w.episodes) for w in seen.resting])
    awake = stats.ratio([
        (float(w.steps), w.cpu_s - reset * w.episodes - idle * w.replicas * w.seconds) for w in seen.awake
    ])  # fmt: skip
    found[Parameter.WAKE_CPU_S] = Measured(
        max(0.0, rested.value - awake.value), max(0.0, rested.low - awake.high),
        max(0.0, rested.high - awake.low), rested.n + awake.n,
        "CPU time of a step after a reclaim, less that of a step of replicas that stay awake",
    )  # fmt: skip


def _least_busy(windows: Sequence[LoadWindow]) -> list[LoadWindow]:
    if not windows:
        return []
    ordered = sorted(windows, key=lambda w: w.cpu_s / w.seconds)
    bar = statistics.quantiles([w.cpu_s / w.seconds for w in ordered], n=3)[0] if len(ordered) > 2 else None
    return [w for w in ordered if bar is None or w.cpu_s / w.seconds <= bar]


def _measured(estimate: Estimate, how: str) -> Measured:
    return Measured(estimate.value, estimate.low, estimate.high, estimate.n, how)
