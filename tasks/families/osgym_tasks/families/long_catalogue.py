"""long.catalogue: change product pictures as a workbook lists, complete it, and put the goods on sale.

A terminal may read the shop by curl; a change that does not come from a page in a browser is refused.
"""

from __future__ import annotations

import random

from PIL import Image

from osgym_tasks import calc, gimp
from osgym_tasks.desk import sentence
from osgym_tasks.family import Draft, Family, Steps
from osgym_tasks.goods import goods
from osgym_tasks.long import Plan
from osgym_tasks.long_files import Picture
from osgym_tasks.long_parts import Row, cells_part, given_kept, goods_part, name_of, other_cell
from osgym_tasks.pieces import HOME, launch, place, upload
from osgym_tasks.web import Served, browser, serving

_PICTURES = {1: 2, 2: 3, 3: 4, 4: 6, 5: 8}
_BOOK = f"{HOME}/Documents/catalogue.xlsx"
_SHOPS = ("Corner Shop", "Old Mill Store", "Harbour Goods", "Market Hall")
_SEASONS = ("spring", "summer", "autumn", "winter")
_TITLE = "GIMP"
_TURNS = {
    "clockwise": ("c", Image.Transpose.ROTATE_270),
    "counter-clockwise": ("w", Image.Transpose.ROTATE_90),
    "upside down": ("1", Image.Transpose.ROTATE_180),
    "mirror": ("h", Image.Transpose.FLIP_LEFT_RIGHT),
}
_WORDINGS = (
    "Our new catalogue needs pictures. {book} lists them. {edit} {export} {fill} Save the workbook as xlsx. "
    "{sale} Change nothing else.",
    "Could you get the pictures of the catalogue ready? Each row of {book} is one of the goods. {edit} "
    "{export} {fill} Save that in the same format. {sale} All else stays as it is.",
    "I need the pictures that {book} lists by today. {edit} {export} {fill} Please save the xlsx file. "
    "{sale} Leave everything else alone.",
    "The printer waits for our catalogue, and {book} has what is missing. {edit} {export} {fill} Keep the "
    "format xlsx when you save it. {sale} Nothing else is to change.",
    "Please work through {book}, a row for each picture. {edit} {export} {fill} The workbook is saved as "
    "xlsx. {sale} Other data must not change.",
    "We take new goods into the catalogue; the open workbook {book} names their pictures. {edit} {export} "
    "{fill} Then save it, still as xlsx. {sale} Everything else stays untouched.",
)


def _picture(dice: random.Random, said: str, source: str, target: str) -> tuple[Picture, bytes, Steps]:
    """Draw a picture; return also its original file and steps of another change."""
    unit = dice.randrange(9, 13)
    before = gimp.scene(dice, unit * 40, unit * 30)
    if said in _TURNS:
        letter, turn = _TURNS[said]
        other = dice.choice([one for one, _ in _TURNS.values() if one != letter])
        made = Picture(source, target, gimp.menu("i", "t", letter), before.transpose(turn))
        return made, gimp.png(before), gimp.menu("i", "t", other)
    width = int(said.removeprefix("width "))
    after = before.resize((width, width * 3 // 4), Image.Resampling.BICUBIC)
    made = Picture(source, target, gimp.scale(width, None), after, edge_px=gimp.SCALED_EDGE_PX)
    return made, gimp.png(before), gimp.scale(width + 12, None)


def _changes(dice: random.Random, count: int) -> list[str]:
    """Draw texts of the column Change; every other one is a width before they are shuffled."""
    widths = dice.sample([width for width in range(240, 700, 20) if width not in range(360, 490)], count)
    made = [f"width {width}" if at % 2 else dice.choice(sorted(_TURNS)) for at, width in enumerate(widths)]
    dice.shuffle(made)
    return made


def _draft(dice: random.Random, level: int) -> Draft:
    count = _PICTURES[level]
    rows = [{**row, "sold": "no"} for row in goods(dice, count + 2 + level)]
    places = sorted(dice.sample(range(len(rows)), count))
    folder = f"{gimp.FOLDER}/{dice.choice(_SEASONS)}-{dice.randrange(2027, 2090)}"
    names = [f"{gimp.FOLDER}/photo-{number}.png" for number in dice.sample(range(100, 1000), count)]
    targets = [f"{folder}/{rows[at]['id']}.png" for at in places]
    said = _changes(dice, count)
    drawn = [_picture(dice, *one) for one in zip(said, names, targets, strict=True)]
    shop = Served(dice, "shop", dice.choice(_SHOPS), {"products": rows, "coupons": [], "orders": [],
                                                      "order_lines": []})  # fmt: skip
    table: calc.Grid = [["Number", "Item", "Picture", "Change", "File", "Price"]]
    table += [
        [rows[at]["id"], rows[at]["name"], name_of(name), change]
        for at, name, change in zip(places, names, said, strict=True)
    ]
    cells: Row = {}
    for line, (at, target) in enumerate(zip(places, targets, strict=True), 2):
        cells |= {f"E{line}": name_of(target), f"F{line}": rows[at]["cents"] / 100}
    pictures = [picture.part(_TITLE, is_open=number == 0) for number, (picture, _, _) in enumerate(drawn)]
    sale = goods_part(shop, shop.title, rows, {at: {"sold": "yes"} for at in places})
    wrong = {
        "another change of one picture": drawn[-1][0].part(_TITLE, edit=drawn[-1][2]),
        "one of the goods not on sale": goods_part(
            shop, shop.title, rows, {at: {"sold": "yes"} for at in places[:-1]}
        ),
    }
    plan = Plan(
        [_TITLE, name_of(_BOOK), shop.title],
        [*pictures, cells_part(_BOOK, "Catalogue", cells), sale],
        wrong,
        {"another picture named in the workbook": other_cell(_BOOK, "C2", "photo.png")},
        given_kept(_BOOK, "Catalogue", table, f"E2:F{len(table)}"),
    )
    return plan.draft(
        _WORDINGS,
        {
            "book": _BOOK,
            "edit": f"Change each picture of {gimp.FOLDER} in GIMP as its row says: clockwise or "
            'counter-clockwise by 90 degrees, upside down by 180 degrees, "mirror" so that left and right '
            "change places, or to the given width in pixels, in proportion.",
            "export": f"Export each one into {folder} as a PNG file named by the number of the goods "
            f"({sentence(map(name_of, targets))}); the originals stay.",
            "fill": "Write the name of the new file into the column File and its price in the shop, which "
            "the browser shows, into Price.",
            "sale": f'In the shop ({shop.url}, page "For the keeper"), set "For sale" to yes for each of '
            "these goods.",
        },
        [
            upload({name: data for name, (_, data, _) in zip(names, drawn, strict=True)}),
            upload({f"{folder}/about.txt": "Pictures for the catalogue\n"}),
            *serving(shop),
            *browser(shop.url, shop.title),
            *calc.opened(_BOOK, calc.workbook({"Catalogue": table})),
            *launch(f"[{name_of(names[0]).removesuffix('.png')}]", "gimp", names[0]),
            *place("gimp.Gimp", 200, 100, 1400, 850),
        ],
        (_BOOK, *targets),
    )


FAMILY = Family("long.catalogue", 1, _draft, ("gimp", "libreoffice_calc", "chromium"), "full")
