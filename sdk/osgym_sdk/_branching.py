"""The calls that branch an episode, and what a child begins with."""

from __future__ import annotations

from osgym_sdk._placing import Placer
from osgym_sdk._session import Session
from osgym_sdk.wire import (
    CheckpointInfo,
    CheckpointRequest,
    CreateAnswer,
    ForkAnswer,
    ForkChild,
    ForkRequest,
    Observation,
    WireFormatError,
)


async def ask_fork(placer: Placer, session: Session, body: ForkRequest, timeout_s: float) -> ForkAnswer:
    """Has children made; undone when the answer never comes.

    Raises:
        OSGymError: as for any call of the episode.
    """
    made = await placer.request(session, "/fork", body.request_id, body, timeout_s)
    try:
        return ForkAnswer.from_dict(made.json())
    except WireFormatError as exc:
        raise session.protocol_error(exc) from exc


async def ask_checkpoint(
    placer: Placer, session: Session, body: CheckpointRequest, timeout_s: float
) -> CheckpointInfo:
    """Has a checkpoint taken; undone when the answer never comes.

    Raises:
        OSGymError: as for any call of the episode.
    """
    made = await placer.request(session, "/checkpoint", body.request_id, body, timeout_s)
    try:
        return CheckpointInfo.from_dict(made.json())
    except WireFormatError as exc:
        raise session.protocol_error(exc) from exc


def answer_of(child: ForkChild, newest: Observation) -> CreateAnswer:
    """What a create of the child would have answered; ``newest`` is its parent's observation."""
    return CreateAnswer(
        episode_id=child.episode_id,
        lease=child.lease,
        replica_id=child.replica_id,
        generation=child.generation,
        screen=child.screen,
        observation=newest,
        step=child.step,
        last_seq=child.last_seq,
        parent=child.parent,
    )
