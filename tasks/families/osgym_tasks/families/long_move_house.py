"""long.move_house: list contracts that move along or end, sort their files, and note whom to write.

A terminal may read the mail by curl; an answer that does not come from a page in a browser is refused.
"""

from __future__ import annotations

import random
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from osgym_tasks import calc
from osgym_tasks.desk import file_manager, sentence
from osgym_tasks.family import LANGUAGES, Draft, Family, Steps
from osgym_tasks.goods import TOWNS
from osgym_tasks.long import Part, Plan
from osgym_tasks.long_parts import (
    Mailbox,
    added_lines_part,
    cells_part,
    given_kept,
    mailbox,
    name_of,
    note_opened,
    other_cell,
)
from osgym_tasks.pieces import HOME, key, tree_check, upload
from osgym_tasks.web import browser, serving, typed
from osgym_tasks.webapps.framework import PORT

_OPEN = {1: 2, 2: 4, 3: 6, 4: 8, 5: 12}
"""Numbers of contracts that are to be listed."""
_CORRECTED = {1: 1, 2: 1, 3: 1, 4: 2, 5: 2}
_FIRMS = (
    "Amber Gas", "Bridge Insurance", "City Library", "Daily Courier", "Elm Savings", "Fern Power",
    "Gate Telephone", "Hill Dental Plan", "Inlet Water", "Jade Sports Club", "Kite Mobile",
    "Lantern Theatre", "Meadow Vegetables", "North Car Share", "Oak Legal Aid", "Pier Internet",
    "Quill Book Club", "River Heating", "Summit Alpine Club", "Tulip Flowers", "Union Parking",
    "Violet Music",
)  # fmt: skip
_STREETS = ("Bell Lane", "Castle Road", "Dock Street", "Field Way", "Grove Road", "Mill Street", "Park Lane")
_MONTHS = {
    "en": ("April", "May", "June", "July", "August", "October"),
    "de": ("April", "Mai", "Juni", "Juli", "August", "Oktober"),
    "es": ("abril", "mayo", "junio", "julio", "agosto", "octubre"),
    "zh": ("四月", "五月", "六月", "七月", "八月", "十月"),
}
_BOOK = f"{HOME}/Documents/moving.xlsx"
_SHEET = "Firms"
_NOTE = f"{HOME}/Documents/letters.txt"
_FOLDER = f"{HOME}/Contracts"
_BELOW = "Letters to write:"
_SUBJECT = "The move"
_ANSWER = "{} contracts move along and {} end."
_WORDINGS = (
    "We move house in {month}, and {firms} have written. {mails} {sheet} {letters} {files} Then {answer}. "
    "Change nothing else.",
    "Please see to our contracts with {firms} before we move in {month}. {mails} {sheet} {letters} {files} "
    "At the end, {answer}. All else stays as it is.",
    "In {month} I get a new flat. The contracts with {firms} are not settled yet. {mails} {sheet} {letters} "
    "{files} Finally {answer}. Leave other entries and files alone.",
    "The boxes are packed, but nobody has read what {firms} say about our move in {month}. {mails} {sheet} "
    "{letters} {files} When that is done, {answer}. Nothing else is to change.",
    "Could you help with my move in {month}? It is about {firms}. {mails} {sheet} {letters} {files} After "
    "that, {answer}. Please touch nothing else.",
    "Our move is in {month}; {firms} answered when we told them. {mails} {sheet} {letters} {files} Last, "
    "{answer}. Everything else remains.",
)
_TRANSLATIONS = {
    "de": (
        "Wir ziehen im {month} um, und es geht um unsere Verträge mit {firms}. {mails} {sheet} {letters} "
        "{files} Zum Schluss {answer}. Sonst bleibt alles, wie es ist.",
        "Kannst du mir beim Umzug im {month} helfen? Noch offen sind {firms}. {mails} {sheet} {letters} "
        "{files} Danach {answer}. Ändere bitte nichts anderes.",
    ),
    "es": (
        "Nos mudamos en {month} y quedan por resolver los contratos con {firms}. {mails} {sheet} {letters} "
        "{files} Al final, {answer}. No cambies nada más.",
        "¿Me ayudas con la mudanza de {month}? Se trata de {firms}. {mails} {sheet} {letters} {files} "
        "Después, {answer}. Todo lo demás se queda como está.",
    ),
    "zh": (
        "我们{month}搬家，还要处理与{firms}的合同。{mails}{sheet}{letters}{files}最后{answer}。其他内容不要改动。",
        "请帮我准备{month}的搬家，涉及{firms}。{mails}{sheet}{letters}{files}完成后{answer}。其余一切保持原样。",
    ),
}
_SAID = {
    "en": {
        "mails": 'The mail "Contract: …" of each, in the browser, says whether the contract moves along or '
        'ends, and on which day. Mind the mails "Corrected: …": they give some another day.',
        "sheet": "In {book}, complete the row of each: the number of the contract, then the word "
        '"moves" or "ends", then the day of the month as a number; save it as xlsx.',
        "letters": "Those whose contract ends get a letter. In {note}, below the line "
        '"{below}", write a line "FIRM; STREET; TOWN" for each of them, with the number of the house after '
        "the street, in the order of the workbook, and save it.",
        "files": "Every contract is a file in {folder} with its number as the name. Move the files of those "
        'that move along into the folder "moving" there, and of those that end into the folder "ending".',
        "answer": 'answer the mail from {who} with the subject "{subject}" with exactly "{answer}" and the '
        "two numbers of these contracts",
    },
    "de": {
        "mails": 'Im Browser sagt die Mail "Contract: …" von jedem, ob der Vertrag mit umzieht oder endet, '
        'und an welchem Tag. Achte auf die Mails "Corrected: …": sie nennen für manche einen anderen Tag.',
        "sheet": "Ergänze in {book} die Zeile von jedem: die Nummer des Vertrags, dann das Wort "
        '"moves" (zieht mit um) oder "ends" (endet), dann den Tag des Monats als Zahl; speichere im '
        "xlsx-Format.",
        "letters": "Wessen Vertrag endet, bekommt einen Brief. Schreibe in {note} unter die Zeile "
        '"{below}" für jeden davon eine Zeile "FIRM; STREET; TOWN" (Name, Straße und dann Hausnummer, '
        "Ort), in der Reihenfolge der Tabelle, und speichere die Datei.",
        "files": "Jeder Vertrag ist eine Datei in {folder} mit seiner Nummer als Namen. Verschiebe die "
        'Dateien der Verträge, die mit umziehen, dort in den Ordner "moving", die der endenden in den Ordner '
        '"ending".',
        "answer": 'beantworte die Mail von {who} mit dem Betreff "{subject}" mit genau "{answer}" und den '
        "beiden Anzahlen dieser Verträge",
    },
    "es": {
        "mails": 'En el navegador, el correo "Contract: …" de cada una dice si el contrato se traslada o '
        'termina, y qué día. Fíjate en los correos "Corrected: …": dan otro día para algunas.',
        "sheet": "En {book}, completa la fila de cada una: el número del contrato, luego la palabra "
        '"moves" (se traslada) o "ends" (termina), luego el día del mes como número; guarda en formato xlsx.',
        "letters": "Las empresas cuyo contrato termina reciben una carta. En {note}, debajo de la línea "
        '"{below}", escribe para cada una de ellas una línea "FIRM; STREET; TOWN" (nombre, calle seguida '
        "del número de la casa, ciudad), en el orden de la hoja de cálculo, y guarda el archivo.",
        "files": "Cada contrato es un archivo de {folder} con su número como nombre. Mueve los archivos de "
        'los que se trasladan a la carpeta "moving" de ahí, y los de los que terminan a la carpeta "ending".',
        "answer": 'responde al correo de {who} con el asunto "{subject}" exactamente con "{answer}" y las '
        "dos cantidades de estos contratos",
    },
    "zh": {
        "mails": '浏览器中每家的邮件 "Contract: …" 写明合同是随迁还是终止，以及在哪一天。注意邮件 '
        '"Corrected: …"：其中更正了某些日期。',
        "sheet": '在 {book} 中填好每家的那一行：合同号，然后是 "moves"（随迁）或 "ends"（终止），再是日期'
        "（当月几号，用数字），并保存为 xlsx 格式。",
        "letters": '合同终止的各家要收到信：在 {note} 的 "{below}" 这一行下面，按表格的顺序为其中每家写一行 '
        '"FIRM; STREET; TOWN"（名称；街道，后接门牌号；城市），并保存。',
        "files": "每份合同是 {folder} 中以合同号命名的文件。把随迁合同的文件移到其中的文件夹 "
        '"moving"，把终止合同的文件移到文件夹 "ending"。',
        "answer": '回复 {who} 发来的主题为 "{subject}" 的邮件，内容恰好是 "{answer}"，'
        "并填入这些合同的两个数目",
    },
}
"""Parts of the instruction, by language."""


