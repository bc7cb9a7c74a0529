"""What an episode is at one time, apart from its desktop: enough to make another one that goes on.

A child of a fork gets it in memory; a checkpoint and the journal keep it as JSON. A checkpoint may come
from anywhere, so what is read is checked here, before anything is done with it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Annotated, Any

from osgym_host.actions import ENDINGS, BadAction, parse_actions
from osgym_protocol.bounds import Bounds, Id
from osgym_protocol.codec import Message
from osgym_protocol.codes import Done
from osgym_protocol.limits import MAX_CHECKPOINT_TTL_S, MAX_SCREEN_SIDE_PX, MAX_SEQ
from osgym_protocol.options import ObserveOptions, SettleOptions

TEMPLATE_LOOKS = 1
"""Steps that a guest does before a task template is taken of it."""
_NOTHING: Sequence[Mapping[str, Any]] = ({"op": "screenshot"},)
_ANY_SCREEN = (MAX_SCREEN_SIDE_PX, MAX_SCREEN_SIDE_PX)
"""The actions were checked against the real one when they came."""
_Number = Annotated[int, Bounds(ge=0, le=MAX_SEQ)]
_Side = Annotated[int, Bounds(ge=1, le=MAX_SCREEN_SIDE_PX)]


@dataclass(frozen=True, slots=True)
class EpisodeProgress(Message):
    """How far an episode is.

    Attributes:
        seq: The last number that was accepted, answered or not; 0 before the first step.
        step: Steps so far.
        done: How the step `seq` ends the episode once it was carried out.
        guest_base: What the guest's own numbers lack: its agent was started anew at that number, or, below
            zero, it has done interventions, which have no number of the policy's, or the look after which
            its task template was taken.
        actions: The step's actions in internal form, to be sent again if the guest never got them.
        interventions: How often a person acted in this episode, so far.
        by_person: The actions are those of the last intervention, made after the step `seq`.
    """

    seq: _Number = 0
    step: _Number = 0
    done: Annotated[str, Bounds(pattern="|".join(Done))] | None = None
    guest_base: int = 0
    actions: tuple[Mapping[str, Any], ...] = ()
    interventions: _Number = 0
    by_person: bool = False

    def for_guest(self) -> Sequence[Mapping[str, Any]]:
        """Return what the guest does in the step: all but an ending, at least one action."""
        given = self.actions
        return (given[:-1] if given and given[-1]["op"] in ENDINGS else given) or _NOTHING

    def contradiction(self) -> str | None:
        """Return what tells that the file is of another hand: numbers or actions that no episode has."""
        if not -self.interventions - TEMPLATE_LOOKS <= self.guest_base <= self.seq:
            return "guest_base is out of its bounds"
        if self.by_person and self.interventions == 0:
            return "by_person without interventions"
        try:
            return None if parse_actions(self.actions, _ANY_SCREEN).actions == self.actions else "actions"
        except BadAction as error:
            return f"actions: {error}"


@dataclass(frozen=True, slots=True)
class SavedEpisode(Message):
    """All that makes an episode what it is, but for its lease and its desktop.

    Attributes:
        task: The task as its client sent it; its setup is done.
        outputs: What setup steps kept of their commands.
        screen: Width and height in pixels.
        run: What its client calls the run that it belongs to.
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
