"""Parts that GIMP's families share: pictures of plain shapes, menu keys, checks of exported files."""

from __future__ import annotations

import base64
import hashlib
import io
import random
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from PIL import Image, ImageDraw

from osgym_tasks.family import Draft, Steps, Ways
from osgym_tasks.pieces import DONE, HOME, every, key, launch, output_check, place, upload, vm_file

FOLDER = f"{HOME}/Pictures"
PICTURES = {1: 1, 2: 1, 3: 2, 4: 3, 5: 4}
"""Number of pictures, by level."""
COLOURS = {
    "red": (200, 30, 30), "green": (40, 150, 60), "blue": (40, 70, 200), "yellow": (235, 205, 40),
    "purple": (130, 50, 160), "orange": (240, 130, 20), "white": (250, 250, 250), "black": (15, 15, 15),
}  # fmt: skip
KINDS = ("circle", "square", "triangle")
SCALED_EDGE_PX = 3
"""Distance from edges within which a scaled picture's pixels depend on the method of scaling."""
_GROUNDS = ((120, 170, 205), (205, 190, 160), (170, 200, 170), (190, 170, 195), (160, 165, 175))
_NAMES = ("lake", "harbour", "street", "meadow", "market", "bridge", "station", "garden", "tower", "island")
_TARGETS = ("final", "ready", "changed", "edited", "copy", "version", "print", "web")

Box = tuple[int, int, int, int]


def ground(dice: random.Random, size: tuple[int, int]) -> Image.Image:
    return Image.new("RGB", size, dice.choice(_GROUNDS))


