"""Prometheus metrics of episodes."""

from __future__ import annotations

from collections.abc import Mapping

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram

from osgym_host.core.reasons import Reason
from osgym_host.core.window import Window
from osgym_protocol.codes import TerminationReason
from osgym_protocol.host_api import EvaluationAnswer
from osgym_protocol.observation import Observation

_STEP_BUCKETS = (0.005, 0.01, 0.025, 0.05, 0.1, 0.2, 0.4, 0.8, 1.6, 3.2, 6.4, 30.0)
_OPEN_BUCKETS = (0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60, 300)


class EpisodeMetrics:
    def __init__(self, registry: CollectorRegistry) -> None:
        self.step_ms, self.open_ms = Window(), Window()
        """Of steps in the guest, and of creates as a whole, for `History`."""
        self.scored = Window()
        self.accepted = Window()
        """Rewards of episodes that have one."""
        self.not_final = Window()
        """Milliseconds by which a screen changed after the frame that a step answered with."""
        self.no_capacity = Counter(
            "osgym_no_capacity", "Creates that found no free replica in time.", registry=registry
        )
        self.failed_to_open = Counter(
            "osgym_episodes_failed_to_open",
            "Creates that failed after they had a replica, by reason.",
            ["reason"],
            registry=registry,
        )
        self.ended = Counter(
            "osgym_episodes_ended",
            "Episodes that ended, by termination reason.",
            ["reason"],
            registry=registry,
        )
        self._opened = Counter("osgym_episodes_opened", "Episodes that clients got.", registry=registry)
        self._open_s = Histogram(
            "osgym_episode_open_seconds",
            "Time of the phases of a create.",
            ["phase"],
            buckets=_OPEN_BUCKETS,
            registry=registry,
        )
        self._steps = Counter("osgym_steps", "Steps carried out.", registry=registry)
        self._not_final = Counter(
            "osgym_frames_not_final", "Steps whose frame the screen left afterwards.", registry=registry
        )
        self._step_s = Histogram(
            "osgym_step_guest_seconds",
            "Time of a step in the guest: input, settling, capture, encoding.",
            buckets=_STEP_BUCKETS,
            registry=registry,
        )
        self.host_s = Histogram(
            "osgym_step_host_seconds",
            "Time of a step in the host agent without the guest.",
            buckets=(0.0002, 0.0005, 0.001, 0.002, 0.005, 0.01, 0.05, 0.2),
            registry=registry,
        )
        self.forks = Counter("osgym_forks", "Forks by outcome.", ["outcome"], registry=registry)
        self.checkpoints = Counter(
            "osgym_checkpoints",
            "Checkpoints taken, restored, imported, by outcome.",
            ["what", "outcome"],
            registry=registry,
        )
        self.checkpoints_mib = Gauge(
            "osgym_checkpoints_mib", "What all checkpoints use in RAM and on disk.", registry=registry
        )
        self._pause_s = Histogram(
            "osgym_branch_pause_seconds",
            "How long a desktop stood still while a branch point of it was taken.",
            buckets=(0.002, 0.005, 0.01, 0.02, 0.04, 0.08, 0.16, 0.5, 2.0),
            registry=registry,
        )
        self._children_s = Histogram(
            "osgym_fork_children_seconds",
            "From the branch point until all children of it were there.",
            buckets=(0.05, 0.1, 0.2, 0.3, 0.5, 1.0, 2.0, 5.0, 15.0, 60.0),
            registry=registry,
        )
        self._children = Counter("osgym_fork_children", "Children made.", registry=registry)
        self._evaluations = Counter(
            "osgym_evaluations", "Evaluations by outcome.", ["outcome"], registry=registry
        )
        self._begin_at_zero()

    def _begin_at_zero(self) -> None:
        """Export series that are still 0, since a series that begins with 1 shows no increase."""
        for reason in Reason:
            self.failed_to_open.labels(reason.value)
        for how in TerminationReason:
            self.ended.labels(how)
        for outcome in ("success", "partial", "zero", "error"):
            self._evaluations.labels(outcome)
        self.forks.labels("ok")

    def opened(self, timing_ms: Mapping[str, float]) -> None:
        self._opened.inc()
        self.open_ms.add(timing_ms.get("total", sum(timing_ms.values())))
        for phase, ms in timing_ms.items():
            self._open_s.labels(phase).observe(ms / 1000)

    def paused(self, pause_ms: float) -> None:
        self._pause_s.observe(pause_ms / 1000)

    def branched(self, pause_ms: float, children_s: float, children: int) -> None:
        self.paused(pause_ms)
        self._children_s.observe(children_s)
        self._children.inc(children)

    def stepped(self, guest_ms: float, seen: Observation | None) -> None:
        """Count a step, and whether the frame of the step before was the final one."""
        self._steps.inc()
        self.step_ms.add(guest_ms)
        if seen is not None and seen.previous is not None and not seen.previous.final:
            self._not_final.inc()
            self.not_final.add(seen.previous.changed_after_ms or 0.0)
        self._step_s.observe(guest_ms / 1000)

    def evaluated(self, answer: EvaluationAnswer) -> None:
        if answer.reward is None:
            outcome = "error"
        else:
            self.scored.add(answer.reward)
            if answer.valid_for_training:
                self.accepted.add(answer.reward)
            outcome = "success" if answer.reward >= 1 else "partial" if answer.reward > 0 else "zero"
        self._evaluations.labels(outcome).inc()
