"""Lines of an episode's trajectory: start, steps, evaluation, end."""

from __future__ import annotations

import time
from collections.abc import Mapping
from typing import Any

from osgym_host.core.reasons import Reason
from osgym_host.episodes.episode import HostEpisode, StepResult
from osgym_host.episodes.recorder import TrajectoryRecorder
from osgym_protocol.host_api import EvaluationAnswer, StepRequest
from osgym_protocol.observation import ObservedFrame


class TrajectoryLines:
    def __init__(self, recorder: TrajectoryRecorder) -> None:
        self._recorder = recorder

    def start(
        self,
        episode: HostEpisode,
        frame: ObservedFrame | None = None,
        *,
        timing_ms: Mapping[str, float] | None = None,
        pause_ms: float | None = None,
    ) -> None:
        """Add the first line; the arguments are those of `EpisodeService.register`."""
        origin = {"parent": {**episode.parent.to_dict(), "pause_ms": pause_ms}} if episode.parent else {}
        line = {
            "kind": "start",
            "episode_id": episode.episode_id,
            "task_id": episode.task_id,
            "instruction": episode.task.instruction if episode.task is not None else None,
            "replica_id": episode.replica.replica_id,
            "generation": episode.replica.generation,
            "image_digest": episode.image_digest,
            "time": episode.began_at,
            "step": episode.steps.progress.step,
            "observation": frame.observation.to_dict() if frame is not None else None,
            "timing_ms": dict(timing_ms or {}),
            "setup_warnings": [warning.to_dict() for warning in episode.setup_warnings],
            **({"run": episode.terms.run} if episode.terms.run is not None else {}),
            **origin,
        }
        if frame is None:
            self._recorder.add(episode.episode_id, line)
        else:
            self._recorder.add(episode.episode_id, line, frame.image, frame.observation.frame.format.value)

    def step(
        self, episode_id: str, request: StepRequest, result: StepResult, answer: Mapping[str, Any]
    ) -> None:
        """Add a step with its frame; `answer` is the JSON object of the answer."""
        line = {"kind": "step", "seq": request.seq, "time": round(time.time(), 3), **answer}
        if request.note:
            line["note"] = request.note
        self._recorder.add(episode_id, line, result.image, answer["observation"]["frame"]["format"])

    def evaluation(self, episode_id: str, evaluation: EvaluationAnswer) -> None:
        self._recorder.add(episode_id, {"kind": "evaluation", **evaluation.to_dict()})

    def end(self, episode: HostEpisode, cause: Reason) -> None:
        how = episode.termination_reason()
        line = {"kind": "end", "termination_reason": how, "cause": cause.value, "time": time.time()}
        if episode.reach.events:
            line["reaches"] = episode.reach.events
        self._recorder.add(episode.episode_id, line)
