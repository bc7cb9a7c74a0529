"""long.release: bring out a version: changelog, tickets, wiki pages, and files in a terminal.

A terminal may read the services by curl; a change that does not come from a page in a browser is refused.
"""

from __future__ import annotations

import random
from dataclasses import dataclass, replace

from osgym_tasks.desk import terminal
from osgym_tasks.family import Draft, Family
from osgym_tasks.long import Part, Plan
from osgym_tasks.long_parts import Row, Tracker, Wiki, added_lines_part, name_of, note_opened, tracker, wiki
from osgym_tasks.pieces import HOME, line, text_check, tree_check, upload
from osgym_tasks.web import browser, serving
from osgym_tasks.webapps.framework import PORT

_CHANGES = {1: 5, 2: 7, 3: 9, 4: 12, 5: 17}
_PRODUCTS = {1: 2, 2: 4, 3: 6, 4: 9, 5: 12}
_NAMES = ("Anvil", "Beacon", "Cutter", "Dredger", "Engine", "Ferry", "Glider", "Hammer", "Ignition", "Jigsaw",
          "Kiln", "Lathe", "Mooring", "Nozzle")  # fmt: skip
_VERBS = ("Mend", "Speed up", "Translate", "Rewrite", "Explain", "Shorten")
_WHATS = ("the start page", "the search", "the export", "the log file", "the printing", "the settings",
          "the help", "the import", "the login", "the backups")  # fmt: skip
_FOLDER = f"{HOME}/release"
_VERSION = "VERSION"
_LOG = f"{HOME}/Documents/CHANGELOG.md"
_TERMINAL = "Terminal"
_WORDINGS = (
    "Please bring out version {version}. Each file of {changes} describes a change, with its ticket and "
    "product. {log} {tickets} {wiki} At the end, {files}. Leave everything else as it is.",
    "Version {version} is ready for release. What changed is in the files of {changes}: one change in each, "
    "with ticket and product. {log} {tickets} {wiki} Then {files}. Change nothing else.",
    "I want to release {version}. Read the files in {changes}; every one tells a change, its ticket and its "
    "product. {log} {tickets} {wiki} After that, {files}. All other things stay.",
    "Do the release of {version} for me. The changes are described in {changes}, a file for each, which "
    "names "
    "ticket and product. {log} {tickets} {wiki} When this is done, {files}. Nothing else may change.",
    "It is time for version {version}: the files below {changes} name the changes with tickets and products. "
    "{log} {tickets} {wiki} Finally, {files}. Do not touch other entries.",
    "Prepare the release {version} from the notes in {changes} (each with a change, a ticket and a product). "
    "{log} {tickets} {wiki} In the terminal, {files}. Other content remains unchanged.",
)


@dataclass(frozen=True, slots=True)
class _Change:
    text: str
    ticket: int
    product: str

    @property
    def note(self) -> str:
        """Text of its file."""
        return f"{self.text}\nTicket: #{self.ticket}\nProduct: {self.product}\n"


def _tickets(dice: random.Random, level: int) -> list[Row]:
    texts = dice.sample([f"{verb} {what}" for verb in _VERBS for what in _WHATS], _CHANGES[level] + 3 + level)
    return [
        {"title": text, "area": "Logins", "text": "It was asked for twice.", "status": "Waiting"}
        for text in texts
    ]


def _changes(dice: random.Random, rows: list[Row], products: list[str]) -> list[_Change]:
    """Return a change for each ticket; together they name all products."""
    of = [*products, *(dice.choice(products) for _ in rows)][: len(rows)]
    while len(of) < len(products):
        of.append(products[len(of)])
    dice.shuffle(of)
    return [_Change(row["title"], row["number"], product) for row, product in zip(rows, of, strict=False)]


