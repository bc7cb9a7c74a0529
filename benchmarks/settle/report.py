"""Tables and the plot of a saved run."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from pathlib import Path

from PIL import Image, ImageDraw, ImageFont

from benchmarks.settle.actions import group_of
from benchmarks.settle.live import FIXED_PAUSES_MS, Verdict
from benchmarks.settle.rest import STAGES
from benchmarks.settle.scenarios import application
from benchmarks.settle.stats import Summary, summarize

PLOT_SIZE = (1200, 800)
PLOT_MARGIN = 100
COLOURS = {"exact": "#1f6feb", "fast": "#d9480f", "certain": "#2b8a3e"}
GREY = "#57606a"
LONGEST_MS = 2000.0
OWN_POLICIES = ("exact", "fast", "certain")
KINDS = ("commit", "open", "navigate", "type", "nothing")


def policies_of(verdicts: Iterable[Verdict]) -> list[str]:
    """Return the policies of a run: our own first, then the fixed pauses by length."""
    found = {verdict.policy for verdict in verdicts}
    order = [*OWN_POLICIES, *(f"{pause:g} ms" for pause in FIXED_PAUSES_MS)]
    return [name for name in order if name in found]


def summaries(verdicts: Sequence[Verdict]) -> list[Summary]:
    return [_summary(name, [v for v in verdicts if v.policy == name]) for name in policies_of(verdicts)]


def _summary(name: str, verdicts: Sequence[Verdict]) -> Summary:
    regrets = [v.regret_ms if v.policy in OWN_POLICIES else None for v in verdicts]
    return summarize(name, [v.wait_ms for v in verdicts], [v.premature for v in verdicts], regrets)


def part_of(verdict: Verdict) -> str:
    """Return the part of the mix: rules are chosen on all but what is kept for the end."""
    try:
        app = application(verdict.app)
    except KeyError:  # of a saved run; since then it was renamed
        return "others"
    if not app.own_image:
        return "shipped, flows" if app.mix == "flows" else "shipped, single strokes"
    return "own image, kept for the end" if app.kept else "own image, tuned on"


def row(summary: Summary) -> str:
    low, high = summary.interval
    regret = "" if summary.regret_ms is None else f"{summary.regret_ms:.0f}"
    return (
        f"| {summary.name} | {summary.mean_ms:.0f} | {summary.median_ms:.0f} | {summary.p95_ms:.0f} "
        f"| {regret} | {summary.premature}/{summary.actions} | {100 * summary.share:.1f} % "
        f"({100 * low:.1f} to {100 * high:.1f}) |"
    )


COLUMNS = "| {} | mean ms | median | p95 | regret, median | premature | share (95 %) |"
HEADER = COLUMNS + "\n" + "|---" * 7 + "|"


def markdown(title: str, verdicts: Sequence[Verdict]) -> str:
    """Return all tables of one run: policies, applications, premature frames and their marks."""
    lines = [f"## {title}", "", HEADER.format("policy"), *(row(s) for s in summaries(verdicts)), ""]
    lines += _only_final(verdicts)
    for policy in OWN_POLICIES:
        mine = [v for v in verdicts if v.policy == policy]
        if not mine:
            continue
        lines += _table(f"{policy} by kind", "kind", mine, lambda v: group_of(v.kind), KINDS)
        lines += _table(f"{policy} by part", "part", mine, part_of)
        lines += _table(f"{policy} by application", "application", mine, lambda v: v.app)
        lines += [*_what_is_left(policy, mine), ""]
    return "\n".join(lines)


def rest_table(verdicts: Sequence[Verdict]) -> str:
    """Return one row for each policy and stage of rest before a step; nothing for runs without rest."""
    rested = [verdict for verdict in verdicts if verdict.rest]
    rows = [
        row(_summary(f"{name}, {stage}", part))
        for name in policies_of(rested)
        for stage in STAGES
        if (part := [v for v in rested if (v.policy, v.rest) == (name, stage)])
    ]
    return (
        "\n".join(["", "## By rest before the step", "", HEADER.format("policy"), *rows, ""]) if rows else ""
    )


def _table(
    title: str,
    column: str,
    verdicts: Sequence[Verdict],
    name_of: Callable[[Verdict], str],
    order: Sequence[str] = (),
) -> list[str]:
    """Return one row for each name that the verdicts have, in the order given or in that of their first."""
    names = [*order, *(name for name in dict.fromkeys(map(name_of, verdicts)) if name not in order)]
    parts = [(name, [v for v in verdicts if name_of(v) == name]) for name in names]
    rows = [row(_summary(name, part)) for name, part in parts if part]
    return [f"### {title}", "", HEADER.format(column), *rows, ""]


def _only_final(verdicts: Sequence[Verdict]) -> list[str]:
    """Compare a policy that trusts only final frames with one that takes what `exact` gives."""
    exact = [v.wait_ms for v in verdicts if v.policy == "exact"]
    certain = [v.wait_ms for v in verdicts if v.policy == "certain"]
    if not exact or not certain:
        return []
    paid = sum(certain) / len(certain) - sum(exact) / len(exact)
    return [f"Who trusts only final frames (`certain`) pays {paid:.0f} ms a step more than `exact`.", ""]


def _what_is_left(policy: str, verdicts: Sequence[Verdict]) -> list[str]:
    premature = [v for v in verdicts if v.premature]
    unmarked = [v for v in premature if not v.marked]
    marked_though_same = sum(1 for v in verdicts if v.marked and not v.premature)
    lines = [
        f"Premature frames of `{policy}`: {len(premature)}, of which the watch marked "
        f"{len(premature) - len(unmarked)} and left {len(unmarked)} unmarked. Marked although the screen "
        f"after 3 s was the same again: {marked_though_same}.",
        "",
    ]
    for v in premature:
        when = "?" if v.changed_after_ms is None else f"{v.changed_after_ms:.0f} ms"
        mark = "" if v.marked else ", UNMARKED"
        lines.append(
            f"- {v.app} {v.index} {v.label} ({v.kind}): waited {v.wait_ms:.0f} ms, changed {when} after the "
            f"answer, {v.differing_pixels} px in {v.box}{mark}"
        )
    return lines


def plot(path: Path, runs: Sequence[tuple[str, Sequence[Verdict]]]) -> None:
    """Plot the premature share against the mean wait, with Wilson intervals; one colour for each policy."""
    image = Image.new("RGB", PLOT_SIZE, "white")
    draw = ImageDraw.Draw(image)
    font = ImageFont.load_default(size=18)
    shown = [(title, summary) for title, verdicts in runs for summary in summaries(verdicts)]
    top = max((s.interval[1] for _, s in shown), default=1.0)
    _axes(draw, font, top)
    numbers = {title: str(number) for number, (title, _) in enumerate(runs, 1)}
    for title, summary in shown:
        x, y = _place(summary.mean_ms, summary.share, top)
        low, high = summary.interval
        colour = COLOURS.get(summary.name, GREY)
        draw.line([(x, _place(0, low, top)[1]), (x, _place(0, high, top)[1])], fill=colour, width=2)
        _point(draw, x, y, colour, numbers[title], filled=title == runs[0][0])
        if title == runs[0][0]:
            draw.text((x + 14, y - 26), summary.name, fill=colour, font=font)
    for row, (title, _) in enumerate(runs):
        y = PLOT_MARGIN + 30 * row
        _point(draw, PLOT_SIZE[0] - 424, y, GREY, numbers[title], filled=row == 0)
        draw.text((PLOT_SIZE[0] - 405, y - 11), title, fill=GREY, font=font)
    image.save(path)


def _point(draw: ImageDraw.ImageDraw, x: float, y: float, colour: str, text: str, *, filled: bool) -> None:
    draw.ellipse([x - 9, y - 9, x + 9, y + 9], fill=colour if filled else "white", outline=colour)
    font = ImageFont.load_default(size=13)
    draw.text((x, y), text, fill="white" if filled else colour, font=font, anchor="mm")


def _place(wait_ms: float, share: float, top: float) -> tuple[float, float]:
    """Return the place of a point: square root of the wait to the right, of the share upwards."""
    width, height = PLOT_SIZE
    right = (min(wait_ms, LONGEST_MS) / LONGEST_MS) ** 0.5
    return (
        PLOT_MARGIN + right * (width - 2 * PLOT_MARGIN - 80),
        height - PLOT_MARGIN - (share / top) ** 0.5 * (height - 2 * PLOT_MARGIN),
    )


def _axes(draw: ImageDraw.ImageDraw, font: ImageFont.FreeTypeFont | ImageFont.ImageFont, top: float) -> None:
    left, bottom = _place(0, 0, top)
    right, _ = _place(LONGEST_MS, 0, top)
    draw.line([(left, bottom), (right, bottom)], fill="black", width=2)
    draw.line([(left, bottom), (left, PLOT_MARGIN)], fill="black", width=2)
    for wait_ms in (0, 50, 100, 200, 500, 1000, 2000):
        x, y = _place(wait_ms, 0, top)
        draw.line([(x, y), (x, y + 6)], fill="black")
        draw.text((x - 12, y + 10), str(wait_ms), fill="black", font=font)
    for share in (0.0, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1.0):
        if share > top:
            break
        x, y = _place(0, share, top)
        draw.line([(x - 6, y), (x, y)], fill="black")
        draw.text((x - 60, y - 10), f"{100 * share:.0f} %", fill="black", font=font)
    draw.text(
        (left, PLOT_MARGIN - 60), "premature frames (95 % interval) against mean wait in ms", "black", font
    )
