"""Decisions of a policy: actions, and what the trainer keeps beside them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, TypeVar

from osgym_protocol.limits import MAX_THINK_S
from osgym_sdk._exceptions import ConfigError
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
        think_s: as for :meth:`AsyncEpisode.step`.
    """

    actions: Actions | None
    info: Any = None
    note: str = ""
    think_s: float | None = None


def opened(given: T | Decision) -> tuple[T | Actions | None, Any]:
    """Return actions and info of what may be a decision."""
    return (given.actions, given.info) if isinstance(given, Decision) else (given, None)


def charge_of(given: object, think_s: float | None, per_token_s: float) -> float | None:
    """Return the time (s) by which a paused desktop's clocks move for a thought; None: as the host knows.

    Args:
        given: actions or a decision.
        think_s: charge that the caller names.
        per_token_s: charge of each token, where neither caller nor decision name one; 0: there is none.

    Raises:
        ConfigError: the charge is no such time.
    """
    if think_s is None and isinstance(given, Decision):
        think_s = given.think_s
    if think_s is None:
        return min(MAX_THINK_S, per_token_s * _tokens_of(given)) if per_token_s else None
    if isinstance(think_s, bool) or not isinstance(think_s, int | float) or not 0 <= think_s <= MAX_THINK_S:
        raise ConfigError(f"think_s must be a number of seconds from 0 to {MAX_THINK_S}")
    return float(think_s)


def _tokens_of(given: object) -> int:
    """Return the number of tokens that a decision's info names; 0 where it names none."""
    info = given.info if isinstance(given, Decision) else None
    usage = info.get("usage") if isinstance(info, Mapping) else None
    tokens = usage.get("output_tokens") if isinstance(usage, Mapping) else None
    return tokens if type(tokens) is int and tokens > 0 else 0


def note_of(given: object) -> str | None:
    """Return what a decision wants kept beside its step on the host, as JSON and UTF-8 can have it."""
    if not isinstance(given, Decision) or not given.note:
        return None
    return str(given.note)[:MAX_NOTE_CHARS].encode("utf-8", "replace").decode("utf-8")
