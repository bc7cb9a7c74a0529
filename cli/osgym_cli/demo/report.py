"""Output of the demo: a table while it runs and at its end, and a contact sheet of the screens."""

from __future__ import annotations

import statistics
from pathlib import Path

from PIL import Image, ImageDraw, ImageFont
from rich.table import Table
from rich.text import Text

from osgym_cli.demo.play import Play, PolicyName

THUMB = (480, 270)
GAP, HEAD = 12, 34
_DARK, _LIGHT, _GREEN, _RED = (24, 26, 33), (222, 226, 235), (120, 210, 130), (240, 120, 110)


def quantile(values: list[float], q: float) -> float | None:
    """Return the q-quantile (0.01 to 0.99), linear between neighbours; None without values."""
    if len(values) < 2:
        return values[0] if values else None
    return statistics.quantiles(values, n=100, method="inclusive")[round(q * 100) - 1]


def table(plays: list[Play]) -> Table:
    """Return one row for each episode, in the order of the tasks."""
    made = Table(box=None, header_style="bold", pad_edge=False)
    made.add_column("task", no_wrap=True)
    made.add_column("policy", no_wrap=True)
    for name in ("reward", "steps", "reset ms", "set-up ms", "step p50 ms", "p95 ms", "not final"):
        made.add_column(name, justify="right", no_wrap=True)
    for play in plays:
        made.add_row(
            play.task.name if play.policy is PolicyName.ORACLE else "",
            play.policy,
            _reward(play),
            str(len(play.step_ms)) if play.step_ms else "",
            _ms(play.reset_ms),
            _ms(play.setup_ms),
            _ms(quantile(play.step_ms, 0.5)),
            _ms(quantile(play.step_ms, 0.95)),
            "" if play.frames_not_final is None else str(play.frames_not_final),
        )
    return made


def _reward(play: Play) -> Text:
    if play.failure:
        return Text("failure", style="bold red")
    if play.reward is None:
        return Text(play.state, style="dim")
    wanted = 1.0 if play.policy is PolicyName.ORACLE else 0.0
    return Text(f"{play.reward:.1f}", style="green" if play.reward == wanted else "bold yellow")


def _ms(value: float | None) -> str:
    return "" if value is None else f"{value:.0f}"


def contact_sheet(plays: list[Play], path: Path) -> None:
    """Save the first and last screen of every episode: a row for each task, oracle left, chance right."""
    names = list(dict.fromkeys(p.task.name for p in plays))
    width = 4 * THUMB[0] + 5 * GAP
    sheet = Image.new("RGB", (width, len(names) * (THUMB[1] + HEAD + GAP) + GAP), _DARK)
    draw = ImageDraw.Draw(sheet)
    font = ImageFont.load_default(17)
    for play in plays:
        column = 0 if play.policy is PolicyName.ORACLE else 2
        x = GAP + column * (THUMB[0] + GAP)
        y = GAP + names.index(play.task.name) * (THUMB[1] + HEAD + GAP)
        draw.text((x, y + 6), f"{play.task.name}, {play.policy}: first and last screen", _LIGHT, font)
        reward = "failure" if play.reward is None else f"reward {play.reward:.1f}"
        colour = _GREEN if play.reward == 1.0 else _RED if play.reward is None else _LIGHT
        draw.text((x + 2 * THUMB[0] + GAP, y + 6), reward, colour, font, anchor="ra")
        for i, frame in enumerate((play.first, play.last)):
            if frame is not None:
                with Image.open(frame, formats=("PNG",)) as image:
                    thumb = image.convert("RGB").resize(THUMB, Image.Resampling.LANCZOS, reducing_gap=2.0)
                sheet.paste(thumb, (x + i * (THUMB[0] + GAP), y + HEAD))
    sheet.save(path)
