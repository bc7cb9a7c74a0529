"""State of an episode without its desktop, from which another episode continues.

A fork hands it to children in memory; checkpoints and the journal keep it as JSON. A checkpoint may come from
another host, so every value is checked when it is read.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Annotated, Any

from osgym_host.actions import ENDINGS, BadAction, parse_actions
from osgym_protocol.bounds import Bounds, Id
from osgym_protocol.codec import Message
from osgym_protocol.codes import Done, ThinkCharge, ThinkMode
from osgym_protocol.limits import MAX_CHECKPOINT_TTL_S, MAX_SCREEN_SIDE_PX, MAX_SEQ
from osgym_protocol.options import FrameHash, ObserveOptions, SettleOptions

TEMPLATE_LOOKS = 1
"""Number of steps that a guest does before a task template of it is taken."""
_NOTHING: Sequence[Mapping[str, Any]] = ({"op": "screenshot"},)
_ANY_SCREEN = (MAX_SCREEN_SIDE_PX, MAX_SCREEN_SIDE_PX)
"""Largest screen: the actions were checked against the real one when they came."""
_Number = Annotated[int, Bounds(ge=0, le=MAX_SEQ)]
_Side = Annotated[int, Bounds(ge=1, le=MAX_SCREEN_SIDE_PX)]


@dataclass(frozen=True, slots=True)
class EpisodeProgress(Message):
    """Progress of an episode.

    Attributes:
        seq: Last number that was accepted, answered or not; 0 before the first step.
        done: Reason for which the step `seq` ends the episode once it is carried out.
        guest_base: Difference of `seq` and the guest agent's number. Positive: the agent was started anew at
            that number. Negative: it did interventions, or the look before its task template was taken.
        actions: Actions of the step in internal form, to be sent again if the guest never got them.
        by_person: True if the actions are those of an intervention after the step `seq`.
        expects: Hash of the frame that the screen must show for the actions to be done; None: any.
    """

    seq: _Number = 0
    step: _Number = 0
    done: Annotated[str, Bounds(pattern="|".join(Done))] | None = None
    guest_base: int = 0
    actions: tuple[Mapping[str, Any], ...] = ()
    interventions: _Number = 0
    by_person: bool = False
    expects: FrameHash | None = None

    def for_guest(self) -> Sequence[Mapping[str, Any]]:
        """Return the actions for the guest: all but an ending, and at least one."""
        given = self.actions
        return (given[:-1] if given and given[-1]["op"] in ENDINGS else given) or _NOTHING

    def contradiction(self) -> str | None:
        """Return why the values cannot be those of an episode, or None."""
        if not -self.interventions - TEMPLATE_LOOKS <= self.guest_base <= self.seq:
            return "guest_base is out of bounds"
        if self.by_person and self.interventions == 0:
            return "by_person is set, but the episode has no interventions"
        try:
            return None if parse_actions(self.actions, _ANY_SCREEN).actions == self.actions else "actions"
        except BadAction as error:
            return f"actions: {error}"


@dataclass(frozen=True, slots=True)
class SavedEpisode(Message):
    """State of an episode, apart from its lease and its desktop.

    Attributes:
        task: Task as the client sent it; its setup is done.
        outputs: Outputs that setup steps kept of their commands.
        screen: Width and height in pixels.
        think: What the desktop does while its policy thinks; None: it goes on.
        think_charge: What such a thought is charged; None: nothing.
    """

    task: Mapping[str, Any] | None
    screen: tuple[_Side, _Side]
    lease_ttl_s: Annotated[float, Bounds(gt=0, le=MAX_CHECKPOINT_TTL_S)]
    max_steps: _Number | None
    settle: SettleOptions | None
    observe: ObserveOptions | None
    progress: EpisodeProgress = EpisodeProgress()
    outputs: Mapping[str, bytes] = field(default_factory=dict)
    run: Id | None = None
    think: ThinkMode | None = None
    think_charge: ThinkCharge | None = None
