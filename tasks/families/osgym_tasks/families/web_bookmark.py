"""web.bookmark: bookmark pages under given names in given folders, among folders with bookmarks.

The check reads the file in which the browser keeps its bookmarks, whichever program wrote it.
"""

from __future__ import annotations

import json
import random
from dataclasses import dataclass
from html import escape
from typing import Any

from osgym_tasks.desk import sentence
from osgym_tasks.family import Draft, Family, Steps, Ways
from osgym_tasks.pieces import DONE, HOME, key, outputs, upload
from osgym_tasks.targets import click
from osgym_tasks.web import APPS, browser, typed

_PAGES = {1: 3, 2: 6, 3: 10, 4: 15, 5: 24}
_MARKS = {1: 1, 2: 2, 3: 3, 4: 4, 5: 6}
_FOLDERS = {1: 2, 2: 3, 3: 4, 4: 5, 5: 5}
_TITLES = (
    *(
        "Lentil soup",
        "Ferry timetable",
        "Bicycle repair",
        "Bread without yeast",
        "Night trains",
        "Roof tiles",
    ),
    *("Tomato plants", "Choir songs", "Chess openings", "Wool and dyes", "Beehives", "Tide tables", "Knots"),
    *("Apple varieties", "Museum passes", "Paper boats", "Stone walls", "Winter tyres", "Garden ponds"),
    *(
        "Kite building",
        "Map symbols",
        "First aid",
        "Old coins",
        "Bird calls",
        "Harbour tours",
        "Cheese making",
    ),
)
_NAMES = (
    *(
        "Try on Sunday",
        "For the club",
        "Ask Nadia",
        "Print this",
        "With pictures",
        "Long version",
        "Start here",
    ),
    *(
        "Holiday plan",
        "Useful table",
        "Quick guide",
        "Show Peter",
        "Keep for later",
        "Good advice",
        "For school",
    ),
)
_FOLDER_NAMES = ("Recipes", "Travel", "House", "Nature", "Family", "Days out", "Leisure", "Skills")
"""Names whose letters begin no other entry of the browser's list of folders."""
_SITE = f"{HOME}/Documents/pages"
_STORE = f"{HOME}/.config/google-chrome/Default/Bookmarks"
_LIST = "Reading list"
_WORDINGS = (
    "The browser shows links to pages. Bookmark {marks}. All bookmarks from before stay; add no others.",
    "Please add bookmarks in the open browser: {marks}. Leave the other bookmarks and folders as they are.",
    "From the list in the browser, I want bookmarks of some pages: {marks}. Nothing else among the "
    "bookmarks may change.",
    "I always search for the same pages. From the list in the browser, please bookmark {marks}. Leave the "
    "bookmarks and folders that are there as they are, and add no others.",
    "My father wants to find a few things again when I'm gone. Could you make bookmarks for him, of pages "
    "on the open list: {marks}? All other bookmarks stay.",
    "I'm collecting things to read. Of the pages that the browser lists, I'd like bookmarks: {marks}. Make "
    "no further bookmarks or folders.",
)
_TRANSLATIONS = {
    "de": (
        "Ich suche immer dieselben Seiten. Lege von den Seiten auf der offenen Liste Lesezeichen an: "
        "{marks}. Die vorhandenen Lesezeichen und Ordner bleiben, und es kommen keine anderen dazu.",
    ),
    "es": (
        "Siempre busco las mismas páginas. De las páginas de la lista abierta, guarda como marcadores: "
        "{marks}. Deja los marcadores y carpetas que ya hay y no añadas otros.",
    ),
    "zh": (
        "我总在找同样的网页。请把打开的列表中的这些网页加为书签：{marks}。已有的书签和文件夹保持不变，不要"
        "再添加别的。",
    ),
}
_MARK = {
    "en": 'the page "{}" under the name "{}" in the folder "{}"',
    "de": 'die Seite "{}" unter dem Namen "{}" im Ordner "{}"',
    "es": 'la página "{}" con el nombre "{}" en la carpeta "{}"',
    "zh": '网页 "{}"（书签名 "{}"，放在文件夹 "{}"）',
}
_LOOK = """
import json, sys, time
path, *names = sys.argv[1:]
end = time.monotonic() + 8
while True:
    with open(path, encoding="utf-8") as file:
        text = file.read()
    if all(json.dumps(name) in text for name in names) or time.monotonic() > end:
        break
    time.sleep(0.2)

def lines(node, inside):
    for child in node.get("children", ()):
        if child["type"] == "folder":
            yield f"{inside}{child['name']}/"
            yield from lines(child, f"{inside}{child['name']}/")
        else:
            yield f"{inside}{child['name']} {child['url']}"

roots = json.loads(text)["roots"]
print("\\n".join(sorted(line for name, root in roots.items() for line in lines(root, f"{name}/"))))
"""
"""Script that prints all bookmarks and folders. The browser writes its file 2.5 s after a change."""