@dataclass(frozen=True, slots=True)
class _Contract:
    """A contract with a firm.

    Attributes:
        first: Day that the firm told at first.
        day: Right day.
        ends: It ends; otherwise it moves along.
    """

    firm: str
    number: int
    street: str
    town: str
    first: int
    day: int
    ends: bool

    def told(self, month: str) -> str:
        """Return the text of its mail."""
        what = "cannot move along and ends" if self.ends else "moves along"
        return (
            f"Your contract {self.number} with {self.firm} {what} on {self.first} {month}. "
            f"Letters reach us at {self.street} in {self.town}."
        )

    @property
    def word(self) -> str:
        """Word in the workbook."""
        return "ends" if self.ends else "moves"

    @property
    def folder(self) -> str:
        """Folder of its file."""
        return "ending" if self.ends else "moving"

    @property
    def file(self) -> str:
        return f"{self.number}.txt"

    @property
    def text(self) -> str:
        """Content of its file."""
        return f"Contract {self.number}\n{self.firm}\n"

    @property
    def letter(self) -> str:
        """Line of the note."""
        return f"{self.firm}; {self.street}; {self.town}"


def _contracts(dice: random.Random, level: int) -> tuple[list[_Contract], list[_Contract]]:
    """Draw contracts that are listed already, and those to list; the first ones of these are corrected."""
    count = _OPEN[level]
    firms = dice.sample(_FIRMS, count + 2 + level)
    ends = [True, False, *(dice.random() < 0.5 for _ in firms)][:count]
    dice.shuffle(ends)
    ends += [at % 2 == 0 for at in range(2 + level)]
    made = []
    numbers = dice.sample(range(10_000, 100_000), len(firms))
    for at, (firm, number, over) in enumerate(zip(firms, numbers, ends, strict=True)):
        first, later = dice.sample(range(2, 29), 2)
        street = f"{dice.choice(_STREETS)} {dice.randrange(2, 90)}"
        day = later if at < _CORRECTED[level] else first
        made.append(_Contract(firm, number, street, dice.choice(TOWNS), first, day, over))
    return made[count:], made[:count]


