"""Decisions of a policy: actions, and what the trainer keeps beside them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, TypeVar

from osgym_sdk._inputs.actions import Actions
from osgym_sdk.wire import MAX_NOTE_CHARS

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
        note: what the model said, in words. A host that records keeps it beside the step (at most 20,000
            characters); its dashboard and ``osgym data replay`` show it. Agents of
            :mod:`osgym_sdk.agents` say it.
    """

    actions: Actions | None
    info: Any = None
    note: str = ""


def opened(given: T | Decision) -> tuple[T | Actions | None, Any]:
    """Return actions and info of what may be a decision."""
    return (given.actions, given.info) if isinstance(given, Decision) else (given, None)


def note_of(given: object) -> str | None:
    """Return what a decision wants kept beside its step on the host, as JSON and UTF-8 can have it."""
    if not isinstance(given, Decision) or not given.note:
        return None
    return str(given.note)[:MAX_NOTE_CHARS].encode("utf-8", "replace").decode("utf-8")
