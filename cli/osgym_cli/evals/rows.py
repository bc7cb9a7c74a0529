"""Rows of `results.jsonl`: what is known of each episode that was run."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass, field, fields
from pathlib import Path
from typing import Any

from osgym_cli.evals.jobs import Job

MAX_TEXT = 4000
"""Largest number of characters of a model's, guest's or task's text in a row."""


@dataclass(frozen=True, slots=True)
class Prices:
    """US dollars for a million tokens; None where the price is unknown."""

    input_usd: float | None = None
    output_usd: float | None = None
    cached_usd: float | None = None

    def cost_usd(self, usage: Mapping[str, float]) -> float | None:
        """Return the cost of tokens, None without prices; without a price cached tokens cost as others."""
        if self.input_usd is None or self.output_usd is None:
            return None
        cached = usage.get("cached_tokens", 0)
        cached_usd = self.input_usd if self.cached_usd is None else self.cached_usd
        fresh = max(0, usage.get("input_tokens", 0) - cached)
        total = fresh * self.input_usd + cached * cached_usd + usage.get("output_tokens", 0) * self.output_usd
        return total / 1e6


@dataclass(frozen=True, slots=True)
class Row:
    """Result of one episode.

    Attributes:
        failure_class: `model`, `task`, `infra`, or `unknown`; `policy`, with the reward 0, for a desktop that
            the policy broke; None without a failure.
        losses: Number of attempts that were lost for infrastructure after the policy had begun to act.
        frames: Number of frames that were looked at again later, so that it is known whether they were final.
        frames_not_final: Number of those frames that changed later.
        usage: Sums of the model's tokens, seconds and requests.
        answer: Last words of the model.
        folder: Path of the trajectory in the run's folder; empty if the episode never began.
    """

    task: str
    repeat: int
    instruction: str
    reward: float | None
    failure_code: str | None
    failure_class: str | None
    failure_message: str
    termination_reason: str
    steps: int
    invalid_actions: int
    frames: int
    frames_not_final: int
    attempts: int
    duration_s: float
    usage: dict[str, float] = field(default_factory=dict)
    cost_usd: float | None = None
    answer: str = ""
    folder: str = ""
    episode_id: str = ""
    host: str = ""
    losses: int = 0

    @property
    def key(self) -> tuple[str, int]:
        return self.task, self.repeat

    @property
    def is_finished(self) -> bool:
        """Whether the episode has a result of the model or the task, so that it need not be run again."""
        return self.failure_class in (None, "model", "policy", "task")

    @property
    def counts(self) -> bool:
        """Whether the episode counts where models are compared: a model that failed did not pass."""
        return self.reward is not None or self.failure_class == "model"

    @property
    def is_lost(self) -> bool:
        """Whether a failure of the infrastructure left the episode without a result."""
        return not self.is_finished

    def to_line(self) -> str:
        return json.dumps(asdict(self), ensure_ascii=False, allow_nan=False) + "\n"


def row_of(job: Job, result: Any, prices: Prices) -> Row:
    """Make the row of a result of the SDK."""
    failure, trajectory = result.failure or result.loss, result.trajectory
    infos = [step.info for step in result.steps]
    infos += [] if trajectory.last_info is None else [trajectory.last_info]
    usage = sum_usage(infos)
    looked_at = [step for step in result.steps if step.final is not None]
    return Row(
        task=job.task_name,
        repeat=job.repeat,
        instruction=job.instruction[:MAX_TEXT],
        reward=result.reward,
        failure_code=None if failure is None else str(failure.code),
        failure_class=None if failure is None else str(failure.error_class or "unknown"),
        failure_message="" if failure is None else failure.message[:MAX_TEXT],
        termination_reason=str(result.termination_reason),
        steps=len(result.steps),
        invalid_actions=result.invalid_actions,
        frames=len(looked_at),
        frames_not_final=sum(step.final is False for step in looked_at),
        attempts=result.attempts,
        duration_s=round(result.duration_s, 3),
        usage=usage,
        cost_usd=prices.cost_usd(usage),
        answer=next((words for words in map(said, reversed(infos)) if words), ""),
        folder=f"trajectories/{job.folder}" if trajectory.first_frame is not None else "",
        episode_id=trajectory.episode_id,
        host=trajectory.host,
        losses=result.losses,
    )


def sum_usage(infos: Iterable[Any]) -> dict[str, float]:
    """Sum the tokens and times in the infos of decisions; infos of another form count nothing."""
    total: dict[str, float] = {}
    for info in infos:
        usage = info.get("usage") if isinstance(info, Mapping) else None
        for name, value in usage.items() if isinstance(usage, Mapping) else ():
            if isinstance(name, str) and type(value) in (int, float) and 0 <= value < 1e12:
                total[name] = total.get(name, 0) + value
    return {name: round(value, 3) for name, value in total.items()}


def said(info: Any) -> str:
    """Return the model's words in a decision's info; empty if it has none."""
    text = info.get("text") if isinstance(info, Mapping) else None
    return text[:MAX_TEXT] if isinstance(text, str) else ""


def read_rows(path: Path) -> list[Row]:
    """Read the newest row of each episode; a line that was not written to its end is left out.

    Raises:
        OSError: The file cannot be read.
    """
    known = {one.name for one in fields(Row)}
    rows: dict[tuple[str, int], Row] = {}
    if not path.exists():
        return []
    for line in path.read_text(encoding="utf-8", errors="replace").splitlines():
        try:
            raw = json.loads(line)
            row = Row(**{name: value for name, value in raw.items() if name in known})
        except (ValueError, TypeError, AttributeError):
            continue
        rows.pop(row.key, None)
        rows[row.key] = row
    return list(rows.values())