def _draft(dice: random.Random, level: int) -> Draft:
    old, new = _contracts(dice, level)
    months = dice.choice([*zip(*_MONTHS.values(), strict=True)])
    month = dict(zip(_MONTHS, months, strict=True))
    post = _post(dice, level, new, month["en"])
    window = post.window
    listed = dice.sample(new, len(new))
    grid: list[list[Any]] = [["Firm", "Contract", "What", f"Day in {month['en']}"]]
    grid += [[one.firm, one.number, one.word, one.day] for one in old]
    rows = {one.firm: row for row, one in enumerate(listed, len(grid) + 1)}
    grid += [[one.firm] for one in listed]
    note = ["Moving house", _BELOW, "The keys go back to the landlord."]
    letters = [one.letter for one in listed if one.ends]
    answer = _ANSWER.format(len(new) - len(letters), len(letters))
    cells = _cells(rows, new)
    parts = [
        replace(cells, legs=[*post.read(1 + len(new) + _CORRECTED[level]), *cells.legs]),
        added_lines_part(_NOTE, note, 1, letters),
        _files_part(old, new, {one: one.folder for one in new}),
        post.part(answer, weight=1),
    ]
    early = _cells(rows, [replace(one, day=one.first) for one in new])
    swapped = {one: ("moving" if one.ends else "ending") if one is new[-1] else one.folder for one in new}
    wrong = {
        "the day before it was corrected": replace(cells, legs=early.legs),
        "a file in the other folder": _files_part(old, new, swapped),
    }
    plan = Plan(
        [window, name_of(_BOOK), name_of(_NOTE), name_of(_FOLDER)],
        parts,
        wrong,
        {"another contract renumbered": other_cell(_BOOK, "B2", "1")},
        given_kept(_BOOK, _SHEET, grid, f"B{len(old) + 2}:D{len(grid)}"),
    )
    named = {language: _named(language, month[language], new, post) for language in LANGUAGES}
    draft = plan.draft(
        _WORDINGS,
        named["en"],
        [
            *serving(post.served),
            *browser(post.served.url, window),
            *calc.opened(_BOOK, calc.workbook({_SHEET: grid})),
            *note_opened(_NOTE, note),
            upload(_paths({one: f"{one.folder}/" for one in old} | dict.fromkeys(new, ""))),
            *file_manager(_FOLDER),
        ],
        (
            _BOOK,
            _NOTE,
            *(f"{_FOLDER}/{place}{one.file}" for one in new for place in ("", "moving/", "ending/")),
        ),
    )
    translated = {language: named[language] for language in _TRANSLATIONS}
    return replace(draft, translations=_TRANSLATIONS, translated=translated)


