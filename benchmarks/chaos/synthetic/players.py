"""Plays trajectories over stand-ins through the SDK, and judges their outcomes."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, field

import httpx

from benchmarks.chaos.service import Service
from benchmarks.chaos.synthetic.faults import RETRIES, Case
from benchmarks.chaos.synthetic.play import SeenAttempt, Trajectories, number_of
from benchmarks.chaos.synthetic.verdicts import Outcome, SeenEnd, Verdict, judge
from osgym_sdk import AsyncClient, Result

_RETIRED = re.compile(r'^osgym_replicas_retired_total\{reason="(\w+)"\} ([0-9.]+)', re.MULTILINE)


@dataclass
class SyntheticOutcome:
    """Results of a run.

    Attributes:
        retired: Replicas that the host agent gave up, by its reason.
        skipped: Parts that are impossible here, with the reason.
    """

    verdicts: list[Verdict] = field(default_factory=list)
    violations: list[str] = field(default_factory=list)
    retired: Counter[str] = field(default_factory=Counter)
    skipped: list[str] = field(default_factory=list)
    seconds: float = 0.0


@dataclass
class Players:
    """Players of trajectories against one host agent."""

    service: Service
    client: AsyncClient
    trajectories: Trajectories
    outcome: SyntheticOutcome = field(default_factory=SyntheticOutcome)

    async def play(self, cases: Iterable[Case], concurrency: int) -> None:
        batch = self.client.run(
            self.trajectories.source(cases),
            self.trajectories,
            concurrency=concurrency,
            retries=RETRIES,
            wait_s=60,
            lease_ttl_s=60,
            run="synthetic",
        )
        async for result in batch:
            self.take(await self._outcome_of(result))

    def take(self, outcome: Outcome) -> None:
        """Judge an outcome, and report a wrong one at once."""
        verdict = judge(outcome, self.trajectories.cases.pop(outcome.number).expected())
        self.outcome.verdicts.append(verdict)
        for wrong in verdict.wrong:
            line = f"trajectory {outcome.number} ({outcome.row}): {wrong} ({outcome.note})"
            self.outcome.violations.append(line)
            print(f"! {line}", flush=True)

    async def end_of(self, episode_id: str) -> SeenEnd:
        """Ask the host agent how an episode ended."""
        try:
            error = (await self.trajectories.state(episode_id))["error"]
        except httpx.HTTPStatusError:
            return SeenEnd(forgotten=True)
        details = {} if error is None else error["details"]
        return SeenEnd(details.get("error_class", ""), details.get("cause", ""))

    async def count_retired(self) -> None:
        """Count the replicas that the host agent has lost so far, before it ends."""
        metrics = (await self.trajectories.http.get(f"{self.service.url}/metrics")).text
        self.outcome.retired.update({reason: int(float(n)) for reason, n in _RETIRED.findall(metrics)})

    async def _outcome_of(self, result: Result) -> Outcome:
        number, evaluation = number_of(result), result.trajectory.evaluation
        seen: list[SeenAttempt] = self.trajectories.seen.pop(number)
        ends = [await self.end_of(attempt.episode_id) for attempt in seen if attempt.episode_id]
        said = result.failure or (evaluation.loss if evaluation is not None else None)
        reason = "" if said is None else str(said.details.get("cause") or said.code)
        note = "" if said is None else f"{said.code}: {said.message}"[:300]
        return Outcome(
            number=number,
            row=self.trajectories.cases[number].row,
            attempts=result.attempts,
            ends=tuple(ends),
            reward=result.reward,
            failure_class=None if result.failure is None else str(result.failure.error_class),
            by_policy=evaluation is not None and evaluation.loss is not None,
            valid=result.valid_for_training,
            reason=reason,
            note=note,
        )
