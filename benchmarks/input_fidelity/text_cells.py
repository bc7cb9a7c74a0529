"""Cells about texts: typed into fields, dialogs and shells, in several scripts and layouts."""

from __future__ import annotations

from dataclasses import replace

from benchmarks.input_fidelity.stage import Act, Cell, Stage, named, text_of
from benchmarks.input_fidelity.witnessing import Event

FOLDER = "/home/user/many"
FILES = 60
"""Number of files in the folder of a Save As dialog: completion looks through all of them at each letter."""
LOCK_SECOND_GROUP = (
    "import ctypes\n"
    'x = ctypes.CDLL("libX11.so.6")\n'
    "x.XOpenDisplay.restype = ctypes.c_void_p\n"
    "display = ctypes.c_void_p(x.XOpenDisplay(None))\n"
    "x.XkbLockGroup(display, 0x100, 1)\n"  # 0x100: XkbUseCoreKbd, X11/extensions/XKB.h
    "x.XSync(display, 0)\n"
)


def typed(text: str) -> Act:
    return {"op": "type", "text": text}


def key(*keys: str, **fields: int) -> Act:
    """Return the action that presses a chord."""
    return {"op": "key", "keys": list(keys), **fields}


def _types(target: str, text: str, value: str | None = None) -> Cell:
    def play(stage: Stage) -> None:
        stage.step(stage.click(target))
        stage.step(typed(text))
        stage.expect_text(target, text if value is None else value)

    return Cell("", "", (target,), play)


def _cell(name: str, about: str, base: Cell, *, quick: bool = False) -> Cell:
    return replace(base, name=name, about=about, quick=quick)


def _enter_and_backspace(stage: Stage) -> None:
    stage.step(stage.click("multiline"))
    stage.step(typed("abx"), key("BackSpace"), typed("c"), key("Return"), typed("d\ne"))
    stage.expect_text("multiline", "abc\nd\ne")


def _tab(stage: Stage) -> None:
    stage.step(stage.click("entry"))
    stage.step(typed("first\tsecond"))
    stage.expect(
        "entry and password",
        ["first", "second"],
        lambda events: [text_of(events, "entry"), text_of(events, "password")],
    )


def _entry_enter(stage: Stage) -> None:
    stage.step(stage.click("entry"))
    stage.step(typed("done\n"))
    stage.expect(
        "text and Enter of entry",
        ["done", ["entry"]],
        lambda events: [text_of(events, "entry"), named(events, "activate", "target")],
    )


def _replace(stage: Stage) -> None:
    stage.step(stage.click("entry"))
    stage.step(typed("old text"))
    stage.step(key("ctrl", "a"), typed("new"))
    stage.expect_text("entry", "new")


def _spin(stage: Stage) -> None:
    stage.step(stage.click("spin"))
    stage.step(key("ctrl", "a"), typed("4711\t"))
    stage.expect("number of spin", "4711", lambda events: _digits(text_of(events, "spin")))


def _mask(stage: Stage) -> None:
    stage.step(stage.click("mask"))
    stage.step(key("Home"), typed("12311999"))
    stage.expect("digits of mask", "12311999", lambda events: _digits(text_of(events, "mask")))


def _digits(text: str | None) -> str:
    whole = (text or "").split(".")[0]
    return "".join(char for char in whole if char.isdigit())


def _search(stage: Stage) -> None:
    stage.step(stage.click("search"))
    stage.step(typed("cherr"))
    stage.expect("selected row", ["cherry"], lambda events: named(events, "select", "value")[-1:])


def _search_enter(stage: Stage) -> None:
    stage.step(stage.click("search"))
    stage.step(typed("cherr\n"))
    stage.expect(
        "selected row and Enter",
        [["cherry"], ["search"]],
        lambda events: [named(events, "select", "value")[-1:], named(events, "activate", "target")],
    )


def _in_layout(switch: str, target: str, *texts: str) -> Cell:
    def play(stage: Stage) -> None:
        stage.run(switch)
        stage.step(stage.click(target))
        for text in texts:
            stage.step(typed(text))
        stage.expect_text(target, "".join(texts))

    return Cell("", "", (target,), play, changes_desktop=True)


def _save(path: str, *, one_step: bool, shortcut: bool = False) -> Cell:
    def play(stage: Stage) -> None:
        names = " ".join(f"{FOLDER}/report-{number:02}.txt" for number in range(FILES))
        stage.run(f"mkdir -p {FOLDER} && touch {names} && sync")
        opening = [key("ctrl", "shift", "s")] if shortcut else [stage.click("save")]
        if shortcut:
            stage.step(stage.click("entry"))
        chord = stage.witness.toolkit.saves_by
        naming = [typed(path), key(*chord)] if chord else [typed(f"{path}\n")]
        if one_step:
            stage.step(*opening, *naming)
        else:
            stage.step(*opening, settle="certain")
            stage.step(*naming)
        stage.expect(
            "path of the dialog, text beside it",
            [[path], None],
            lambda events: [named(events, "dialog", "path"), text_of(events, "entry")],
        )

    return Cell("", "", ("save", "entry"), play)


