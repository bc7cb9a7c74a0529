"""photo.odd_one: find the one picture among many that matches a description, and copy or delete it."""

from __future__ import annotations

import random
from collections.abc import Callable

from PIL import Image

from osgym_tasks.family import Draft, Family, Steps, Ways
from osgym_tasks.gimp import COLOURS, FOLDER, KINDS, Box, ground, picture_check, png, put
from osgym_tasks.pieces import DONE, HOME, every, key, launch, tree_check, upload

_COUNT = {1: 5, 2: 8, 3: 12, 4: 20, 5: 30}
_SIZE = (320, 240)
_SPOTS: tuple[Box, ...] = tuple(
    (left, top, left + 64, top + 64) for top in (24, 136) for left in (20, 128, 236)
)
_FOLDERS = ("cards", "drawings", "signs", "prints", "badges", "patterns")
_COPIES = ("found", "chosen", "odd-one", "sample", "pick")
_XFCONF = f"{HOME}/.config/xfce4/xfconf/xfce-perchannel-xml/ristretto.xml"
_QUIET = (
    '<?xml version="1.0" encoding="UTF-8"?>\n<channel name="ristretto" version="1.0">\n'
    '  <property name="errors" type="empty">\n'
    '    <property name="missing-thumbnailer" type="bool" value="false"/>\n  </property>\n</channel>\n'
)
_WORDINGS = (
    "The image viewer shows the first picture of {folder}. Exactly one picture there has {what}. {order} "
    "All others stay as they are.",
    "Look through the pictures of {folder}, whose first is open: only one has {what}. {order} Change no "
    "other.",
    "Which of the pictures in {folder} has {what}? There is just one. {order} Leave the rest alone.",
    "A pupil drew all these, and I look for one. Go through the pictures in the open folder: which shows "
    "{what}? {order} All others stay.",
    "I need one picture out of those that the viewer shows for a sign, the one with {what}. {order} Please "
    "leave the others alone.",
    "Somewhere among the open pictures is {what}, and only one of them has that. {order} Nothing else may "
    "be changed or deleted.",
)
Shape = tuple[str, str]
"""Colour and kind."""
Shapes = dict[int, Shape]
"""Shapes by the number of their spot."""
Drawn = Callable[[random.Random], Shapes]


def _draft(dice: random.Random, level: int) -> Draft:
    count = _COUNT[level]
    what, right, wrong = _described(dice, level)
    at = dice.randrange(2, count - 1)
    lookalike = dice.choice([n for n in range(1, count) if n not in (at, at + 1)])
    shapes = [right(dice) if n == at else wrong(dice) for n in range(count)]
    pictures = [_picture(dice, one) for one in shapes]
    folder = f"{FOLDER}/{dice.choice(_FOLDERS)}"
    numbers = sorted(dice.sample(range(100, 1000), count))
    names = [f"picture-{number}.png" for number in numbers]
    files = {name: png(picture) for name, picture in zip(names, pictures, strict=True)}
    config = [
        upload({_XFCONF: _QUIET, **{f"{folder}/{name}": data for name, data in files.items()}}),
        *launch(names[0], "ristretto", f"{folder}/{names[0]}"),
    ]
    if dice.random() < 0.5:
        copy = f"{HOME}/Documents/{dice.choice(_COPIES)}-{dice.randrange(10, 100)}.png"
        order = f"Save a copy of it as {copy}."
        act, changes = _copied(copy), copy
        checks = [picture_check(copy, pictures[at], format="PNG"), tree_check(folder, files)]
        none: Steps = [[key("ctrl", "s")], [key("escape")]]
    else:
        order = "Delete it from the folder."
        act, changes = [[key("delete")], [key("tab"), key("enter")]], f"{folder}/{names[at]}"
        checks = [tree_check(folder, {name: data for name, data in files.items() if name != names[at]})]
        none = [[key("delete")], [key("escape")]]
    near = {
        "the picture after it": [*_gone_to(count, at + 1), *act, DONE],
        "a lookalike": [*_gone_to(count, lookalike), *act, DONE],
        "given up at the dialog": [*_gone_to(count, at), *none, DONE],
    }
    return Draft(
        _WORDINGS,
        {"folder": folder, "what": what, "order": order},
        config,
        every(*checks),
        Ways([*_gone_to(count, at), *act, DONE], near),
        changes=(changes,),
        shown=("folder",),
    )


def _gone_to(count: int, at: int) -> Steps:
    """Return steps that look at all pictures, then go back to one."""
    forth = [[key("pagedown")] * min(5, count - 1 - n) for n in range(0, count - 1, 5)]
    back = [key("pageup")] * (count - 1 - at)
    return [*forth, back] if back else forth


def _copied(path: str) -> Steps:
    return [[key("ctrl", "s")], [key("ctrl", "a"), {"op": "type", "text": path}], [key("enter")]]


def _described(dice: random.Random, level: int) -> tuple[str, Drawn, Drawn]:
    """Draw a description, a function that draws a matching picture, and one that draws a similar picture."""
    colour, other = dice.sample(sorted(COLOURS), 2)
    kind, another = dice.sample(KINDS, 2)
    rest = [one for one in sorted(COLOURS) if one != colour]
    kinds = [one for one in KINDS if one != kind]

    def with_one(dice: random.Random) -> Shapes:
        return _spread(dice, [(colour, kind), *_fill(dice, level)])

    def without(dice: random.Random) -> Shapes:
        like = dice.choice([(colour, dice.choice(kinds)), (dice.choice(rest), kind)])
        return _spread(dice, [like, *_fill(dice, level)])

    def _fill(dice: random.Random, level: int) -> list[Shape]:
        return [(dice.choice(rest), dice.choice(kinds)) for _ in range(level - 1)]

    def with_three(dice: random.Random) -> Shapes:
        return _spread(dice, [(colour, kind)] * 3 + _fill(dice, 3))

    def with_other(dice: random.Random) -> Shapes:
        return _spread(dice, [(colour, kind)] * dice.choice((2, 4)) + _fill(dice, 3))

    def in_row(dice: random.Random, pair: list[Shape]) -> Shapes:
        row = dice.choice((0, 3))
        third = (dice.choice([one for one in rest if one != other]), dice.choice(KINDS))
        return {row: pair[0], row + 2: pair[1], 3 - row + dice.randrange(3): third}

    def beside(dice: random.Random) -> Shapes:
        return in_row(dice, [(colour, kind), (other, another)])

    def turned(dice: random.Random) -> Shapes:
        return in_row(dice, [(other, another), (colour, kind)])

    if level <= 3:
        return f"a {colour} {kind}", with_one, without
    if level == 4:
        return f"exactly three {colour} {kind}s", with_three, with_other
    return f"a {colour} {kind} to the left of a {other} {another}", beside, turned


def _spread(dice: random.Random, shapes: list[Shape]) -> Shapes:
    return dict(zip(dice.sample(range(len(_SPOTS)), len(shapes)), shapes, strict=True))


def _picture(dice: random.Random, shapes: Shapes) -> Image.Image:
    image = ground(dice, _SIZE)
    for spot, (colour, kind) in shapes.items():
        left, top, right, bottom = _SPOTS[spot]
        x, y = dice.randrange(-12, 13), dice.randrange(-16, 17)
        put(image, kind, colour, (left + x, top + y, right + x, bottom + y))
    return image


FAMILY = Family("photo.odd_one", 5, _draft, ("ristretto",))
