"""The numbers of an episode's steps: which one is the last, whether the guest answered it, what it ends."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

from osgym_host.actions import ParsedActions
from osgym_host.episodes.episode_state import EpisodeProgress


@dataclass(slots=True, eq=False)
class EpisodeSteps:
    """How far an episode is. A step is entered before it is sent to the guest, and marked when answered.

    Attributes:
        max_steps: The number of steps after which the episode is done.
        progress: The last step that was entered.
        answered: Whether the guest is known to have carried out that step.
        unrecorded: A step that the guest may have done, but whose trajectory line is missing.
        on_change: Called with each new progress, before the step is sent to the guest.
    """

    max_steps: int | None = None
    progress: EpisodeProgress = field(default_factory=EpisodeProgress)
    answered: bool = True
    unrecorded: int | None = None
    on_change: Callable[[EpisodeProgress], None] | None = None

    @property
    def done(self) -> str | None:
        """How the policy ended the episode, or `max_steps`; None while it goes on."""
        return self.progress.done if self.answered else None

    def enter(self, seq: int, parsed: ParsedActions) -> None:
        """Enter a new step as the last one."""
        last = self.progress
        done: str | None = parsed.ending.value if parsed.ending is not None else None
        if done is None and self.max_steps is not None and last.step + 1 >= self.max_steps:
            done = "max_steps"
        self.progress = EpisodeProgress(seq, last.step + 1, done, last.guest_base, parsed.actions)
        self.answered = False
        if self.on_change is not None:
            self.on_change(self.progress)

    def change(self, progress: EpisodeProgress) -> None:
        """Replace the last step: by itself with other numbers, or by the one before."""
        self.progress = progress
        if self.on_change is not None:
            self.on_change(progress)