def _draft(dice: random.Random, level: int) -> Draft:
    major, minor = dice.randrange(1, 40), dice.randrange(1, 90)
    old, version = f"{major}.{minor}", f"{major}.{minor + 1}"
    products = dice.sample(_NAMES, _PRODUCTS[level] + 1)
    state = f"Latest version: {old}."
    guide = wiki(
        dice,
        {
            name: {"About": (f"{name} runs everywhere.",), "Status": (state, "It is in use.")}
            for name in products
        },
        PORT,
        "",
    )
    window = guide.window
    desk = tracker(dice, _tickets(dice, level), PORT + 1, window)
    places = sorted(dice.sample(range(len(desk.rows)), _CHANGES[level]))
    changes = _changes(dice, [desk.rows[at] for at in places], products[:-1])
    files = {f"changes/{one.ticket}.txt": one.note for one in changes}
    log = ["# Changelog", "", f"## {version}", "", f"## {old}", "- The first one that we list"]
    lines = [f"- {one.text} (#{one.ticket})" for one in changes]
    work: dict[int, tuple[Row, str]] = {at: ({"status": "Closed"}, f"Released in {version}") for at in places}
    sections = {(row["page"], row["heading"]): at for at, row in enumerate(guide.rows)}
    named = dict.fromkeys(one.product for one in changes)
    edits = {sections[name, "Status"]: (0, f"Latest version: {version}.") for name in named}
    reads = [line(f"cat release/{name}") for name in files]
    text = added_lines_part(_LOG, log, 2, lines)
    parts = [
        replace(text, legs=[(_TERMINAL, reads), *text.legs]),
        desk.part(work, 3),
        guide.part(edits),
        _version_part(version),
        _files_part(files),
    ]
    other = next(at for at in range(len(desk.rows)) if at not in work)
    wrong = {
        "another ticket closed too": replace(
            parts[1], commits=[(window, desk.steps({**work, other: work[places[0]]}))]
        ),
        "the lines in another order": replace(
            parts[0],
            legs=[(_TERMINAL, reads), *added_lines_part(_LOG, log, 2, lines[::-1]).legs],
        ),
    }
    return Plan([_TERMINAL, name_of(_LOG), window], parts, wrong, {}).draft(
        _WORDINGS,
        _asked(version, state, desk, guide),
        [
            upload({f"{_FOLDER}/{name}": content for name, content in files.items()}),
            upload({f"{_FOLDER}/{_VERSION}": f"{old}\n", f"{_FOLDER}/done/0.txt": "The first change\n"}),
            *serving(guide.served, desk.served),
            *browser(guide.served.url, window, desk.served.url),
            *note_opened(_LOG, log),
            *terminal(),
        ],
        [_LOG, *(f"{_FOLDER}/{name}" for name in ("changes", _VERSION, *_moved(files)))],
    )


def _asked(version: str, state: str, desk: Tracker, guide: Wiki) -> dict[str, str]:
    return {
        "version": version,
        "changes": f"{_FOLDER}/changes",
        "log": f'In {_LOG}, which is open in the editor, add the line "- CHANGE (#TICKET)" for each '
        f"below "
        f'"## {version}", in the order of their tickets, and save it.',
        "tickets": f"In the tracker at {desk.served.url}, set the status of each of these tickets to "
        f"Closed, "
        f'with the note "Released in {version}".',
        "wiki": f'In the wiki at {guide.served.url}, replace "{state}" by "Latest version: {version}." '
        f"on "
        "the page of every product that the changes name.",
        "files": f"write {version} into {_FOLDER}/{_VERSION} and move the files of {_FOLDER}/changes into "
        f"{_FOLDER}/done",
    }


def _version_part(version: str) -> Part:
    commands = [line(f"echo {version} > release/{_VERSION}")]
    return Part("the version", 1, text_check(f"{_FOLDER}/{_VERSION}", version), [], [(_TERMINAL, commands)])


def _files_part(files: dict[str, str]) -> Part:
    check = tree_check(_FOLDER, {**_moved(files), "done/0.txt": "The first change\n"}, left_out=_VERSION)
    return Part("the files", 1, check, [], [(_TERMINAL, [line("mv release/changes/*.txt release/done/")])])


def _moved(files: dict[str, str]) -> dict[str, str]:
    return {name.replace("changes/", "done/"): text for name, text in files.items()}


FAMILY = Family("long.release", 2, _draft, ("chromium", "mousepad", "xfce4-terminal"), "full")
