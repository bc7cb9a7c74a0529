"""What a policy decided: actions, and whatever the trainer wants to keep beside them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, TypeVar

from osgym_sdk._actions import Actions

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Decision:
    """Actions with an ``info`` of the policy's own; taken wherever actions are taken.

    Args:
        actions: as for :meth:`AsyncEpisode.step`; None, from a policy, ends the episode.
        info: the model's text, tokens, log-probabilities: any value of any size. It is kept by reference in
            the step's record (``StepRecord.info``), or in ``Trajectory.last_info`` where no step came of the
            decision; it is never sent, copied or looked at. Pickling a trajectory pickles it;
            :meth:`Trajectory.to_dict` takes what JSON has, bytes, and arrays by their ``tolist``.
    """

    actions: Actions | None
    info: Any = None


def opened(given: T | Decision) -> tuple[T | Actions | None, Any]:
    """Return actions and info of what may be a decision."""
    return (given.actions, given.info) if isinstance(given, Decision) else (given, None)
