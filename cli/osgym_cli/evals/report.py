"""`report.html`: a page of a run that contains everything but the full frames, which it links.

Whatever a model, a guest or a task wrote is escaped; the page runs no script, loads nothing, and its policy
(CSP) says so too.
"""

from __future__ import annotations

import base64
import io
import json
import re
from collections.abc import Mapping, Sequence
from html import escape
from pathlib import Path
from typing import Any
from urllib.parse import quote

from PIL import Image

from osgym_cli.evals.page import CSS, FOOT, HEAD
from osgym_cli.evals.rows import Row
from osgym_cli.evals.statistics import PASSED, Estimate, Summary
from osgym_cli.evals.table import money, number, short
from osgym_host.logs import escape_controls

MAX_PICTURES_BYTES = 48 * 1024 * 1024
"""Upper bound of all pictures in the page; further frames are only linked."""
STRIP = 6
"""Largest number of pictures of one episode."""
THUMB = (420, 262)
MAX_STEPS = 200
MAX_LINE_BYTES = 2 * 1024 * 1024
_MAX_WORDS = 2000
_FRAME = re.compile(r"[0-9]{1,9}\.(png|jpg|webp)", re.ASCII)
"""Names of files of frames; files of other names are neither opened nor linked."""


def write_report(folder: Path, run: Mapping[str, Any], rows: Sequence[Row], summary: Summary) -> Path:
    """Write the page. Raises OSError if the page cannot be written."""
    room = [MAX_PICTURES_BYTES]
    title = f"{run.get('agent', '')} {run.get('model') or ''}".strip()
    parts = [
        HEAD.format(title=text(title), css=CSS),
        f"<header><h1>{text(title)}</h1><p>{text(_subtitle(run))}</p></header>",
        _cards(summary, rows),
        _tasks(rows),
        "<h2>Episodes</h2>",
        *(_episode(folder, row, number_of, room) for number_of, row in enumerate(rows)),
        FOOT,
    ]
    path = folder / "report.html"
    part = folder / ".report.part"
    part.write_text("\n".join(parts), encoding="utf-8", errors="replace")
    part.replace(path)
    return path


def text(value: object) -> str:
    """Escape a value for the page: no markup, no characters that change the direction of text."""
    return "\n".join(escape(escape_controls(line)) for line in str(value).split("\n"))


def _subtitle(run: Mapping[str, Any]) -> str:
    state = " · interrupted" if run.get("interrupted") else ""
    bounds = f"at most {run.get('max_steps', '')} steps"
    certified = f" · {run['certified']} tasks certified" if "certified" in run else ""
    return f"{run.get('started', '')} · {bounds}{certified} · OSGym {run.get('version', '')}{state}"


def _cards(summary: Summary, rows: Sequence[Row]) -> str:
    cards = [("episodes", str(summary.episodes), f"{summary.scored} with a reward")]
    if summary.passed is not None:
        note = _interval(summary.passed, 100)
        if summary.passed_at_least is not None:
            note = f"at least {summary.passed_at_least.mean:.1%}: every infra loss as not passed"
        cards.insert(0, ("passed", f"{summary.passed.mean:.1%}", note))
    if summary.reward is not None:
        cards.insert(1, ("mean reward", f"{summary.reward.mean:.3f}", _interval(summary.reward, 1)))
    cards += [(f"pass@{k}", f"{chance:.1%}", "") for k, chance in summary.pass_at.items()]
    failures = ", ".join(f"{count} {name}" for name, count in summary.failures.items())
    cards.append(("failures", str(sum(summary.failures.values())), failures or "none"))
    if summary.losses:
        again = ", ".join(f"{task} {count} times" for task, count in summary.lost_again.items())
        note = f"lost again on fresh desktops: {again}" if again else "after the policy's first step"
        cards.append(("attempts lost", str(summary.losses), note))
    frames, late = sum(row.frames for row in rows), sum(row.frames_not_final for row in rows)
    cards.append(("frames not final", str(late), f"of {frames} looked at again"))
    read, wrote = (sum(row.usage.get(name, 0) for row in rows) for name in ("input_tokens", "output_tokens"))
    cost = money(rows)
    cards.append(("tokens", f"{short(read)} / {short(wrote)}", f"in / out{f' · ${cost}' if cost else ''}"))
    seconds = sum(row.usage.get("latency_s", 0) for row in rows)
    steps = sum(row.steps for row in rows)
    cards.append(("steps", str(steps), f"{seconds / steps:.1f} s of the model per step" if steps else ""))
    shown = "".join(
        f"<div class=card><span>{text(name)}</span><b>{text(value)}</b><small>{text(note)}</small></div>"
        for name, value, note in cards
    )
    return f"<section class=cards>{shown}</section>"


