"""edit.replace: replace a word in an open text, with regard to its case, or as a whole word only."""

from __future__ import annotations

import random
import re
from typing import Any

from osgym_tasks.desk import home, mousepad, sentence, without_last_end
from osgym_tasks.family import Draft, Family, Steps, Ways
from osgym_tasks.pieces import DONE, every, key, text_check, upload
from osgym_tasks.targets import click

_LINES = {1: 5, 2: 9, 3: 14, 4: 22, 5: 34}
_PAIRS = {1: 1, 2: 1, 3: 2, 4: 3, 5: 5}
_WORDS = (
    ("cat", "dog"), ("port", "dock"), ("rain", "snow"), ("table", "desk"), ("car", "truck"), ("art", "music"),
    ("king", "queen"), ("plan", "scheme"), ("ice", "water"), ("light", "lamp"), ("book", "paper"),
    ("sea", "lake"),
)  # fmt: skip
_AROUND = (
    "The {} is here again.", "Nobody saw the {} on that day.", "We wrote about one {} and another {}.",
    "{} or not, we will go.", "It was a {}, they said.", "Is this {} the one that you meant?",
    "Without the {} nothing works.", "Two of us like the {}; the third does not.",
    "Ask for the {} at the door.",
    "In spring the {} looks different.",
)  # fmt: skip
_APP = "mousepad"
_FILES = ("story.txt", "letter.txt", "essay.txt", "notes.txt", "draft.txt")
_WORDINGS = (
    "In the text that is open, {edits} everywhere in {path}, and save the file. Leave the rest of it as it "
    "is.",
    "The file {path} is open in the editor. Throughout it, {edits}; nothing else may change. Save it.",
    "Please {edits} in the whole of {path}, which you see in the text editor, and save. All else stays.",
    "My text uses the wrong words. In the file that is open, please {edits}, wherever that occurs. Nothing "
    "else may change. Save it.",
    "The publisher is picky. Could you go through this text and {edits} each time? Keep the rest, and save "
    "the file under its name.",
    "I wrote this late at night and mixed things up. Throughout the open file, {edits}. Save when that is "
    "done; all else stays as I wrote it.",
)


def _draft(dice: random.Random, level: int) -> Draft:
    pairs = dice.sample(_WORDS, _PAIRS[level])
    by_case, whole = level in (2, 4, 5), level in (3, 4, 5)
    before = _text(dice, level, [old for old, _ in pairs])
    path = home(f"Documents/{dice.choice(_FILES)}")
    old, new = pairs[0]
    how = (
        f'only in small letters, so that "{old.title()}" stays'
        if by_case
        else f'with a capital or not, so that "{old.title()}" becomes "{new}", too'
    )
    how += (
        f', and only as a whole word, so that "{old}s" stays'
        if whole
        else f', and in longer words as well, so that "{old}s" becomes "{new}s"'
    )
    said = sentence(f'replace "{old}" by "{new}"' for old, new in pairs)
    edits = f"{said} ({'each ' if len(pairs) > 1 else ''}{how})"
    after = before
    for old, new in pairs:
        pattern = rf"\b{old}\b" if whole else old
        after = re.sub(pattern, new, after, flags=0 if by_case else re.IGNORECASE)
    near = {"not saved": [*_replace(pairs, by_case, whole), DONE]}
    if by_case:
        near["capitals too"] = [*_replace(pairs, False, whole), _SAVE, DONE]
    else:
        near["small letters only"] = [*_replace(pairs, True, whole), _SAVE, DONE]
    if whole:
        near["parts of words too"] = [*_replace(pairs, by_case, False), _SAVE, DONE]
    if len(pairs) > 1:
        near["one word forgotten"] = [*_replace(pairs[:-1], by_case, whole), _SAVE, DONE]
    return Draft(
        _WORDINGS,
        {"edits": edits, "path": path},
        [upload({path: before}), *mousepad(path)],
        every(text_check(path, after)),
        Ways(
            [*_replace(pairs, by_case, whole), _SAVE, DONE],
            near,
            right={"no last line end": [*_replace(pairs, by_case, whole), without_last_end(), _SAVE, DONE]},
        ),
        changes=(path,),
        shown=("path",),
    )


_SAVE: list[dict[str, Any]] = [key("ctrl", "s")]


def _text(dice: random.Random, level: int, words: list[str]) -> str:
    """Draw a text with each word twice in small letters, with a capital, and in a longer word."""
    forms = [
        form for word in words for form in (word, word.title(), f"{word}s", f"{word.title()}s", f"re{word}")
    ]
    forms += [form for word in words for form in (word, word.title())]
    while len(forms) < _LINES[level] * 2:
        forms.append(dice.choice((*forms, "bird", "mill", "hand")))
    dice.shuffle(forms)
    lines = []
    while forms:
        shape = dice.choice(_AROUND)
        taken, forms = forms[: shape.count("{}")], forms[shape.count("{}") :]
        lines.append(shape.format(*taken, *["bird"] * (shape.count("{}") - len(taken))))
    return "".join(f"{line}\n" for line in lines)


def _replace(pairs: list[tuple[str, str]], by_case: bool, whole: bool) -> Steps:
    """Return steps in the dialog, which stays open from one word to the next, and is closed at the end."""
    boxes = {"Match case": by_case, "Match whole word": whole, "Replace all in:": True}
    steps: Steps = [[key("ctrl", "home"), key("ctrl", "r")]]
    steps.append([click("check-box", name, app=_APP) for name, wanted in boxes.items() if wanted])
    for old, new in pairs:
        over = [(click("text", "", nth=at, app=_APP), text) for at, text in ((1, old), (2, new))]
        steps.append([do for at, text in over for do in (at, key("ctrl", "a"), {"op": "type", "text": text})])
        steps.append([click("push-button", "Replace All", app=_APP)])
    return [*steps, [key("esc")]]


FAMILY = Family("edit.replace", 4, _draft, ("mousepad",))
