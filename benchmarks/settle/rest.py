"""Rest of a replica before each step, to compare frames of steps that wake with those of others.

The host agent must pause a replica later than the truth is looked at, since a paused program draws nothing:

    osgym host serve --set image=full --set rest=reclaim --set rest_after_s=5 --set reclaim_after_s=9
"""

from __future__ import annotations

import os
import time

import httpx

STAGES = ("awake", "paused", "reclaimed")
TIMEOUT_S = 60.0
_LOOK_EVERY_S = 0.1


class RestError(RuntimeError):
    """The replica does not rest as the benchmark needs it; the message says which setting is wrong."""


def stage_of(host: str, episode_id: str) -> str:
    """Return the stage of rest of an episode's replica. The question does not wake it.

    Raises:
        RestError: The host's replicas never rest, or it has no such episode.
    """
    token = os.environ.get("OSGYM_TOKEN")
    headers = {"Authorization": f"Bearer {token}"} if token else {}
    reply = httpx.get(f"{host}/v1/replicas", headers=headers, timeout=30).raise_for_status()
    stage = next((row["rest"] for row in reply.json() if row["episode_id"] == episode_id), None)
    if stage is None:
        raise RestError("replicas of this host do not rest: start it with --set rest=reclaim")
    return str(stage)


def require_awake(host: str, episode_id: str) -> None:
    """Check that the replica has drawn until now, before the true screen is looked at.

    Raises:
        RestError: It was paused meanwhile.
    """
    if stage_of(host, episode_id) != "awake":
        raise RestError(
            "the replica was paused before its screen was final: --set rest_after_s=5 on the host"
        )


def wait_for_stage(host: str, episode_id: str, stage: str) -> None:
    """Wait until the replica rests in a stage; an awake one is not waited for.

    Raises:
        RestError: It did not within `TIMEOUT_S`; without swap it is never reclaimed.
    """
    until = time.monotonic() + TIMEOUT_S
    while stage != "awake" and (found := stage_of(host, episode_id)) != stage:
        if time.monotonic() > until or (stage, found) == ("paused", "reclaimed"):
            raise RestError(f"the replica was {found}, not {stage}, within {TIMEOUT_S:g} s of its last step")
        time.sleep(_LOOK_EVERY_S)
