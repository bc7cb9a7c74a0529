"""Which replicas that nobody steps should be paused, and which should give up their memory. Pure.

A policy thinks for seconds between two steps, and a warm replica waits for minutes. A replica that has come
to rest is first paused: its processes stand still and use no CPU. Later, or as soon as memory is scarce, the
kernel moves its memory to compressed swap. The next call to its guest agent wakes it.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum

IDLE_CPU = 0.02
"""Share of a core below which a desktop is idle. An idle desktop of the image full uses 0.001; a program that
works in the background uses more, and must not be stopped."""
AWAKE_PER_CORE = 16
"""Default of the setting `rest_awake`: twice the number of replicas that wake at once."""
EXPECTED_WORKING_SET_MIB = 32.0
"""Memory that a woken replica takes until it was measured."""
_SHORT_SHARE = 0.25
"""Share of the time to a pause that must have passed when memory is short."""
_NEWEST_SHARE = 0.3
"""Weight of the newest pause in the mean of a policy's pauses."""


class RestStage(StrEnum):
    """State of a replica between calls."""

    AWAKE = "awake"
    PAUSED = "paused"
    RECLAIMED = "reclaimed"


@dataclass(frozen=True, slots=True)
class RestTerms:
    """When replicas rest.

    Attributes:
        pause_after_s: Time without a call after which an idle replica is paused.
        reclaim_after_s: Time without a call after which the memory of a paused replica is reclaimed, even if
            there is enough; 0: never.
        awake: Number of replicas that must be able to be awake at once; memory for them is kept free.
        keep_ready: Number of ready replicas, those that are leased next, whose memory stays.
    """

    pause_after_s: float = 2.0
    reclaim_after_s: float = 300.0
    awake: int = 32
    keep_ready: int = 2


@dataclass(frozen=True, slots=True)
class RestView:
    """One replica that no call uses.

    Attributes:
        key: Identity for the plan.
        idle_s: Time since the last call ended.
        expected_s: Expected time until the next call, by the pauses before.
        cpu: Share of a core used since the last look; None if it is unknown, which counts as busy.
        turn: Place in the queue of ready replicas, 0 for the next one; None for a leased replica.
    """

    key: str
    stage: RestStage
    idle_s: float
    expected_s: float
    cpu: float | None = None
    turn: int | None = None


@dataclass(frozen=True, slots=True)
class RestPlan:
    """Keys of replicas to pause, and of those to reclaim, in the order of the longest expected rest."""

    pause: tuple[str, ...] = ()
    reclaim: tuple[str, ...] = ()


def plan_rest(terms: RestTerms, views: Sequence[RestView], short_mib: float, each_mib: float) -> RestPlan:
    """Return what to pause and reclaim now.

    Args:
        short_mib: Memory that is missing; 0 or less when there is enough.
        each_mib: Memory that one reclaimed replica frees.
    """
    after_s = terms.pause_after_s * (_SHORT_SHARE if short_mib > 0 else 1)
    pause = [view for view in views if _may_pause(after_s, view)]
    if not terms.reclaim_after_s:
        return RestPlan(tuple(view.key for view in pause))
    resting = [
        view
        for view in (*pause, *(view for view in views if view.stage is RestStage.PAUSED))
        if view.turn is None or view.turn >= terms.keep_ready
    ]
    resting.sort(key=lambda view: (view.turn is not None, view.turn or 0, view.expected_s), reverse=True)
    needed = max(0, round(short_mib / max(1.0, each_mib) + 0.5)) if short_mib > 0 else 0
    late = [view for view in resting[needed:] if view.idle_s >= terms.reclaim_after_s]
    return RestPlan(tuple(view.key for view in pause), tuple(view.key for view in (*resting[:needed], *late)))


def _may_pause(after_s: float, view: RestView) -> bool:
    return (
        view.stage is RestStage.AWAKE
        and view.idle_s >= after_s
        and view.cpu is not None
        and view.cpu <= IDLE_CPU
    )


def mean_pause_s(mean_s: float | None, pause_s: float) -> float:
    """Return the mean of a policy's pauses, of which the latest was `pause_s`."""
    return pause_s if mean_s is None else mean_s + _NEWEST_SHARE * (pause_s - mean_s)


def expected_rest_s(mean_s: float | None, idle_s: float) -> float:
    """Return the expected time until the next call.

    A pause that has lasted longer than the mean is expected to last as long again.
    """
    return idle_s if mean_s is None or idle_s >= mean_s else mean_s - idle_s
