"""long.translation: correct a program's German texts by a glossary in a wiki, report on them, answer a mail.

A terminal may read the services by curl; a change that does not come from a page in a browser is refused.
"""

from __future__ import annotations

import random
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from osgym_tasks import writer
from osgym_tasks.desk import sentence, terminal
from osgym_tasks.family import Draft, Family, Steps
from osgym_tasks.long import Part, Plan
from osgym_tasks.long_parts import Mailbox, Wiki, document_opened, document_part, mailbox, name_of, wiki
from osgym_tasks.pieces import HOME, form_counts, line, tree_check, upload
from osgym_tasks.web import browser, serving
from osgym_tasks.webapps.framework import PORT

_COUNTS = {1: 4, 2: 6, 3: 9, 4: 13, 5: 18}
"""Numbers of terms."""
_FILES = {1: 3, 2: 4, 3: 5, 4: 7, 5: 9}
_TERMS = {
    "attachment": ("Anhang", "Anlage"), "button": ("Knopf", "Taste"), "cart": ("Warenkorb", "Wagen"),
    "chart": ("Diagramm", "Tafel"), "draft": ("Entwurf", "Skizze"), "email": ("Nachricht", "Post"),
    "file": ("Datei", "Akte"), "folder": ("Ordner", "Mappe"), "help": ("Hilfe", "Beistand"),
    "key": ("Passwort", "Losung"), "link": ("Verweis", "Band"), "list": ("Liste", "Reihe"),
    "menu": ("Auswahl", "Karte"), "printer": ("Drucker", "Presse"), "query": ("Abfrage", "Frage"),
    "search": ("Suche", "Fahndung"), "sheet": ("Tabelle", "Laken"), "tab": ("Reiter", "Zunge"),
    "user": ("Benutzer", "Nutzer"), "window": ("Fenster", "Scheibe"),
}  # fmt: skip
"""Right and wrong German words; no word holds another one."""
_PARTS = ("account", "dialogs", "export", "import", "login", "mail", "print", "search", "start", "tools")
_LINES = ("{} zeigen", "Neu: {}", "{} jetzt laden", "Wo ist {}?", "{} wird gesichert", "Diese {} entfernen")
_LONGER = "{}plan erneuern"
_FOLDER, _OLD = f"{HOME}/strings", f"{HOME}/strings-old"
_TERMINAL = "Terminal"
_FINAL, _OPEN = "Corrected in all texts.", "Not yet corrected."
_ANSWER = "The texts are corrected, {} lines in all."
_WORDINGS = (
    "The German texts of our program need work. {glossary} {correct} {report} {mark} Then {answer}. Change "
    "nothing else.",
    "Please bring our German texts in line with the glossary. {glossary} {correct} {report} {mark} At the "
    "end, {answer}. All else stays as it is.",
    "Could you correct the German words in our program? {glossary} {correct} {report} {mark} When it is "
    "done, {answer}. Leave other things alone.",
    "Our translator used the wrong words, so they have to be replaced. {glossary} {correct} {report} {mark} "
    "Finally {answer}. Nothing else is to change.",
    "Before we ship the German version, its words must be right. {glossary} {correct} {report} {mark} After "
    "that, {answer}. Please touch nothing else.",
    "I promised that the German texts follow the glossary by tonight. {glossary} {correct} {report} {mark} "
    "At last, {answer}. Other content remains.",
)


@dataclass(frozen=True, slots=True)
class _Texts:
    """Texts of a program, by the names of their files.

    Attributes:
        before: Lines with wrong words.
        after: Lines with the right ones.
    """

    before: dict[str, list[str]]
    after: dict[str, list[str]]

    def corrected(self, name: str) -> int:
        """Return the number of lines of a file that change."""
        return sum(old != new for old, new in zip(self.before[name], self.after[name], strict=True))


def _texts(dice: random.Random, level: int, terms: Sequence[str]) -> _Texts:
    """Draw texts; each file has wrong words, and longer words that begin with them and stay."""
    names = sorted(f"{part}.txt" for part in dice.sample(_PARTS, _FILES[level]))
    rows: list[tuple[str, str]] = []
    for term in [*terms, *dice.choices(terms, k=2 * len(names))]:
        right, wrong = _TERMS[term]
        text = dice.choice(_LINES)
        rows.append((text.format(wrong), text.format(right)))
    for term in terms:
        right, wrong = _TERMS[term]
        rows += [(_LONGER.format(wrong),) * 2, (dice.choice(_LINES).format(right),) * 2]
    dice.shuffle(rows)
    rows.sort(key=lambda row: row[0] == row[1])
    lines: dict[str, list[tuple[str, str]]] = {name: rows[at :: len(names)] for at, name in enumerate(names)}
    numbered: dict[str, list[tuple[str, str]]] = {}
    for name, some in lines.items():
        keys = [f"{name.removesuffix('.txt')}.{number}" for number in range(1, len(some) + 1)]
        mixed = dice.sample(some, len(some))
        numbered[name] = [(f"{key} = {a}", f"{key} = {b}") for key, (a, b) in zip(keys, mixed, strict=True)]
    return _Texts(
        {name: [old for old, _ in some] for name, some in numbered.items()},
        {name: [new for _, new in some] for name, some in numbered.items()},
    )


