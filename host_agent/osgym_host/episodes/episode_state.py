"""What an episode is at one time, apart from its desktop: enough to make another one that goes on.

A child of a fork gets it in memory; a checkpoint and the journal keep it as JSON. A checkpoint may come
from anywhere, so what is read is checked here, before anything is done with it.
"""

from __future__ import annotations

import base64
import binascii
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, TypeVar

from osgym_host.actions import ENDINGS, BadAction, parse_actions
from osgym_host.errors import OsgymHostError
from osgym_protocol.codec import Message, WireFormatError
from osgym_protocol.codes import Done
from osgym_protocol.limits import MAX_CHECKPOINT_TTL_S, MAX_ID_CHARS, MAX_SCREEN_SIDE_PX, MAX_SEQ
from osgym_protocol.options import ObserveOptions, SettleOptions

M = TypeVar("M", bound=Message)

DONE = (None, *Done)
TEMPLATE_LOOKS = 1
"""Steps that a guest does before a task template is taken of it."""
_NOTHING: Sequence[Mapping[str, Any]] = ({"op": "screenshot"},)
_ANY_SCREEN = (MAX_SCREEN_SIDE_PX, MAX_SCREEN_SIDE_PX)
"""The actions were checked against the real one when they came."""


class InvalidSavedEpisode(OsgymHostError):
    """What was read is not a saved episode; the message names what is wrong."""


@dataclass(frozen=True, slots=True)
class EpisodeProgress:
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

    seq: int = 0
    step: int = 0
    done: str | None = None
    guest_base: int = 0
    actions: Sequence[Mapping[str, Any]] = ()
    interventions: int = 0
    by_person: bool = False

    def for_guest(self) -> Sequence[Mapping[str, Any]]:
        """Return what the guest does in the step: all but an ending, at least one action."""
        given = self.actions
        return (given[:-1] if given and given[-1]["op"] in ENDINGS else given) or _NOTHING

    def to_dict(self) -> dict[str, Any]:
        """Return the JSON object."""
        return {
            "seq": self.seq,
            "step": self.step,
            "done": self.done,
            "guest_base": self.guest_base,
            "actions": list(self.actions),
            "interventions": self.interventions,
            "by_person": self.by_person,
        }

    @classmethod
    def from_dict(cls, data: Any) -> EpisodeProgress:
        """Read the JSON object.

        Raises:
            InvalidSavedEpisode: A field is missing or of another form.
        """
        fields = _object(data, "progress")
        seq, interventions = _count(fields, "seq"), _count({"interventions": 0, **fields}, "interventions")
        done, base, by_person = fields.get("done"), fields.get("guest_base"), fields.get("by_person", False)
        if done not in DONE or type(base) is not int or not -interventions - TEMPLATE_LOOKS <= base <= seq:
            raise InvalidSavedEpisode("progress: done or guest_base makes no sense")
        if type(by_person) is not bool or (by_person and interventions == 0):
            raise InvalidSavedEpisode("progress: by_person makes no sense")
        given = fields.get("actions")
        if not isinstance(given, list) or not all(isinstance(action, dict) for action in given):
            raise InvalidSavedEpisode("progress.actions: not a list of objects")
        try:
            actions = parse_actions(given, _ANY_SCREEN).actions
        except BadAction as error:
            raise InvalidSavedEpisode(f"progress.actions: {error}") from error
        return cls(seq, _count(fields, "step"), done, base, actions, interventions, by_person)


@dataclass(frozen=True, slots=True)
class SavedEpisode:
    """All that makes an episode what it is, but for its lease and its desktop.

    Attributes:
        task: The task as its client sent it; its setup is done.
        outputs: What setup steps kept of their commands.
        screen: Width and height in pixels.
        run: What its client calls the run that it belongs to.
    """

    task: Mapping[str, Any] | None
    screen: tuple[int, int]
    lease_ttl_s: float
    max_steps: int | None
    settle: SettleOptions | None
    observe: ObserveOptions | None
    progress: EpisodeProgress = EpisodeProgress()
    outputs: Mapping[str, bytes] = field(default_factory=dict)
    run: str | None = None

    def to_dict(self) -> dict[str, Any]:
        """Return the JSON object."""
        return {
            "task": self.task,
            "screen": list(self.screen),
            "lease_ttl_s": self.lease_ttl_s,
            "max_steps": self.max_steps,
            "settle": None if self.settle is None else self.settle.to_dict(),
            "observe": None if self.observe is None else self.observe.to_dict(),
            "progress": self.progress.to_dict(),
            "outputs": {name: base64.b64encode(data).decode() for name, data in self.outputs.items()},
            "run": self.run,
        }

    @classmethod
    def from_dict(cls, data: Any) -> SavedEpisode:
        """Read the JSON object. The task is not judged here.

        Raises:
            InvalidSavedEpisode: A field is missing or of another form.
        """
        fields = _object(data, "moment")
        task, screen, ttl_s = fields.get("task"), fields.get("screen"), fields.get("lease_ttl_s")
        if task is not None and not isinstance(task, dict):
            raise InvalidSavedEpisode("task: not an object")
        if (
            not isinstance(screen, list)
            or len(screen) != 2
            or not all(type(side) is int and 1 <= side <= MAX_SCREEN_SIDE_PX for side in screen)
        ):
            raise InvalidSavedEpisode("screen: not two sizes in pixels")
        if (
            not isinstance(ttl_s, (int, float))
            or isinstance(ttl_s, bool)
            or not 0 < ttl_s <= MAX_CHECKPOINT_TTL_S
        ):
            raise InvalidSavedEpisode("lease_ttl_s: not a time")
        max_steps = None if fields.get("max_steps") is None else _count(fields, "max_steps")
        return cls(
            task=task,
            screen=(screen[0], screen[1]),
            lease_ttl_s=float(ttl_s),
            max_steps=max_steps,
            settle=_options(SettleOptions, fields.get("settle"), "settle"),
            observe=_options(ObserveOptions, fields.get("observe"), "observe"),
            progress=EpisodeProgress.from_dict(fields.get("progress")),
            outputs=_outputs(fields.get("outputs")),
            run=_run(fields.get("run")),
        )


def _run(data: Any) -> str | None:
    if data is not None and (not isinstance(data, str) or not 0 < len(data) <= MAX_ID_CHARS):
        raise InvalidSavedEpisode("run: not a name")
    return data


def _object(data: Any, where: str) -> dict[str, Any]:
    if not isinstance(data, dict):
        raise InvalidSavedEpisode(f"{where}: not an object")
    return data


def _count(fields: Mapping[str, Any], name: str) -> int:
    value = fields.get(name)
    if type(value) is not int or not 0 <= value <= MAX_SEQ:
        raise InvalidSavedEpisode(f"{name}: not a number from 0")
    return value


def _options(kind: type[M], data: Any, where: str) -> M | None:
    if data is None:
        return None
    try:
        return kind.from_dict(data)
    except WireFormatError as error:
        raise InvalidSavedEpisode(f"{where}: {error}") from error


def _outputs(data: Any) -> dict[str, bytes]:
    try:
        return {
            str(name): base64.b64decode(text, validate=True)
            for name, text in _object(data, "outputs").items()
        }
    except (binascii.Error, TypeError, ValueError) as error:
        raise InvalidSavedEpisode(f"outputs: {error}") from error