def _late(stage: Stage) -> None:
    stage.step(stage.click("open"), settle="certain")
    stage.step(typed("in time"))
    stage.expect_text("late", "in time")


def _late_in_one_step(stage: Stage) -> None:
    # nobody can know that a window will come, so the text may go to the field that has the focus before it
    stage.step(stage.click("open"), stage.click("entry"), typed("in time"))

    def received(events: list[Event]) -> list[str]:
        return [text for text in (text_of(events, "entry"), text_of(events, "late")) if text]

    stage.expect("texts of both windows", ["in time"], received)


def _shell_file(text: str, path: str, content: str) -> Cell:
    def play(stage: Stage) -> None:
        stage.step({"op": "screenshot"}, settle="certain")  # until the prompt shows
        stage.step(typed(text))
        stage.expect_file(path, content)

    return Cell("", "", ("shell",), play, changes_desktop=True)


LINES = "first line\nsecond  line\n\nlast"
MANY = "".join(chr(0x4E00 + number) for number in range(60))
US_RU = f"setxkbmap us,ru && python3 -c '{LOCK_SECOND_GROUP}'"

CELLS = (
    _cell("plain", "one line of ASCII", _types("entry", "The quick brown fox, 0123 & <more>"), quick=True),
    _cell("lines", "four lines", _types("multiline", LINES), quick=True),
    Cell("edits", "text, Backspace, Enter and text in one step", ("multiline",), _enter_and_backspace),
    Cell("tab", "Tab within a text goes to the next field", ("entry", "password"), _tab),
    Cell("enter", "a text that ends with Enter, into a field", ("entry",), _entry_enter, quick=True),
    Cell("replace", "Ctrl+A and a new text in one step", ("entry",), _replace, quick=True),
    _cell("password", "into a password field", _types("password", "Pa$$w0rd #1")),
    Cell("number", "Ctrl+A, a number and Tab, into a number field", ("spin",), _spin),
    Cell("mask", "digits into a field with a mask", ("mask",), _mask),
    Cell("search", "a word into a list that is searched while typing", ("search",), _search),
    Cell("search-enter", "the same, ended with Enter", ("search",), _search_enter),
    _cell("unicode", "five scripts and an emoji", _types("entry", "Grüße ☃ мир 漢字 éπ 😀"), quick=True),
    _cell("unicode-many", "60 characters that no key types", _types("entry", MANY)),
    _cell(
        "dead-keys",
        "quotes, tilde and accents where the layout has dead keys",
        _in_layout("setxkbmap us -variant intl", "entry", 'it\'s "so" ~/a^b `c` é'),
    ),
    _cell(
        "groups",
        "Latin and Cyrillic while the layout's second group is active",
        _in_layout(US_RU, "entry", "/home", " мир"),
    ),
    _cell(
        "save", "a path into Save As, a step after it was opened", _save(f"{FOLDER}/new.txt", one_step=False)
    ),
    _cell(
        "save-one-step",
        "a path into Save As, in the step that opens it",
        _save(f"{FOLDER}/new.txt", one_step=True),
    ),
    _cell(
        "save-shortcut",
        "the same, opened by Ctrl+Shift+S",
        _save(f"{FOLDER}/new.txt", one_step=True, shortcut=True),
    ),
    Cell(
        "late", "a text into a window that opens 300 ms after the click of the step before", ("open",), _late
    ),
    Cell(
        "late-one-step",
        "the same in one step: whole, in that window or in the field that has the focus before",
        ("open", "entry"),
        _late_in_one_step,
    ),
    _cell(
        "shell-cat",
        "`cat > file` and three lines in one text",
        _shell_file(
            "cat > cat.txt\none line\n  two lines\nthree\n", "cat.txt", "one line\n  two lines\nthree\n"
        ),
        quick=True,
    ),
    _cell(
        "shell-read",
        "`read x`, its line, and what prints it, in one text",
        _shell_file('read x\nthe value\necho "[$x]" > read.txt\n', "read.txt", "[the value]\n"),
        quick=True,
    ),
    _cell(
        "shell-unicode",
        "a command with Unicode and Enter",
        _shell_file("echo 'мир ☃' > uni.txt\n", "uni.txt", "мир ☃\n"),
        quick=True,
    ),
)