def _joined(files: dict[str, list[str]]) -> dict[str, str]:
    return {name: "".join(f"{row}\n" for row in rows) for name, rows in files.items()}


def _replacing(terms: Sequence[str], edge: str) -> Steps:
    """Return steps that replace wrong words in the terminal; `edge` is the expression around a word."""
    pairs = [_TERMS[term] for term in terms]
    return [line(f"sed -i 's/{edge}{wrong}{edge}/{right}/' strings/*.txt") for right, wrong in pairs]


def _pages(terms: Sequence[str]) -> dict[str, dict[str, list[str]]]:
    """Return the glossary, a page for each term."""
    pairs = {term: _TERMS[term] for term in terms}
    return {
        f"Term {term}": {
            "German": [right],
            "Wrong": [f"{wrong}, where it is a word of its own."],
            "State": [_OPEN],
        }
        for term, (right, wrong) in pairs.items()
    }


def _draft(dice: random.Random, level: int) -> Draft:
    terms = sorted(dice.sample(sorted(_TERMS), _COUNTS[level]))
    texts = _texts(dice, level, terms)
    names = [*texts.before]
    pages = _pages(terms)
    guide = wiki(dice, pages, PORT, "")
    window = guide.window
    post = mailbox(dice, ["How many lines of the German texts were wrong?"], 1 + level, PORT + 1, window)
    path = writer.path_of(dice)
    ends = {f"Lines corrected in {name}:": str(texts.corrected(name)) for name in names}
    said = writer.sentences(dice, 3)
    rows = [*said[:2], *ends, *said[2:]]
    answer = _ANSWER.format(sum(texts.corrected(name) for name in names))
    edits = {at: (0, _FINAL) for at, row in enumerate(guide.rows) if row["heading"] == "State"}
    look = [line(f"cat strings/{name}") for name in names]
    files = Part(
        "the texts",
        3,
        tree_check(_FOLDER, _joined(texts.after), are_texts=True),
        [*guide.read([*pages]), (_TERMINAL, look)],
        [(_TERMINAL, _replacing(terms, r"\b"))],
    )
    compare = [line(f"diff strings-old/{name} strings/{name}") for name in names]
    report = document_part(path, rows, ends)
    parts = [
        files,
        replace(report, legs=[(_TERMINAL, compare), *report.legs]),
        guide.part(edits),
        post.part(answer, weight=1),
    ]
    wrong = {
        "longer words changed too": replace(files, commits=[(_TERMINAL, _replacing(terms, ""))]),
        "one term not marked": replace(
            parts[2], commits=[(window, guide.steps(dict(list(edits.items())[:-1])))]
        ),
    }
    plan = Plan(
        [_TERMINAL, window, name_of(path)],
        parts,
        wrong,
        {"the old texts replaced too": [(_TERMINAL, [line("cp strings/*.txt strings-old/")])]},
        [writer.rest_kept(path)],
    )
    draft = plan.draft(
        _WORDINGS,
        _named(terms, path, guide, post),
        [
            *_uploaded(_joined(texts.before)),
            *serving(guide.served, post.served),
            *browser(guide.served.url, window, post.served.url),
            *document_opened(path, rows),
            *terminal(),
        ],
        (_FOLDER, path),
    )
    return replace(draft, allows=form_counts("all but the words stays as it is"))


def _uploaded(texts: Mapping[str, str]) -> list[dict[str, Any]]:
    """Return the steps that put the texts into the folder and into that of the old ones."""
    return [upload({f"{folder}/{name}": text for name, text in texts.items()}) for folder in (_FOLDER, _OLD)]


def _named(terms: Sequence[str], path: str, guide: Wiki, post: Mailbox) -> dict[str, str]:
    """Return the values that the instruction names."""
    return {
        "glossary": f"The glossary for {sentence(terms)} is the wiki at {guide.served.url}: on the page "
        '"Term …" of each, "German" is the right word and "Wrong" the one to replace.',
        "correct": f"In the files of {_FOLDER}, replace each wrong word by the right one (look with the "
        f"terminal); longer words that begin with it stay. {_OLD} has a copy to compare with; it stays too.",
        "report": f"Write the numbers of corrected lines into {path}, each after the colon and a space, and "
        "save it as docx.",
        "mark": f'On each of these pages of the wiki, replace "{_OPEN}" by "{_FINAL}".',
        "answer": f"answer {post.which} at {post.served.url} with exactly "
        f'"{_ANSWER.format("N")}", where N is their sum',
    }


FAMILY = Family("long.translation", 2, _draft, ("chromium", "libreoffice_writer", "xfce4-terminal"), "full")
