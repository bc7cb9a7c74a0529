"""writer.replace: replace whole words in small letters throughout a text, and no longer words or capitals."""

from __future__ import annotations

import random
import re

from osgym_tasks.family import Draft, Family, Steps, Ways
from osgym_tasks.pieces import DONE, every, key
from osgym_tasks.targets import click
from osgym_tasks.writer import (
    PLACES,
    SAVE,
    docx_bytes,
    mention,
    opened,
    path_of,
    rest_kept,
    sentences,
    wanted_text,
)

_PARAGRAPHS = {1: 5, 2: 8, 3: 13, 4: 20, 5: 32}
_PAIRS = {1: 1, 2: 1, 3: 2, 4: 3, 5: 5}
_NEW = ("annex", "cinema", "farm", "gallery", "kitchen", "laundry", "museum", "orchard", "stable", "studio")
_WORDINGS = (
    "In {path}, which is open in Writer, replace every whole word in small letters as follows: {pairs}. "
    "Longer words and capitalised ones stay as they are. Save the document in its own format.",
    "Please go through the open document {path} and change words: {pairs}. I mean whole words in small "
    "letters only, each time they occur; nothing else changes. Save it as the docx file that it is.",
    "The text in {path} uses the wrong words. Correct them everywhere ({pairs}), but only as whole words "
    "and in small letters, and save the file in the same format.",
    "We have moved, and the text that is open doesn't know yet. Wherever it has these as whole words in "
    "small letters, change them: {pairs}. Plurals, other longer words and capitals stay. Save it in its "
    "format.",
    "My story needs other places: {pairs}. Could you go through the open document for me? I mean whole "
    "lower-case words only, each time they occur. Nothing else changes; save it as docx.",
    "A lawyer went over this text and wants other terms: {pairs}. Replace them everywhere as whole words "
    "in small letters, leave the rest of the open document alone, and save it as the docx that it is.",
)
_TRANSLATIONS = {
    "de": (
        "Im offenen Text stimmen einige Wörter nicht mehr: {pairs}, überall, wo sie als ganze Wörter in "
        "Kleinbuchstaben stehen. Längere Wörter und solche mit Großbuchstaben bleiben. Speichere die Datei "
        "im docx-Format.",
    ),
    "es": (
        "En el texto abierto hay palabras que ya no valen: {pairs}, siempre que aparezcan como palabra "
        "completa en minúsculas. Las palabras más largas o con mayúsculas no cambian. Guarda el archivo en "
        "formato docx.",
    ),
    "zh": (
        "打开的文档里有些词要换：{pairs}，凡是以全小写的完整单词出现时都要换。更长的单词和带大写字母的单词"
        "保持不变。按 docx 格式保存文件。",
    ),
}
_PAIR = {
    "en": '"{}" becomes "{}"',
    "de": '"{}" wird zu "{}"',
    "es": '"{}" pasa a ser "{}"',
    "zh": '"{}" 换成 "{}"',
}


def _draft(dice: random.Random, level: int) -> Draft:
    olds, news = dice.sample(PLACES, _PAIRS[level]), dice.sample(_NEW, _PAIRS[level])
    pairs = dict(zip(olds, news, strict=True))
    rows = sentences(dice, _PARAGRAPHS[level])
    mention(dice, olds, rows)
    path = path_of(dice)
    after = [_replaced(row, pairs) for row in rows]
    near = {
        "not saved": [*_ways(pairs), DONE],
        "longer words too": [*_ways(pairs, whole=False), *SAVE, DONE],
        "capitals too": [*_ways(pairs, case=False), *SAVE, DONE],
    }
    if len(pairs) > 1:
        near["one word forgotten"] = [*_ways(dict(list(pairs.items())[:-1])), *SAVE, DONE]
    said = {
        language: ", ".join(one.format(*pair) for pair in pairs.items()) for language, one in _PAIR.items()
    }
    return Draft(
        _WORDINGS,
        {"path": path, "pairs": said["en"]},
        opened(path, docx_bytes(rows)),
        every(wanted_text(path, after), rest_kept(path)),
        Ways([*_ways(pairs), *SAVE, DONE], near),
        changes=[path],
        shown=("path",),
        translations=_TRANSLATIONS,
        translated={language: {"pairs": said[language]} for language in _TRANSLATIONS},
    )


def _replaced(text: str, pairs: dict[str, str]) -> str:
    for old, new in pairs.items():
        text = re.sub(rf"\b{old}\b", new, text)
    return text


def _ways(pairs: dict[str, str], *, whole: bool = True, case: bool = True) -> Steps:
    """Return steps with Find and Replace, its options first."""
    options = [("Whole words only", whole), ("Match case", case)]
    steps: Steps = [[key("ctrl", "h")], [click("check-box", name) for name, wanted in options if wanted]]
    for old, new in pairs.items():
        steps.append(
            [
                *(key("alt", "f"), key("ctrl", "a"), {"op": "type", "text": old}),
                *(key("alt", "p"), key("ctrl", "a"), {"op": "type", "text": new}),
            ]
        )
        steps.append([click("push-button", "Replace All")])
    return [*steps, [key("esc")]]


FAMILY = Family("writer.replace", 3, _draft, ("libreoffice_writer",), "full")