@dataclass(frozen=True, slots=True)
class _Mark:
    """A bookmark: the page's title, its name and its folder of the bookmarks bar."""

    title: str
    name: str
    folder: str

    @property
    def line(self) -> str:
        return f"bookmark_bar/{self.folder}/{self.name} file://{_path(self.title)}"

    @property
    def keys(self) -> Steps:
        """Return steps from the list to the page by its link, and back."""
        return [
            [click("link", self.title)],
            [click("heading", self.title)],
            [key("ctrl", "d")],
            [key("tab"), key("space")],
            [key(self.folder[0].lower()), key("enter")],
            [key("shift", "tab"), key("ctrl", "a"), typed(self.name)],
            [key("enter")],
            [key("alt", "left")],
        ]


def _draft(dice: random.Random, level: int) -> Draft:
    titles = dice.sample(_TITLES, _PAGES[level])
    folders = dice.sample(_FOLDER_NAMES, _FOLDERS[level])
    names = dice.sample(_NAMES, len(_NAMES))
    chosen = dice.sample(titles, _MARKS[level])
    marks = [_Mark(title, names.pop(), dice.choice(folders)) for title in chosen]
    rest = [title for title in titles if title not in chosen]  # a bookmark of a page is edited, not added
    there = [_Mark(dice.choice(rest), names.pop(), folder) for folder in folders]
    last = marks[-1]
    other = _Mark(last.title, last.name, next(folder for folder in folders if folder != last.folder))
    begin = [step for mark in marks[:-1] for step in mark.keys]
    proposed: Steps = [*last.keys[:3], [key("enter")]]
    near = {
        "another folder": [*begin, *other.keys, DONE],
        "as the browser proposes it": [*begin, *proposed, DONE],
    }
    if begin:
        near["one forgotten"] = [*begin, DONE]
    lines = [mark.line for mark in (*there, *marks)] + [f"bookmark_bar/{folder}/" for folder in folders]
    said = {
        language: sentence((words.format(one.title, one.name, one.folder) for one in marks), language)
        for language, words in _MARK.items()
    }
    return Draft(
        _WORDINGS,
        {"marks": said["en"]},
        [
            upload({_path(title): _page(title) for title in titles}),
            upload({_path(_LIST): _list(titles), _STORE: _store(folders, there)}),
            *browser(f"file://{_path(_LIST)}", _LIST),
        ],
        outputs(
            {
                ("python3", "-c", _LOOK, _STORE, *(mark.name for mark in marks)): "\n".join(sorted(lines))
                + "\n"
            }
        ),
        Ways([*begin, *last.keys, DONE], near),
        translations=_TRANSLATIONS,
        translated={language: {"marks": said[language]} for language in _TRANSLATIONS},
        changes=(),
    )


def _path(title: str) -> str:
    return f"{_SITE}/{title.lower().replace(' ', '-')}.html"


def _html(title: str, body: str) -> str:
    head = f'<meta charset="utf-8"><title>{escape(title)}</title>'
    shown = f"<h1>{escape(title)}</h1>{body}"
    return f'<!doctype html><html lang="en"><head>{head}</head><body>{shown}</body></html>\n'


def _page(title: str) -> str:
    return _html(title, f"<p>All that we know about {escape(title.lower())}.</p>")


def _list(titles: list[str]) -> str:
    links = (f'<p><a href="{_path(title).rpartition("/")[2]}">{escape(title)}</a></p>' for title in titles)
    return _html(_LIST, f'<div style="columns:3">{"".join(links)}</div>')


def _store(folders: list[str], there: list[_Mark]) -> str:
    """Return the browser's file with a folder for each name on the bookmarks bar; all were used lately."""
    numbers = iter(range(4, 99))

    def node(kind: str, name: str, **more: Any) -> dict[str, Any]:
        day = f"133{next(numbers):02}000000000000"  # microseconds since 1601
        return {"date_added": day, "id": str(next(numbers)), "name": name, "type": kind, **more}

    bar = [
        node(
            "folder",
            folder,
            date_modified=f"1338{at}000000000000",
            children=[
                node("url", one.name, url=f"file://{_path(one.title)}")
                for one in there
                if one.folder == folder
            ],
        )
        for at, folder in enumerate(folders)
    ]
    roots: dict[str, dict[str, Any]] = {
        name: {
            "children": [],
            "date_added": "13300000000000000",
            "id": str(number),
            "name": said,
            "type": "folder",
        }
        for number, (name, said) in enumerate(
            (("bookmark_bar", "Bookmarks bar"), ("other", "Other bookmarks"), ("synced", "Mobile bookmarks")),
            1,
        )
    }
    roots["bookmark_bar"]["children"] = bar
    return json.dumps({"checksum": "", "roots": roots, "version": 1})


FAMILY = Family("web.bookmark", 3, _draft, APPS, "full")
