"""x.terminal_into_document: put what commands report about files into lines of a document in Writer.

The check reads the document that Writer saved, and that the files are unchanged; a file manager may show some
of the facts as well.
"""

from __future__ import annotations

import random
from dataclasses import dataclass

from osgym_tasks.desk import terminal
from osgym_tasks.family import Draft, Family, Steps, Ways
from osgym_tasks.office import UNTIL_IDLE
from osgym_tasks.pieces import DONE, HOME, every, execute, key, line, switch, upload
from osgym_tasks.writer import (
    CALM,
    SAVE,
    at_paragraph,
    docx_bytes,
    opened,
    path_of,
    rest_kept,
    sentences,
    wanted_text,
)

_FILES = {1: 2, 2: 4, 3: 7, 4: 12, 5: 20}
_TEXTS = {1: 3, 2: 5, 3: 8, 4: 12, 5: 18}
"""Number of paragraphs besides the lines to fill, by level."""
_JOBS = {1: 1, 2: 1, 3: 2, 4: 3, 5: 5}
_FOLDER = f"{HOME}/records"
_STEMS = ("access", "backup", "cargo", "diary", "errors", "fleet", "guests", "harvest", "ideas", "journal")
_WORDS = ("amber", "birch", "cedar", "delta", "ember", "fjord", "grove", "heron")
_WORDINGS = (
    "Find out {jobs}; a terminal is open. Write each number into the document {path}, open in Writer, at "
    "the end of its line after the colon and a space, and save it as docx. All else stays as it is.",
    "The document {path} is open in Writer, behind the terminal. It lacks {jobs}. Put each number after "
    "the colon of its line, with a space between. Save in the same format; change nothing else, no file "
    "either.",
    "Please complete the open document {path} with {jobs}. The terminal can find the numbers; each follows "
    "the colon and one space of its line. Save the docx file, with its other text unchanged.",
    "I'm writing a report about our files, and the document that is open still lacks numbers: {jobs}. "
    "Please add each to its line, behind the colon and a space, and save it as the docx that it is. Change "
    "nothing else, no file either.",
    "The auditors want figures in the open document. Could you find out {jobs}? Each number goes to the "
    "end of its line, after the colon and one space. Save it in its format, with all other text and the "
    "files unchanged.",
    "My document has lines that end with a colon, and I want numbers there: {jobs}. Look that up, write "
    "each after a space, and save the open file as docx. Leave everything else.",
)


@dataclass(frozen=True, slots=True)
class _Fact:
    """A number that a command reports about a file.

    Attributes:
        what: `lines`, `bytes` or `matches`.
        word: Word whose lines are counted.
    """

    what: str
    name: str
    word: str = ""

    @property
    def label(self) -> str:
        """Beginning of its line in the document."""
        of = {"lines": "Lines in", "bytes": "Bytes of", "matches": f"Mentions of {self.word} in"}
        return f"{of[self.what]} {self.name}:"

    @property
    def words(self) -> str:
        path = f"{_FOLDER}/{self.name}"
        what = {
            "lines": f"the number of lines in {path}",
            "bytes": f"the size of {path} in bytes",
            "matches": f'the number of lines in {path} with the whole word "{self.word}" in small letters',
        }
        return f'{what[self.what]} for the line "{self.label}"'

    @property
    def command(self) -> str:
        of = {"lines": "wc -l", "bytes": "stat -c %s", "matches": f"grep -cw {self.word}"}
        return f"{of[self.what]} records/{self.name}"

    def value(self, files: dict[str, str]) -> int:
        text = files[self.name]
        rows = text.splitlines()
        matches = sum(self.word in row.split() for row in rows)
        return {"lines": len(rows), "bytes": len(text), "matches": matches}[self.what]


def _draft(dice: random.Random, level: int) -> Draft:
    files = _files(dice, level)
    facts = _facts(dice, level, files)
    texts = sentences(dice, _TEXTS[level])
    rows = [*texts, *(fact.label for fact in facts)]
    dice.shuffle(rows)
    path = path_of(dice)
    told = [(rows.index(fact.label), fact, fact.value(files)) for fact in facts]
    *most, (at, last, number) = told
    twin = max(files, key=lambda name: abs(_of(last, name).value(files) - number))
    words = sum(len(row.split()) for row in files[last.name].splitlines())
    other = next(place for place, row in enumerate(rows) if row in texts)
    near = {
        "another file's": [*_ways([*most, (at, _of(last, twin), _of(last, twin).value(files))]), *SAVE, DONE],
        "words counted": [*_ways([*most, (at, last, words)]), *SAVE, DONE],
        "another line": [*_ways([*most, (other, last, number)]), *SAVE, DONE],
    }
    if most:
        del near["another line"]
        near["one forgotten"] = [*_ways(most), *SAVE, DONE]
    else:
        near["not saved"] = [*_ways(told), DONE]
    after = list(rows)
    for where, _, value in told:
        after[where] += f" {value}"
    return Draft(
        _WORDINGS,
        {"path": path, "jobs": "; ".join(fact.words for fact in facts)},
        [
            upload({f"{_FOLDER}/{name}": text for name, text in files.items()}),
            *opened(path, docx_bytes(rows)),
            execute("bash", "-c", UNTIL_IDLE),
            *terminal(),
        ],
        every(wanted_text(path, after), rest_kept(path)),
        Ways([*_ways(told), *SAVE, DONE], near),
        changes=(path,),
        shown=("path",),
    )


def _of(fact: _Fact, name: str) -> _Fact:
    return _Fact(fact.what, name, fact.word)


def _files(dice: random.Random, level: int) -> dict[str, str]:
    """Draw logs, of which each stem has a current and an old one."""
    stems = dice.sample(_STEMS, (_FILES[level] + 1) // 2)
    names = [f"{stem}{ending}" for stem in stems for ending in (".log", ".old.log")][: _FILES[level]]
    made = {}
    for name, count in zip(names, dice.sample(range(20, 320, 13), len(names)), strict=True):
        rows = []
        for number in range(count):
            word = dice.choice(_WORDS)
            rows.append(
                f"{number} {dice.choice((word, word, word + 's', word.title()))} {dice.randrange(10**5)}\n"
            )
        made[name] = "".join(rows)
    return made


def _facts(dice: random.Random, level: int, files: dict[str, str]) -> list[_Fact]:
    """Draw facts of different lines; from level 3 on some count the lines with a word."""
    kinds = ("lines", "bytes") if level < 3 else ("lines", "bytes", "matches")
    found: dict[str, _Fact] = {}
    while len(found) < _JOBS[level]:
        what = dice.choice(kinds)
        fact = _Fact(what, dice.choice(list(files)), dice.choice(_WORDS) if what == "matches" else "")
        found[fact.label] = fact
    return list(found.values())


def _ways(told: list[tuple[int, _Fact, int]]) -> Steps:
    """Return steps that run each command in the terminal and fill the document."""
    steps: Steps = []
    for at, fact, number in told:
        if steps:
            steps.append(switch())
        write = [*at_paragraph(at), key("end"), CALM]
        steps += [line(fact.command), switch(), [*write, {"op": "type", "text": f" {number}"}, CALM]]
    return steps


FAMILY = Family("x.terminal_into_document", 4, _draft, ("xfce4-terminal", "libreoffice_writer"), "full")
