"""One episode as a page of HTML that needs nothing else, and nothing of which is run."""

from __future__ import annotations

import base64
import html
import io
import json
from collections.abc import Iterable, Mapping
from typing import Any

from osgym_sdk._exceptions import OSGymError
from osgym_sdk.data._dataset import Episode, Step

IMAGE_WIDTH = 1280
"""Pixels of an image in the page; wider ones are made smaller."""
_POLICY = "default-src 'none'; img-src data:; style-src 'unsafe-inline'"
_STYLE = """
body{font:15px/1.45 system-ui,sans-serif;margin:0;background:#f6f8fa;color:#1f2328}
header,section{max-width:1340px;margin:16px auto;background:#fff;border:1px solid #d0d7de;border-radius:8px;
padding:16px 20px}
h1{font-size:20px;margin:0 0 8px}h2{font-size:16px;margin:0 0 10px}
dl{display:grid;grid-template-columns:max-content 1fr;gap:2px 16px;margin:0}dt{color:#59636e}dd{margin:0}
.shot{position:relative;margin:10px 0;border:1px solid #d0d7de;line-height:0}.shot img{width:100%}
.shot svg{position:absolute;inset:0;width:100%;height:100%}
code,pre{font:13px ui-monospace,monospace;background:#f6f8fa;border-radius:4px}code{padding:1px 4px}
pre{padding:8px;white-space:pre-wrap;overflow-wrap:anywhere;max-height:20em;overflow:auto}
.bad{color:#cf222e}.good{color:#1a7f37}small{color:#59636e}
"""


def episode_page(episode: Episode) -> str:
    """Return the page: what was to be done, each step with what the policy saw, and how it ended.

    Raises:
        DatasetError: an episode cannot be read; an image that cannot is left out.
    """
    first, steps = episode.first, episode.steps
    title = str(first["task_id"] or episode.name)
    body = [_header(title, episode, first)]
    body += [_step(step) for step in steps]
    last = (steps or [first])[-1]
    body.append(f"<section><h2>The last screen</h2>{_shot(last, 'frame', ())}</section>")
    return (
        f'<!doctype html>\n<html lang="en"><head><meta charset="utf-8">'
        f'<meta http-equiv="Content-Security-Policy" content="{_POLICY}">'
        f"<title>{html.escape(title)}</title><style>{_STYLE}</style></head><body>\n"
        + "\n".join(body)
        + "\n</body></html>\n"
    )


def _header(title: str, episode: Episode, first: Step) -> str:
    reward = episode.reward
    tone = "" if reward is None else ' class="good"' if reward > 0 else ' class="bad"'
    facts: list[tuple[str, Any]] = [
        ("Task", first["instruction"]),
        ("Ended", first["termination_reason"] if first["complete"] else "goes on, or its writer died"),
        ("Failure", _joined(first, "error_class", "failure_code", "failure")),
        ("Evaluation", None if first["evaluation"] is None else json.dumps(first["evaluation"])),
        ("Episode", _joined(first, "episode", "episode_id")),
        ("Host", _joined(first, "host", "runtime", "replica_id", "generation")),
        ("Image", _joined(first, "image_flavor", "image_digest")),
        ("Seed, attempt", _joined(first, "seed", "attempt")),
    ]
    rows = "".join(f"<dt>{name}</dt><dd>{_text(value)}</dd>" for name, value in facts if value)
    said = "not known" if reward is None else f"{reward:g}"
    return (
        f"<header><h1>{_text(title)}</h1><dl><dt>Reward</dt><dd{tone}><b>{said}</b>, "
        f"{len(episode)} steps</dd>{rows}</dl></header>"
    )


def _step(step: Step) -> str:
    said = [_ms(step["total_ms"])]
    if step["settle_reason"] is not None:
        said.append(f"{_text(step['settle_reason'])} after {_ms(step['settle_ms'])}")
    if step["final"] is False:
        said.append(f"not final: changed {_ms(step['changed_after_ms'])} later")
    parts = [f"<h2>Step {step['step']} <small>{', '.join(said)}</small></h2>"]
    if step["text"]:
        parts.append(f"<pre>{_text(step['text'])}</pre>")
    parts += [f"<code>{_text(json.dumps(action))}</code> " for action in step.actions]
    if step["refused"]:
        parts.append(f'<p class="bad">refused: {_text(step["refused"])}</p>')
    if step["failed_index"] is not None:
        parts.append(f'<p class="bad">action {step["failed_index"]} failed: {_text(step["results"])}</p>')
    parts.append(_shot(step, "frame_before", step.actions))
    return f"<section>{''.join(parts)}</section>"


def _shot(step: Step, column: str, actions: Iterable[Mapping[str, Any]]) -> str:
    try:
        image = step.image_before if column == "frame_before" else step.image
    except (OSGymError, KeyError) as exc:
        return f'<p class="bad">the image cannot be shown: {_text(exc)}</p>'
    if image is None:
        return "<p><small>no image</small></p>"
    if image.width > IMAGE_WIDTH:
        image = image.resize((IMAGE_WIDTH, max(1, image.height * IMAGE_WIDTH // image.width)))
    out = io.BytesIO()
    image.save(out, "JPEG", quality=85)
    data = base64.b64encode(out.getvalue()).decode("ascii")
    width, height = step["screen_width"] or 0, step["screen_height"] or 0
    marks = "".join(_mark(action, width, height) for action in actions) if width and height else ""
    view = f'<svg viewBox="0 0 {width} {height}" preserveAspectRatio="none">{marks}</svg>' if marks else ""
    return f'<div class="shot"><img alt="" src="data:image/jpeg;base64,{data}">{view}</div>'


def _mark(action: Mapping[str, Any], width: int, height: int) -> str:
    """Return a ring around a point, or the line of a drag."""
    size = max(width, height) / 80
    line = f'fill="none" stroke="#cf222e" stroke-width="{size / 4:.1f}"'
    path = action.get("path")
    if isinstance(path, list) and path:
        try:
            points = " ".join(f"{float(x):.0f},{float(y):.0f}" for x, y in path)
        except (TypeError, ValueError):
            return ""
        return f'<polyline points="{points}" {line}/>'
    x, y = action.get("x"), action.get("y")
    if not isinstance(x, (int, float)) or not isinstance(y, (int, float)):
        return ""
    return f'<circle cx="{x:.0f}" cy="{y:.0f}" r="{size:.1f}" {line}/>'


def _joined(step: Step, *columns: str) -> str:
    return ", ".join(str(step[column]) for column in columns if step[column] is not None)


def _ms(value: float | None) -> str:
    return "?" if value is None else f"{value:.0f} ms"


def _text(value: Any) -> str:
    return html.escape(str(value))
