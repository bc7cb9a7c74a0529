"""Invariants of a chaos run: from the observations to a list of violations. Pure."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from benchmarks.chaos.flights import Flights, number_of, way_of
from benchmarks.chaos.schedule import BY_POLICIES, FROM_INSIDE, SPARES_RESULT, Kind
from benchmarks.chaos.stage import Impact
from benchmarks.common import quantile
from osgym_sdk import Failure, Result
from osgym_sdk.wire import ErrorClass

FROZEN = (Kind.AGENT_FROZEN,)


@dataclass(frozen=True)
class Limits:
    """Bounds of a run.

    Attributes:
        clean_p95_s: 95th percentile of the time from a fault to a clean slot.
        noticed_s: Time until a frozen guest agent is noticed.
        lost_share: Share of trajectories without a result, with one retry and one fault in them.
    """

    clean_p95_s: float = 5.0
    noticed_s: float = 5.0
    lost_share: float = 0.001


def judge(flights: Flights, impacts: Sequence[Impact], limits: Limits) -> list[str]:
    """Return every violation of a run, most of them with the number of a trajectory."""
    results = flights.results
    ended = Counter(map(number_of, results))
    found = [f"trajectory {n} ended {times} times" for n, times in ended.items() if times > 1]
    found += [f"trajectory {number} never ended" for number in flights.tried if number not in ended]
    found += [f"frame: {line}" for line in flights.crossed]
    for result in results:
        found += _of_result(result, flights)
    found += _of_losses(flights, limits)
    for impact in impacts:
        found += [f"{impact.kind.value} at {impact.at_s:.0f} s: {line}" for line in impact.wrong]
        if impact.kind in FROZEN and (impact.noticed_s or 0) > limits.noticed_s:
            found.append(
                f"{impact.kind.value} at {impact.at_s:.0f} s: noticed after {impact.noticed_s:.1f} s"
            )
    clean = [impact.clean_s for impact in impacts if impact.clean_s is not None]
    if clean and quantile(clean, 0.95) >= limits.clean_p95_s:
        found.append(
            f"from fault to clean slot: p95 {quantile(clean, 0.95):.1f} s of {len(clean)} faults, "
            f"{limits.clean_p95_s:g} s are allowed"
        )
    return found


def _of_result(result: Result, flights: Flights) -> list[str]:
    number, way, failure = number_of(result), way_of(result), result.failure
    name = f"trajectory {number} ({way} of {result.task['id']}, {_history(flights, number)})"
    if (result.reward is None) == (failure is None):
        return [f"{name}: reward {result.reward} and failure {failure}"]
    found = [f"{name}: {line}" for line in _of_class(result, flights.hits(number))]
    if failure is not None:
        if not failure.code or failure.error_class is None:
            found.append(f"{name}: a failure without a type: {failure}")
        return found
    if result.loss is not None:
        return found
    wanted = 0.0 if way == "idle" else 1.0
    last = flights.tried[number][-1].harmed_by if flights.tried[number] else []
    spoilt = any(kind in BY_POLICIES - SPARES_RESULT for kind in last)
    if result.reward != wanted and not (way == "oracle" and result.reward == 0.0 and spoilt):
        details = result.trajectory.evaluation.details if result.trajectory.evaluation else ()
        ending = f"{result.termination_reason}, {len(result.steps)} steps, {result.note or ''} {details}"
        found.append(f"{name}: reward {result.reward}, not {wanted} ({ending})"[:600])
    return found


def _of_class(result: Result, hits: Sequence[Kind]) -> list[str]:
    """Judge the class of a trajectory's failure by the faults that hit it."""
    failure, loss = result.failure, result.loss
    if failure is not None and failure.error_class not in (None, ErrorClass.INFRA):
        return [
            f"the class {failure.error_class}, for a failure that no task and no policy has caused: {failure}"
        ]
    if loss is not None and not any(kind in FROM_INSIDE for kind in hits):
        return [f"the policy's loss without a fault from inside: {loss}"]
    if loss is not None and (result.reward != 0.0 or not result.valid_for_training):
        return [f"the policy's loss with reward {result.reward}, valid {result.valid_for_training}: {loss}"]
    if hits and all(kind in BY_POLICIES for kind in hits):
        if failure is not None:
            return [f"a failure of the host's for what only its policy did: {failure}"]
        if result.attempts > 1:
            return [f"{result.attempts} attempts though only its policy harmed it"]
    if not hits and result.attempts > 1:
        return [f"{result.attempts} attempts though nothing harmed it"]
    return []