def _interval(found: Estimate, scale: float) -> str:
    if found.low is None or found.high is None:
        return ""
    digits = 1 if scale == 100 else 3
    return f"95 %: {found.low * scale:.{digits}f} to {found.high * scale:.{digits}f}"


def _tasks(rows: Sequence[Row]) -> str:
    by_task: dict[str, list[tuple[int, Row]]] = {}
    for place, row in enumerate(rows):
        by_task.setdefault(row.task, []).append((place, row))
    lines = []
    for name, tries in by_task.items():
        chips = "".join(
            f"<a class='chip {_kind(row)}' href='#e{place}'>{_score(row)}</a>" for place, row in tries
        )
        own = [row for _, row in tries]
        steps = number(sum(row.steps for row in own) / len(own))
        seconds = number(sum(row.duration_s for row in own) / len(own))
        used = short(sum(sum(row.usage.get(k, 0) for k in ("input_tokens", "output_tokens")) for row in own))
        ends = ", ".join(dict.fromkeys(row.failure_code or row.termination_reason for row in own))
        cells = "".join(f"<td class=n>{text(cell)}</td>" for cell in (steps, used, money(own), seconds))
        instruction = own[0].instruction[:300]
        lines.append(
            f"<tr><td><b>{text(name)}</b><small>{text(instruction)}</small></td><td>{chips}</td>{cells}"
            f"<td>{text(ends)}</td></tr>"
        )
    head = (
        "<th>task<th>reward<th class=n>steps<th class=n>tokens<th class=n>cost $<th class=n>time s<th>ended"
    )
    return f"<h2>Tasks</h2><table><thead><tr>{head}</thead><tbody>{''.join(lines)}</tbody></table>"


def _kind(row: Row) -> str:
    if row.reward is None:
        return "failed" if row.failure_class else "none"
    return "passed" if row.reward >= PASSED else "missed"


def _score(row: Row) -> str:
    return text(row.failure_class or "–") if row.reward is None else f"{row.reward:.2g}"


def _episode(folder: Path, row: Row, place: int, room: list[int]) -> str:
    again = f" · try {row.repeat}" if row.repeat > 1 else ""
    went = f"{_count_of(row.steps)} · {row.duration_s:.0f} s · {text(row.termination_reason)}"
    head = (
        f"<h3 id=e{place}><span class='chip {_kind(row)}'>{_score(row)}</span> {text(row.task)}{again}"
        f"<small>{went}</small></h3>"
    )
    parts = [f"<article>{head}<p class=task>{text(row.instruction)}</p>"]
    if row.failure_message:
        parts.append(f"<p class=wrong>{text(row.failure_code)}: {text(row.failure_message)}</p>")
    home = folder / row.folder if row.folder else None
    if home is not None and home.is_dir():
        steps = _read_steps(home / "steps.jsonl")
        parts.append(_strip(home, row.folder, steps, room))
        parts.append(_steps(row.folder, steps))
    if row.answer:
        parts.append(f"<p class=answer><span>last words</span>{text(row.answer[:_MAX_WORDS])}</p>")
    return "".join([*parts, "</article>"])


