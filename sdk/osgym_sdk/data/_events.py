"""Conversion of an episode to events of a journal and rows of a table. Pure; values become plain."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, fields
from datetime import UTC, datetime
from typing import Any

from osgym_sdk._models.observation import Observation, Timing
from osgym_sdk._models.recorder import EpisodeOutcome
from osgym_sdk._models.trajectory import StepRecord, Trajectory
from osgym_sdk.data import _plain as plain
from osgym_sdk.data._schema import COLUMNS
from osgym_sdk.wire import HostState

Event = dict[str, Any]
Row = dict[str, Any]

BEGIN, STEP, END = "begin", "step", "end"
_TIMES = tuple(field.name for field in fields(Timing))


@dataclass(frozen=True, slots=True)
class Origin:
    """Facts of an episode that are known before it begins."""

    episode: str
    task: Mapping[str, Any] | None
    seed: int | None


def origin_values(origin: Origin, trajectory: Trajectory) -> Row:
    """Return the columns that say what was to be done."""
    task = origin.task or {}
    own = task.get("osgym")
    seed = plain.integer(own.get("seed")) if isinstance(own, Mapping) else None
    return {
        "episode": origin.episode,
        "task_id": plain.text(trajectory.task_id if trajectory.task_id is not None else task.get("id")),
        "task": plain.as_json(origin.task),
        "instruction": plain.text(task.get("instruction")),
        "seed": origin.seed if seed is None else seed,
    }


def begin_event(
    origin: Origin,
    trajectory: Trajectory,
    obs: Observation,
    host: HostState | None,
    frame: str | None,
    time_s: float,
) -> Event:
    """Return the event of a first desktop. ``frame`` is the name of its image, None where it has none."""
    parent = trajectory.parent
    digest, flavor = _image(trajectory, host)
    episode = {
        **origin_values(origin, trajectory),
        "episode_id": plain.text(trajectory.episode_id),
        "host": plain.text(trajectory.host),
        "runtime": None if host is None else plain.text(host.runtime),
        "image_digest": plain.text(digest),
        "image_flavor": plain.text(flavor),
        "replica_id": plain.text(trajectory.replica_id),
        "generation": plain.integer(trajectory.generation),
        "screen_width": plain.integer(trajectory.screen[0]),
        "screen_height": plain.integer(trajectory.screen[1]),
        "parent_episode_id": None if parent is None else plain.text(parent.episode_id),
        "parent_step": None if parent is None else plain.integer(parent.step),
        "reset_ms": plain.number(trajectory.reset_ms.get("client")),
        "setup_warnings": _json_or_none([warning.to_dict() for warning in trajectory.setup_warnings]),
    }
    row = {"time": time_s, **_frame_values(obs, frame), **_timing_values(obs.timing)}
    return {"kind": BEGIN, "u": origin.episode, "episode": episode, "row": row}


def _image(trajectory: Trajectory, host: HostState | None) -> tuple[str | None, str | None]:
    """Return digest and flavor of an episode's image; the host's default one where it says no other."""
    digest = trajectory.image_digest
    if host is None:
        return digest, None
    flavors = {host.image.digest: host.image.flavor}
    flavors |= {image.digest: image.flavor for image in host.images}
    digest = digest or host.image.digest
    return digest, flavors.get(digest)


def step_event(
    origin: Origin, record: StepRecord, obs: Observation, frame: str | None, time_s: float
) -> Event:
    """Return the event of a step, with what its answer says of the step before."""
    settle, previous = record.settle, obs.previous
    row = {
        "time": time_s,
        **_frame_values(obs, frame),
        **_info_values(record.info),
        "requested": plain.as_json(record.requested),
        "executed": plain.as_json(record.executed),
        "results": _json_or_none([result.to_dict() for result in record.results]),
        "failed_index": plain.integer(record.failed_index),
        "refused": plain.text(record.refused),
        "done": plain.text(record.done),
        **_timing_values(record.timing),
        "settle_policy": None if settle is None else plain.text(settle.policy),
        "settle_reason": None if settle is None else plain.text(settle.reason),
        "last_change_ms": None if settle is None else plain.number(settle.last_change_ms),
        "final": plain.boolean(record.meta.final),
    }
    event = {"kind": STEP, "u": origin.episode, "row": row}
    if previous is not None:
        event["previous"] = {
            "final": plain.boolean(previous.final),
            "changed_after_ms": plain.number(previous.changed_after_ms),
        }
    return event


def end_event(origin: Origin, trajectory: Trajectory, outcome: EpisodeOutcome, time_s: float) -> Event:
    """Return the event of an end; it says what was to be done too, since there may have been no beginning."""
    evaluation = trajectory.evaluation
    failure = outcome.failure or (None if evaluation is None else evaluation.loss)
    error_class = failure.error_class if failure is not None else None
    episode = {
        **origin_values(origin, trajectory),
        "index": plain.integer(outcome.index),
        "attempt": plain.integer(outcome.attempt),
        "reward": plain.number(outcome.reward),
        "evaluation": None if evaluation is None else _json_or_none(evaluation.details),
        "termination_reason": plain.text(outcome.termination_reason),
        "valid_for_training": plain.boolean(outcome.valid_for_training),
        "error_class": plain.text(error_class),
        "failure_code": None if failure is None else plain.text(failure.code),
        "failure": None if failure is None else plain.text(failure.message),
        "failure_details": None if failure is None else _json_or_none(failure.details),
        "note": plain.text(outcome.note),
        "invalid_actions": plain.integer(outcome.invalid_actions),
        "last_info": plain.as_json(trajectory.last_info),
        "duration_s": plain.number(outcome.duration_s),
    }
    refused = {str(at): plain.text(one.refused) for at, one in enumerate(trajectory.steps, 1) if one.refused}
    return {"kind": END, "u": origin.episode, "episode": episode, "refused": refused, "time": time_s}


def rows_of(events: Iterable[Event]) -> list[Row]:
    """Return the rows of one episode, in order, with every column."""
    rows: list[Row] = []
    episode: Row = {}
    complete = False
    for event in events:
        if event["kind"] == BEGIN:
            episode.update(event["episode"])
            rows.append(dict(event["row"]))
        elif event["kind"] == STEP:
            if event.get("previous") and rows:
                rows[-1].update(event["previous"])
            rows.append(dict(event["row"]))
        else:
            episode.update(event["episode"])
            for at, why in event["refused"].items():
                if int(at) < len(rows):
                    rows[int(at)]["refused"] = why
            complete = True
            rows = rows or [{"time": event["time"]}]
    episode["complete"], episode["steps"] = complete, max(0, len(rows) - 1)
    before: str | None = None
    for step, row in enumerate(rows):
        row.update(episode, step=step, frame_before=before)
        before = row.get("frame")
        row["time"] = datetime.fromtimestamp(row["time"], UTC)
    return [{column.name: row.get(column.name) for column in COLUMNS} for row in rows]


def encode(event: Event) -> bytes:
    """Return an event as a record of a journal."""
    return json.dumps(event, ensure_ascii=True, separators=(",", ":")).encode("ascii")


def decode(record: bytes) -> Event | None:
    """Return the event of a record; None for what is none of ours."""
    try:
        event = json.loads(record)
    except (ValueError, RecursionError):
        return None
    if not isinstance(event, dict) or not isinstance(event.get("u"), str):
        return None
    parts = {BEGIN: ("episode", "row"), STEP: ("row",), END: ("episode", "refused")}.get(
        str(event.get("kind"))
    )
    if parts is None or not all(isinstance(event.get(part), dict) for part in parts):
        return None
    return event


def _frame_values(obs: Observation, frame: str | None) -> Row:
    said = obs.meta.frame
    return {
        "frame": frame,
        "frame_format": plain.text(said.format) if obs.data else None,
        "frame_width": plain.integer(said.width),
        "frame_height": plain.integer(said.height),
        "frame_hash": plain.text(said.hash),
        "frame_unchanged": plain.boolean(said.unchanged),
        "frame_lost": bool(obs.data) and frame is None,
    }


def _timing_values(timing: Timing | None) -> Row:
    return {} if timing is None else {name: plain.number(getattr(timing, name)) for name in _TIMES}


def _info_values(info: Any) -> Row:
    """Return text, tokens and log-probabilities in columns of their own, and the rest as it is."""
    if isinstance(info, str):
        return {"text": plain.text(info)}
    if not isinstance(info, Mapping):
        return {"info": plain.as_json(info)}
    rest = dict(info)
    found: Row = {}
    if isinstance(rest.get("text"), str):
        found["text"] = plain.text(rest.pop("text"))
    for name, convert in (("tokens", plain.integers), ("logprobs", plain.numbers)):
        listed = convert(rest.get(name))
        if listed is not None:
            found[name] = listed
            del rest[name]
    found["info"] = plain.as_json(rest) if rest else None
    return found


def _json_or_none(value: Any) -> str | None:
    return plain.as_json(value) if value else None