def _of_losses(flights: Flights, limits: Limits) -> list[str]:
    lost = [result for result in flights.results if is_lost_once(result, flights)]
    if len(lost) <= limits.lost_share * len(flights.results):
        return []
    return [
        f"trajectory {number_of(result)} ({_history(flights, number_of(result))}) lost: "
        f"{result.failure.code} ({result.failure.error_class}) on attempt {result.attempts}: "
        f"{result.failure.message[:300]}"
        for result in lost
        if result.failure is not None
    ]


def is_lost_once(result: Result, flights: Flights) -> bool:
    """Return whether a trajectory has no result though at most one fault hit it."""
    return result.failure is not None and len(flights.hits(number_of(result))) <= 1


def _history(flights: Flights, number: int) -> str:
    hits = [kind.value for kind in flights.hits(number)]
    return f"{len(flights.tried[number])} attempts, hit by: {', '.join(hits) or 'nothing'}"


def figures(flights: Flights, impacts: Sequence[Impact]) -> dict[str, Any]:
    """Return the figures of a run in one row."""
    results = flights.results
    clean = [impact.clean_s for impact in impacts if impact.clean_s is not None]
    failed = [result for result in results if result.failure is not None]
    return {
        "trajectories": len(results),
        "oracle_earned_1": sum(way_of(r) == "oracle" and r.reward == 1.0 for r in results),
        "idle_earned_0": sum(way_of(r) == "idle" and r.reward == 0.0 for r in results),
        "failures": dict(Counter(_cause(r.failure) for r in failed if r.failure)),
        "retried": sum(result.attempts > 1 for result in results),
        "lost_by_one_fault": sum(is_lost_once(r, flights) for r in results),
        "lost_by_two_faults": sum(not is_lost_once(r, flights) for r in failed),
        "policys_losses": dict(Counter(_cause(r.loss) for r in results if r.loss)),
        "harmed_by_their_policy": sum(_only_by_policy(r, flights) for r in results),
        "of_these_scored_honestly": sum(_only_by_policy(r, flights) and r.loss is None for r in results),
        "frames_checked": flights.frames,
        "faults": len(impacts),
        "clean_p95_s": round(quantile(clean, 0.95), 2) if clean else None,
    }


def _only_by_policy(result: Result, flights: Flights) -> bool:
    hits = flights.hits(number_of(result))
    return bool(hits) and all(kind in BY_POLICIES for kind in hits)


def _cause(failure: Failure) -> str:
    cause = failure.details.get("cause")
    return f"{failure.code} ({cause})" if cause else failure.code


def table(impacts: Sequence[Impact]) -> list[str]:
    """Return one Markdown row for each kind of fault: medians and, behind a slash, the longest."""
    lines = [
        "| fault | times | noticed after, s | clean slot after, s | episodes touched |",
        "|---|---|---|---|---|",
    ]
    for kind in Kind:
        mine = [impact for impact in impacts if impact.kind is kind]
        if mine:
            noticed = _spread([i.noticed_s for i in mine if i.noticed_s is not None])
            clean = _spread([i.clean_s for i in mine if i.clean_s is not None])
            touched = sum(impact.touched for impact in mine)
            lines.append(f"| {kind.value} | {len(mine)} | {noticed} | {clean} | {touched} |")
    return lines


def _spread(values: list[float]) -> str:
    return f"{quantile(values, 0.5):.2f} / {max(values):.2f}" if values else "–"
