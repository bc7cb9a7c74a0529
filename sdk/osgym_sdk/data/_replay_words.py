"""Texts of a replay about an episode and its steps, as plain values."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from typing import Any

from osgym_sdk.data._dataset import Episode, Step

MAX_CHARS = 20_000
"""Length of one text of a model or a guest."""
PARTS_MS = (
    "client_ms", "network_ms", "host_ms", "guest_ms", "input_ms", "settle_ms", "capture_ms", "encode_ms",
)  # fmt: skip


def reward_word(episode: Episode) -> dict[str, str]:
    """Return the reward in words, and its tone."""
    reward, steps = episode.reward, len(episode)
    count = f"{steps} step" + "s" * (steps != 1)
    if reward is None:
        return {"text": f"reward not known, {count}", "tone": "faint"}
    return {"text": f"reward {reward:g}, {count}", "tone": "good" if reward > 0 else "bad"}


def facts(episode: Episode) -> list[tuple[str, str]]:
    """Return what is known of the whole episode."""
    first = episode.first
    found = [
        ("Task", first["instruction"]),
        ("Episode", _joined(first, "episode", "episode_id")),
        ("Host", _joined(first, "host", "runtime", "replica_id", "generation")),
        ("Image", _joined(first, "image_flavor", "image_digest")),
        ("Seed, attempt", _joined(first, "seed", "attempt")),
        ("Reset", None if first["reset_ms"] is None else f"{first['reset_ms']:.0f} ms"),
        ("Branched from", _joined(first, "parent_episode_id", "parent_step")),
    ]
    return [(name, cut(value)) for name, value in found if value]


def ending(episode: Episode) -> list[tuple[str, str]]:
    """Return how the episode ended."""
    first = episode.first
    said = first["evaluation"]
    found = [
        (
            "Ended",
            first["termination_reason"]
            if first["complete"]
            else "the episode is still running, or its writer died",
        ),
        ("Failure", _joined(first, "error_class", "failure_code", "failure")),
        ("Note", first["note"]),
        ("Evaluation", None if said is None else json.dumps(said, indent=1, ensure_ascii=False)),
    ]
    return [(name, cut(value)) for name, value in found if value]


def notes(step: Step) -> list[dict[str, str]]:
    """Return what went wrong in a step, the worst first; `short` is for the filmstrip."""
    found = []
    if step["refused"]:
        found.append(_note("bad", "refused", f"refused: {step['refused']}"))
    if step["failed_index"] is not None:
        results = json.dumps(step["results"], ensure_ascii=False)
        found.append(_note("bad", "failed", f"action {step['failed_index']} failed: {results}"))
    if step["final"] is False:
        later = step["changed_after_ms"]
        when = "later" if later is None else f"{later:.0f} ms later"
        found.append(_note("late", "not final", f"the frame was not final: the screen changed {when}"))
    if step["frame_lost"]:
        found.append(_note("late", "image lost", "the image could not be kept"))
    return found


def parts_ms(step: Step) -> list[tuple[str, float]]:
    """Return where the time of a step went, in the order of the way."""
    return [
        (name.removesuffix("_ms"), float(step[name]))
        for name in PARTS_MS
        if isinstance(step[name], (int, float))
    ]


def waited(step: Step) -> str:
    """Return why the wait for the screen ended."""
    if step["settle_reason"] is None:
        return ""
    policy = f"{step['settle_policy']}: " if step["settle_policy"] else ""
    took = "" if step["settle_ms"] is None else f" after {step['settle_ms']:.0f} ms"
    return cut(f"{policy}{step['settle_reason']}{took}")


def in_words(action: Mapping[str, Any]) -> str:
    """Return an action on one line: its name, then its fields."""
    fields = ", ".join(
        f"{name}={json.dumps(value, ensure_ascii=False)}" for name, value in action.items() if name != "op"
    )
    return cut(f"{action.get('op', '?')} {fields}".strip())


def marks(action: Mapping[str, Any]) -> list[dict[str, Any]]:
    """Return what to draw of an action: a point, or the line of a drag; pixels of the screen."""
    path = action.get("path")
    if isinstance(path, list) and path:
        points = [_point(p[0], p[1]) if isinstance(p, (list, tuple)) and len(p) == 2 else None for p in path]
        return [] if None in points else [{"path": points}]
    point = _point(action.get("x"), action.get("y"))
    return [] if point is None else [{"x": point[0], "y": point[1]}]


def cut(value: Any) -> str:
    """Return text of a bounded length, without characters that turn its direction or are not shown."""
    text = "".join(c if c in "\n\t" or c.isprintable() else "\N{REPLACEMENT CHARACTER}" for c in str(value))
    return text if len(text) <= MAX_CHARS else f"{text[:MAX_CHARS]}… ({len(text)} characters)"


def _point(x: Any, y: Any) -> tuple[float, float] | None:
    numbers = [
        v for v in (x, y) if isinstance(v, (int, float)) and not isinstance(v, bool) and math.isfinite(v)
    ]
    return (round(numbers[0], 1), round(numbers[1], 1)) if len(numbers) == 2 else None


def _note(tone: str, short: str, text: str) -> dict[str, str]:
    return {"tone": tone, "short": short, "text": cut(text)}


def _joined(step: Step, *columns: str) -> str:
    return ", ".join(str(step[column]) for column in columns if step[column] is not None)