def put(image: Image.Image, kind: str, colour: str, box: Box) -> None:
    """Draw a shape of `KINDS` into a box."""
    draw, (left, top, right, bottom) = ImageDraw.Draw(image), box
    if kind == "circle":
        draw.ellipse(box, fill=COLOURS[colour])
    elif kind == "square":
        draw.rectangle(box, fill=COLOURS[colour])
    else:
        draw.polygon([(left, bottom), ((left + right) // 2, top), (right, bottom)], fill=COLOURS[colour])


def scene(dice: random.Random, width: int, height: int) -> Image.Image:
    """Return a picture that looks different in each orientation: a shape in each of four corners."""
    image = ground(dice, (width, height))
    across, down = width // 2, height // 2
    colours = dice.sample(sorted(COLOURS), 4)
    for at, colour in enumerate(colours):
        side = dice.randrange(min(across, down) // 2, min(across, down) * 4 // 5)
        left = at % 2 * across + dice.randrange(4, across - side - 4)
        top = at // 2 * down + dice.randrange(4, down - side - 4)
        put(image, dice.choice(KINDS), colour, (left, top, left + side, top + side))
    return image


def png(image: Image.Image) -> bytes:
    out = io.BytesIO()
    image.save(out, "PNG", compress_level=1)
    return out.getvalue()


def unchanged(files: Mapping[str, bytes]) -> tuple[str, dict[str, Any], dict[str, Any]]:
    """Return the check, for `every`, that these files are unchanged."""
    sums = "".join(f"{hashlib.sha256(data).hexdigest()}  {path}\n" for path, data in files.items())
    return output_check(("sha256sum", *files), sums)


def picture_check(
    path: str, image: Image.Image, *, tolerance: int = 2, edge_px: int = 0, **more: Any
) -> tuple[str, dict[str, Any], dict[str, Any]]:
    """Return the check, for `every`, that the file is this picture (`check_image_properties`)."""
    shown = base64.b64encode(png(image.convert("RGB"))).decode()
    picture = {"png_base64": shown, "tolerance": tolerance, **({"edge_px": edge_px} if edge_px else {})}
    return "check_image_properties", vm_file(path), {"size": list(image.size), "picture": picture, **more}


@dataclass(frozen=True, slots=True)
class Edit:
    """Change of one picture.

    Attributes:
        says: Instruction, with `{name}` for the picture.
        keys: Steps that make the change in GIMP.
        wrong: Steps that make a similar change.
        before: Original picture.
        after: Changed picture.
        mode: Mode of the exported file in Pillow's terms; None for any.
        edge_px: Distance from edges within which GIMP's pixels are not Pillow's.
    """

    says: str
    keys: Steps
    wrong: Steps
    before: Image.Image
    after: Image.Image
    mode: str | None = None
    tolerance: int = 2
    edge_px: int = 0
    suffix: str = "png"
    format: str = "PNG"


def edits_draft(dice: random.Random, wordings: Sequence[str], edits: Sequence[Edit]) -> Draft:
    """Make the draft of changes to pictures; the first is open, each is exported under a new name."""
    names = dice.sample(_NAMES, len(edits))
    sources = [f"{FOLDER}/{name}.png" for name in names]
    ends = dice.sample(_TARGETS, len(edits))
    targets = [
        f"{FOLDER}/{name}-{end}.{one.suffix}" for name, end, one in zip(names, ends, edits, strict=True)
    ]
    files = {path: png(one.before) for path, one in zip(sources, edits, strict=True)}
    said = [
        f"{one.says.format(name=path if at else path.rpartition('/')[2])} and export it as {target}"
        for at, (one, path, target) in enumerate(zip(edits, sources, targets, strict=True))
    ]
    checks = []
    for one, target in zip(edits, targets, strict=True):
        more = {} if one.mode is None else {"mode": one.mode}
        checks.append(
            picture_check(
                target, one.after, tolerance=one.tolerance, edge_px=one.edge_px, format=one.format, **more
            )
        )
    every_one = list(zip(edits, sources, targets, strict=True))

    def steps(which: Sequence[tuple[Edit, str, str]], wrong: Edit | None = None, save: bool = True) -> Steps:
        made: Steps = []
        for at, (one, source, target) in enumerate(which):
            made += [*(opened(source) if at else []), *(one.wrong if one is wrong else one.keys)]
            made += exported(target) if save or one is not edits[-1] else []
        return [*made, DONE]

    near = {
        "another edit": steps(every_one, wrong=edits[-1]),
        "not exported": steps(every_one, save=False),
    }
    if len(edits) > 1:
        near["one forgotten"] = steps(every_one[:-1])
    return Draft(
        wordings,
        {"first": sources[0], "edits": "; then ".join(said)},
        [
            upload(files),
            *launch(f"[{names[0]}]", "gimp", sources[0]),
            *place("gimp.Gimp", 200, 100, 1400, 850),
        ],
        every(*checks, unchanged(files)),
        Ways(steps(every_one), near),
        changes=targets,
        shown=("first",),
    )


def opened(path: str) -> Steps:
    """Return steps that open a file by its path, replacing the name that the dialog has."""
    return [[key("ctrl", "o")], [key("ctrl", "a"), {"op": "type", "text": path}], [key("enter")]]


def exported(path: str) -> Steps:
    """Return steps that export the picture as a new file, with the format's own settings."""
    return [
        [key("ctrl", "shift", "e")],
        [key("ctrl", "a"), {"op": "type", "text": path}],
        [key("enter")],
        [key("enter")],
    ]


def menu(letter: str, *letters: str) -> Steps:
    """Return steps that choose from a menu by the underlined letters."""
    return [[key("alt", letter)], *([key(one)] for one in letters)]


def search(action: str) -> Steps:
    """Return steps that choose the first action found by the search for actions."""
    return [[key("/")], [{"op": "type", "text": action}], [key("enter")]]


def scale(width: int, height: int | None) -> Steps:
    """Return steps that scale the picture by its dialog, where Tab goes to the height past the chain.

    Args:
        width: Width in pixels.
        height: Height in pixels; None keeps the proportions.
    """
    typed = [[key("ctrl", "a"), {"op": "type", "text": str(width)}, key("tab")]]
    if height is not None:
        typed += [
            [key("space"), key("tab")],
            [key("ctrl", "a"), {"op": "type", "text": str(height)}, key("tab")],
            [key("shift", "tab")] * 3,
        ]
    else:
        typed += [[key("shift", "tab")]]
    return [*search("scale image"), *typed, [key("shift", "tab")], [key("space")]]