def _post(dice: random.Random, level: int, new: Sequence[_Contract], month: str) -> Mailbox:
    """Draw the mails: the one to answer, one of each contract, and the corrections."""
    corrected = new[: _CORRECTED[level]]
    texts = ["How many of the contracts move along, and how many end?", *(one.told(month) for one in new)]
    texts += [f"The day that we told you was wrong: it is {one.day} {month}." for one in corrected]
    subjects = [_SUBJECT, *(f"Contract: {one.firm}" for one in new)]
    subjects += [f"Corrected: {one.firm}" for one in corrected]
    return mailbox(dice, texts, 2 + level, PORT, "", subjects)


def _cells(rows: Mapping[str, int], contracts: Sequence[_Contract]) -> Part:
    """Return the part that completes the rows of contracts in the workbook."""
    values: dict[str, Any] = {}
    for one in sorted(contracts, key=lambda one: rows[one.firm]):
        row = rows[one.firm]
        values |= {f"B{row}": one.number, f"C{row}": one.word, f"D{row}": one.day}
    return cells_part(_BOOK, _SHEET, values, 3)


def _paths(folders: Mapping[_Contract, str]) -> dict[str, str]:
    """Return texts of contracts by path; `folders` end in a slash, or are empty."""
    return {f"{_FOLDER}/{folder}{one.file}": one.text for one, folder in folders.items()}


def _files_part(old: Sequence[_Contract], new: Sequence[_Contract], folders: Mapping[_Contract, str]) -> Part:
    """Return the part that moves files in the file manager, to `folders`; its check is of the right ones."""
    steps: Steps = [[key("ctrl", "4")]]
    for one, folder in folders.items():
        steps += [
            [typed(one.file)],
            [key("esc"), key("ctrl", "x")],
            [key("ctrl", "l"), typed(f"{_FOLDER}/{folder}"), key("enter")],
            [key("ctrl", "v")],
            [key("ctrl", "l"), typed(_FOLDER), key("enter")],
        ]
    tree = {f"{one.folder}/{one.file}": one.text for one in (*old, *new)}
    return Part("the files", 2, tree_check(_FOLDER, tree), [], [(name_of(_FOLDER), steps)])


def _named(language: str, month: str, new: Sequence[_Contract], post: Mailbox) -> dict[str, str]:
    """Return the values that the instruction names."""
    values = {
        "book": _BOOK, "note": _NOTE, "folder": _FOLDER, "below": _BELOW, "subject": _SUBJECT,
        "who": post.names[post.rows[0]["sender"]], "answer": _ANSWER.format("N", "M"),
    }  # fmt: skip
    return {
        "month": month,
        "firms": sentence(sorted(one.firm for one in new), language),
        **{name: text.format(**values) for name, text in _SAID[language].items()},
    }


FAMILY = Family("long.move_house", 1, _draft, ("chromium", "libreoffice_calc", "mousepad", "pcmanfm"), "full")
