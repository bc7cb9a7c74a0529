"""Numbers of an episode's steps: the last step, whether the guest answered it, whether it is final.

A person may act between two steps of the policy. The guest counts such an intervention as a step of its own,
the policy's numbers stay as they are.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from osgym_host.actions import ParsedActions
from osgym_host.episodes.episode_state import EpisodeProgress


@dataclass(slots=True, eq=False)
class EpisodeSteps:
    """Progress of an episode by steps. A step is entered before it is sent, and marked once answered.

    Attributes:
        max_steps: Number of steps after which the episode is done.
        answered: True if the guest is known to have carried out that step.
        unrecorded: Number of a step whose trajectory line may be missing.
        on_change: Called with each new progress, before the step is sent to the guest.
        policy_actions: Actions of the policy's last step, for a repetition after an intervention.
    """

    max_steps: int | None = None
    progress: EpisodeProgress = field(default_factory=EpisodeProgress)
    answered: bool = True
    unrecorded: int | None = None
    on_change: Callable[[EpisodeProgress], None] | None = None
    policy_actions: Sequence[Mapping[str, Any]] = ()

    @property
    def done(self) -> str | None:
        """Reason for which the episode is done: its ending or `max_steps`; None while it continues."""
        return self.progress.done if self.answered else None

    def enter(self, seq: int, parsed: ParsedActions, expects: str | None = None) -> None:
        last = self.progress
        step = last.step + 1
        done = parsed.ending.value if parsed.ending is not None else self._end_after(step)
        self._send_next(
            EpisodeProgress(
                seq, step, done, last.guest_base, parsed.actions, last.interventions, expects=expects
            )
        )

    def refused(self) -> None:
        """Record that nothing of the last step was done, its ending included."""
        last = self.progress
        if last.done != (done := self._end_after(last.step)):
            self.change(replace(last, done=done))

    def _end_after(self, step: int) -> str | None:
        return "max_steps" if self.max_steps is not None and step >= self.max_steps else None

    def intervene(self, actions: tuple[Mapping[str, Any], ...]) -> None:
        """Enter the actions of a person after the last step, which the guest has answered."""
        last = self.progress
        if not last.by_person:
            self.policy_actions = last.actions
        self._send_next(
            replace(
                last,
                guest_base=last.guest_base - 1,
                actions=actions,
                interventions=last.interventions + 1,
                by_person=True,
                expects=None,
            )
        )

    def _send_next(self, progress: EpisodeProgress) -> None:
        self.progress = progress
        self.answered = False
        if self.on_change is not None:
            self.on_change(progress)

    def change(self, progress: EpisodeProgress) -> None:
        """Replace the last step, by the same with other numbers or by the one before."""
        self.progress = progress
        if self.on_change is not None:
            self.on_change(progress)