def _read_steps(path: Path) -> list[Mapping[str, Any]]:
    steps: list[Mapping[str, Any]] = []
    try:
        with path.open("rb") as file:
            while len(steps) < MAX_STEPS and (line := file.readline(MAX_LINE_BYTES)):
                try:
                    step = json.loads(line)
                except (ValueError, RecursionError):
                    continue  # not written to its end, or too long for the page
                if isinstance(step, dict):
                    steps.append(step)
    except OSError:
        pass  # the folder was removed by hand: the row stands for itself
    return steps


def _strip(home: Path, name: str, steps: Sequence[Mapping[str, Any]], room: list[int]) -> str:
    """Return small pictures of frames from the first to the last."""
    frames = [str(step.get("before", "")) for step in steps[:1]] + [
        str(step.get("after", "")) for step in steps
    ]
    frames = list(dict.fromkeys(frame for frame in frames if _FRAME.fullmatch(frame)))
    if len(frames) > STRIP:
        frames = [frames[round(i * (len(frames) - 1) / (STRIP - 1))] for i in range(STRIP)]
    shown = []
    for frame in frames:
        picture = _picture(home / frame, room)
        inner = f"<img src='{picture}' alt='{text(frame)}' loading=lazy>" if picture else text(frame)
        shown.append(f"<a href='{_link(name, frame)}'>{inner}<small>{text(frame.split('.')[0])}</small></a>")
    return f"<div class=strip>{''.join(shown)}</div>" if shown else ""


def _picture(path: Path, room: list[int]) -> str:
    """Return a frame as a small JPEG in a data URL; empty if it cannot be read, or the page is full."""
    if room[0] <= 0:
        return ""
    try:
        with Image.open(path, formats=("PNG", "JPEG", "WEBP")) as image:
            small = image.convert("RGB")
            small.thumbnail(THUMB, Image.Resampling.LANCZOS, reducing_gap=2.0)
        out = io.BytesIO()
        small.save(out, "JPEG", quality=72, optimize=True)
    except (OSError, ValueError, Image.DecompressionBombError):
        return ""
    room[0] -= out.tell()
    return f"data:image/jpeg;base64,{base64.b64encode(out.getvalue()).decode('ascii')}"


def _link(folder: str, frame: str) -> str:
    return escape(f"{quote(folder)}/{quote(frame)}", quote=True)


def _steps(folder: str, steps: Sequence[Mapping[str, Any]]) -> str:
    """Return a line for each step: the model's words and the actions."""
    lines = []
    for step in steps:
        info = step.get("info")
        words = info.get("text") if isinstance(info, dict) else None
        thought = info.get("reasoning") if isinstance(info, dict) else None
        actions = step.get("actions")
        done = (
            "".join(f"<code>{text(_action(one))}</code>" for one in actions)
            if isinstance(actions, list)
            else ""
        )
        refused = (
            f"<p class=wrong>refused: {text(str(step['refused'])[:500])}</p>" if step.get("refused") else ""
        )
        late = " <i class=late>frame not final</i>" if step.get("final") is False else ""
        said = "".join(
            f"<p class={kind}>{text(part[:_MAX_WORDS])}</p>"
            for kind, part in (("thought", thought), ("words", words))
            if isinstance(part, str) and part.strip()
        )
        after = str(step.get("after", ""))
        number = text(step.get("step", ""))
        if _FRAME.fullmatch(after):
            number = f"<a href='{_link(folder, after)}'>{number}</a>"
        lines.append(f"<li><b>{number}</b><div>{said}{refused}{done}{late}</div></li>")
    if not lines:
        return ""
    return f"<details><summary>{_count_of(len(lines))}</summary><ol>{''.join(lines)}</ol></details>"


def _count_of(steps: int) -> str:
    return "1 step" if steps == 1 else f"{steps} steps"


def _action(action: object) -> str:
    if not isinstance(action, dict):
        return repr(action)[:300]
    rest = " ".join(
        f"{name}={json.dumps(value, ensure_ascii=False)}" for name, value in action.items() if name != "op"
    )
    return f"{action.get('op', '?')} {rest}"[:400]
