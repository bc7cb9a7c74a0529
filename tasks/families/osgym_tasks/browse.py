"""Page with one instance of each family: its instruction, first and last screen, and the oracle's steps."""

from __future__ import annotations

import io
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from PIL import Image

from osgym_sdk import AsyncClient, Result
from osgym_tasks.family import Instance, dice_of
from osgym_tasks.pages import page, text, tiles
from osgym_tasks.registry import FAMILIES
from osgym_tasks.verify import Trial, play

MAX_STRIP = 14
_SCREEN_PX, _STRIP_PX = 1280, 416
_QUALITY = {_SCREEN_PX: 80, _STRIP_PX: 65}


@dataclass(frozen=True, slots=True)
class Shot:
    """A screen of the page.

    Attributes:
        file: Path within the page's folder.
    """

    file: str
    caption: str
    size_px: tuple[int, int]


@dataclass(frozen=True, slots=True)
class Shown:
    """An instance on the page; it has no screens where no desktop was available."""

    instance: Instance
    reward: float | None
    failure: str
    steps: int
    duration_s: float
    screens: tuple[Shot, ...]
    strip: tuple[Shot, ...]


async def shown(
    client: AsyncClient, instances: Sequence[Instance], folder: Path, concurrency: int
) -> list[Shown]:
    """Play the oracle of each instance and save its screens below the folder; in the order of `instances`.

    Raises:
        OSError: A picture cannot be written.
        OSGymError: The client refuses an argument.
    """
    (folder / "screens").mkdir(parents=True, exist_ok=True)
    trials = [Trial(one, "oracle", one.ways.oracle, 1.0, patient=False) for one in instances]
    made: dict[str, Shown] = {}
    batch = play(client, trials, concurrency=concurrency, settle="certain", keep_frames=True)
    async for trial, result in batch:
        made[trial.instance.name] = kept(trial.instance, result, folder)
    return [made[one.name] for one in instances]


def kept(instance: Instance, result: Result, folder: Path) -> Shown:
    """Write the screens of an episode.

    Raises:
        OSError: A picture cannot be written.
    """
    captions = ["at the beginning", *(_said(step.executed) for step in result.steps)]
    frames = [result.trajectory.first_data, *(step.data for step in result.steps)]
    seen = [(caption, data) for caption, data in zip(captions, frames, strict=True) if data]
    while len(seen) > 1 and seen[-1][1] == seen[-2][1] and seen[-1][0] == "done":
        seen.pop()

    def shot(number: int, width_px: int, kind: str) -> Shot:
        file = f"screens/{instance.name}-{kind}{number}.webp"
        small = _reduced(seen[number][1], width_px)
        small.save(folder / file, "WEBP", quality=_QUALITY[width_px])
        return Shot(file, seen[number][0], small.size)

    last = len(seen) - 1
    ends = [shot(number, _SCREEN_PX, "screen") for number in sorted({0, last})] if seen else []
    chosen = sorted({round(at * last / max(1, MAX_STRIP - 1)) for at in range(MAX_STRIP)}) if last > 0 else []
    strip = [shot(number, _STRIP_PX, "strip") for number in chosen]
    failure = "" if result.failure is None else f"{result.failure.code}: {result.failure.message[:300]}"
    return Shown(
        instance, result.reward, failure, len(result.steps), result.duration_s, tuple(ends), tuple(strip)
    )


def browse_page(entries: Sequence[Shown], image: str) -> str:
    """Return the page; it belongs beside its pictures."""
    names = "".join(
        f'<a href="#{text(one.instance.name)}">{text(one.instance.family)}</a>' for one in entries
    )
    parts = [
        "<h1>Generated tasks</h1>",
        '<p class="faint">One instance of each family, solved by its oracle: what is asked, first and last '
        f"screen, and the way between. Image <code>{text(image[:12])}</code>.</p>",
        tiles(
            {
                "families": len(entries),
                "applications": len({app for one in entries for app in FAMILIES[one.instance.family].apps}),
                "solved": sum(one.reward == 1.0 for one in entries),
            }
        ),
        f"<nav>{names}</nav>",
        *map(_entry, entries),
    ]
    return page("Generated tasks", "\n".join(parts))


def _entry(one: Shown) -> str:
    instance = one.instance
    verdict = f"reward {one.reward:g}" if one.reward is not None else one.failure or "no reward"
    chips = [
        ("good" if one.reward == 1.0 else "bad", verdict),
        *(("", said) for said in (f"level {instance.level}", f"seed {instance.seed}")),
        *(("", app) for app in FAMILIES[instance.family].apps),
        *(("", name) for name in instance.vary),
        ("", f"{one.steps} steps"),
        ("", f"{one.duration_s:.1f} s"),
    ]
    marks = " ".join(f'<span class="chip {kind}">{text(said)}</span>' for kind, said in chips)
    ends = "".join(
        _figure(shot, "first screen" if at == 0 else "last screen") for at, shot in enumerate(one.screens)
    )
    strip = "".join(_figure(shot, shot.caption) for shot in one.strip)
    return (
        f'<section class="task" id="{text(instance.name)}"><h2>{text(instance.family)}</h2><p>{marks}</p>'
        f'<p class="say">{text(instance.task["instruction"])}</p>{_wordings(instance)}'
        f'<div class="screens">{ends}</div><div class="strip">{strip}</div></section>'
    )


def _wordings(instance: Instance) -> str:
    """Return all wordings for these parameters, with the instance's own emphasized."""
    family = FAMILIES[instance.family]
    dice = dice_of("wordings", 1, instance.seed, instance.level)
    number = len(family.draft(dice, instance.level).wordings)
    asked = family.make(instance.seed, instance.level).task["instruction"]
    listed = [
        family.make(instance.seed, instance.level, wording=one).task["instruction"] for one in range(number)
    ]
    lines = "".join(f"<li>{f'<b>{text(one)}</b>' if one == asked else text(one)}</li>" for one in listed)
    return f"<details><summary>{number} wordings</summary><ol>{lines}</ol></details>"


def _figure(shot: Shot, caption: str) -> str:
    width, height = shot.size_px
    size = f'width="{width}" height="{height}"'
    image = f'<img loading="lazy" src="{text(shot.file)}" {size} alt="{text(caption)}">'
    link = f'<a href="{text(shot.file)}">{image}</a>'
    return f'<figure>{link}<figcaption title="{text(caption)}">{text(caption)}</figcaption></figure>'


def _reduced(data: bytes, width_px: int) -> Image.Image:
    image = Image.open(io.BytesIO(data)).convert("RGB")
    height_px = round(image.height * width_px / image.width)
    return image.resize((width_px, height_px), Image.Resampling.LANCZOS)


def _said(actions: Sequence[Any]) -> str:
    """Return a short description of a step's actions."""
    words: list[str] = []
    for action in actions:
        match action["op"]:
            case "type":
                words.append(f"“{str(action.get('text', '')).strip()[:60]}”")
            case "key":
                words.append("+".join(map(str, action.get("keys", ()))))
            case other:
                words.append(str(other))
    once = [word if count == 1 else f"{word} ×{count}" for word, count in _runs(words)]
    return " ".join(once)[:160] or "nothing"


def _runs(words: Sequence[str]) -> list[tuple[str, int]]:
    found: list[tuple[str, int]] = []
    for word in words:
        if found and found[-1][0] == word:
            found[-1] = word, found[-1][1] + 1
        else:
            found.append((word, 1))
    return found
