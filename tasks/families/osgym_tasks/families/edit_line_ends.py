"""edit.line_ends: save open texts with other line ends, with a byte order mark or without."""

from __future__ import annotations

import random
from typing import Any

from osgym_tasks.desk import home, mousepad, sentence
from osgym_tasks.family import Draft, Family, Steps, Ways
from osgym_tasks.pieces import DONE, every, form_counts, key, text_check, upload

_ENDS = {
    "Unix (LF)": "\n",
    "Mac (CR)": "\r",
    "DOS / Windows (CR LF)": "\r\n",
}
"""Line ends as the menu has them, in its order."""
_FILES = {1: 1, 2: 2, 3: 2, 4: 3, 5: 4}
_LINES = {1: 4, 2: 7, 3: 10, 4: 15, 5: 22}
_NAMES = ("address", "labels", "orders", "codes", "titles", "prices", "places")
_WORDS = ("apple", "brick", "cloud", "dough", "eagle", "flute", "glass", "honey", "ivory", "jelly")
_WORDINGS = (
    "The text editor has files of {folder} open: {changes}. Their names and the words in them stay the same.",
    "Some programs cannot read the files in {folder}, which are open in the editor. Please {changes}. The "
    "words in them must not change, nor the names of the files.",
    "For another system, {changes}, all in {folder} and open in the editor; the text itself and the names "
    "of the files stay as they are.",
    "Our old machine cannot read the files that I have open. Please {changes}. No word may change, and the "
    "names stay.",
    "The printing office has strange demands. For them, {changes}; I have the files open. The text in them "
    "must remain the same, and so must the names.",
    "A customer on another system complained about my texts. Could you {changes}? You see them in the "
    "editor. Don't change anything else in them, nor what they are called.",
)


def _draft(dice: random.Random, level: int) -> Draft:
    folder = home(f"Documents/{dice.choice(('export', 'import', 'exchange', 'printer'))}")
    beside = 1 if level >= 2 else 0
    names = dice.sample(_NAMES, _FILES[level] + beside)
    texts = {f"{folder}/{name}.txt": _text(dice, _LINES[level]) for name in names}
    tabs = list(texts)
    chosen = sorted(dice.sample(tabs, _FILES[level]), key=tabs.index)
    wanted = {path: dice.choice(tuple(_ENDS)[1:]) for path in chosen}
    marked = [path for path in wanted if level >= 3 and dice.random() < 0.5]
    if level >= 3 and not marked:
        marked = [next(iter(wanted))]
    said = sentence(
        f"save {path.rpartition('/')[2]} with the line ends {end}"
        + (" and a byte order mark (BOM)" if path in marked else "")
        for path, end in wanted.items()
    )
    turned = {path: tuple(_ENDS)[3 - tuple(_ENDS).index(end)] for path, end in wanted.items()}
    near = {
        "the other line ends": _ways(tabs, turned, marked, True),
        "not saved": _ways(tabs, wanted, marked, False),
    }
    if marked:
        near["without a mark"] = _ways(tabs, wanted, [], True)
    if len(wanted) > 1:
        near["one forgotten"] = _ways(tabs, dict(list(wanted.items())[1:]), marked, True)
    return Draft(
        _WORDINGS,
        {"changes": said, "folder": folder},
        [upload(texts), *mousepad(*tabs)],
        every(
            *(
                text_check(path, texts[path], line_end=_ENDS[end], byte_order_mark=path in marked)
                for path, end in wanted.items()
            )
        ),
        Ways(_ways(tabs, wanted, marked, True), near),
        changes=list(wanted),
        shown=("folder",),
        allows=form_counts("the task asks for them"),
    )


def _text(dice: random.Random, lines: int) -> str:
    return "".join(f"{' '.join(dice.sample(_WORDS, 3))} {number}\n" for number in range(1, lines + 1))


def _ways(tabs: list[str], wanted: dict[str, str], marked: list[str], save: bool) -> Steps:
    """Return steps in the tab of each: the menu Document has line ends in a submenu, and the mark."""
    steps: Steps = []
    for path, end in wanted.items():
        down: list[dict[str, Any]] = [key("down")] * tuple(_ENDS).index(end)
        steps.append([key("alt", str(tabs.index(path) + 1))])
        steps.append([key("alt", "d"), *[key("down")] * 4, key("right"), *down, key("enter")])
        if path in marked:
            steps.append([key("alt", "d"), *[key("down")] * 5, key("enter")])
        if save:
            steps.append([key("ctrl", "s")])
    return [*steps, DONE]


FAMILY = Family("edit.line_ends", 6, _draft, ("mousepad",))
