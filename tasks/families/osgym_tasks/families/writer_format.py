"""writer.format: make whole lower-case words bold, italic or underlined throughout a text."""

from __future__ import annotations

import random
import re

from osgym_tasks.family import Draft, Family, Steps, Ways
from osgym_tasks.pieces import DONE, every, key
from osgym_tasks.targets import click
from osgym_tasks.writer import (
    CALM,
    PLACES,
    SAVE,
    docx_bytes,
    mention,
    opened,
    path_of,
    rest_kept,
    sentences,
    wanted_formats,
    wanted_text,
)

_PARAGRAPHS = {1: 5, 2: 8, 3: 13, 4: 20, 5: 32}
_WORDS = {1: 1, 2: 1, 3: 2, 4: 3, 5: 5}
_KINDS = {"bold": "b", "italic": "i", "underlined": "u"}
"""Formats, and the letters of their shortcuts."""
_WORDINGS = (
    "In {path}, which is open in Writer, format every whole word in small letters as follows: {words}. "
    "Longer words and capitalised ones stay as they are, and so do the spaces. Save it in its own format.",
    "Please format words of the open document {path}: {words}. I mean whole words in small letters only, "
    "each time they occur, without the spaces around them; all else stays. Save it as the docx file it is.",
    "Some words of {path} should stand out. Format them everywhere ({words}), but only as whole words, in "
    "small letters and without spaces, and save the file in the same format.",
    "Certain words of the open text should stand out in the handout. Wherever they occur as whole words in "
    "small letters, format them: {words}. Not the spaces, plurals or capitals, please. Save it in its "
    "format.",
    "Our house style marks certain words: {words}. Could you do that throughout the document that you see? "
    "Only whole lower-case words, without the spaces around them, and nothing else changes. Save it as "
    "docx.",
    "I'm preparing a reading exercise, and pupils look for words. In the open document, {words}, each time "
    "it stands there as a whole word in small letters. All other text stays as it is. Save the file, "
    "keeping the docx format.",
)
_TRANSLATIONS = {
    "de": (
        "Einige Wörter des offenen Texts sollen auffallen: {words}, überall, wo sie als ganze Wörter in "
        "Kleinbuchstaben stehen, ohne die Leerzeichen. Längere Wörter und solche mit Großbuchstaben "
        "bleiben. Speichere die Datei im docx-Format.",
    ),
    "es": (
        "Algunas palabras del texto abierto deben destacar: {words}, siempre que aparezcan como palabra "
        "completa en minúsculas, sin los espacios. Las palabras más largas o con mayúsculas no cambian. "
        "Guarda el archivo en formato docx.",
    ),
    "zh": (
        "打开的文档里有些词要突出显示：{words}，凡是以全小写的完整单词出现时都要，不包括两边的空格。更长的"
        "单词和带大写字母的单词保持不变。按 docx 格式保存文件。",
    ),
}
_SAID = {
    "en": ('"{}" becomes {}', "bold", "italic", "underlined"),
    "de": ('"{}" wird {}', "fett", "kursiv", "unterstrichen"),
    "es": ('"{}" en {}', "negrita", "cursiva", "subrayado"),
    "zh": ('"{}" 设为{}', "粗体", "斜体", "下划线"),
}
"""Words for one format, and names of the formats in the order of `_KINDS`, by language."""


def _draft(dice: random.Random, level: int) -> Draft:
    words = dice.sample(PLACES, _WORDS[level])
    kinds = [*_KINDS]
    dice.shuffle(kinds)
    wanted = {word: kinds[at % len(kinds)] for at, word in enumerate(words)}
    rows = sentences(dice, _PARAGRAPHS[level])
    mention(dice, words, rows)
    path = path_of(dice)
    last = words[-1]
    near = {"longer words too": [*_ways(wanted, whole=False), *SAVE, DONE]}
    if len(words) > 1:
        near["one forgotten"] = [*_ways({word: wanted[word] for word in words[:-1]}), *SAVE, DONE]
    else:
        other = next(kind for kind in kinds if kind != wanted[last])
        near["another format"] = [*_ways({last: other}), *SAVE, DONE]
        near["not saved"] = [*_ways(wanted), DONE]
    text = "\n".join(rows)
    found = {kind: [one for one in re.findall(r"\w+", text) if wanted.get(one) == kind] for kind in _KINDS}
    said = {
        language: ", ".join(
            one.format(word, names[list(_KINDS).index(kind)]) for word, kind in wanted.items()
        )
        for language, (one, *names) in _SAID.items()
    }
    return Draft(
        _WORDINGS,
        {"path": path, "words": said["en"]},
        opened(path, docx_bytes(rows)),
        every(
            wanted_text(path, rows),
            wanted_formats(path, found),
            rest_kept(path, ignored=list(_KINDS)),
        ),
        Ways(
            [*_ways(wanted), *SAVE, DONE],
            near,
            {"a format put on and off again": [*_ways(wanted), *_on_and_off(), *SAVE, DONE]},
        ),
        changes=[path],
        shown=("path",),
        translations=_TRANSLATIONS,
        translated={language: {"words": said[language]} for language in _TRANSLATIONS},
    )


def _ways(wanted: dict[str, str], *, whole: bool = True) -> Steps:
    """Return steps that find all by Find and Replace, close it, and format the selection.

    The dialog remembers "Whole words only" from the first time on, and "Match case" from the second.
    """
    steps: Steps = []
    for at, (word, kind) in enumerate(wanted.items()):
        ticks = ["Whole words only"] * (whole and at == 0) + ["Match case"] * (at < 2)
        steps += [
            [key("ctrl", "home"), CALM],
            [key("ctrl", "h")],
            *([[click("check-box", name) for name in ticks]] if ticks else []),
            [key("alt", "f"), key("ctrl", "a"), {"op": "type", "text": word}],
            [click("push-button", "Find All")],
            [key("esc"), CALM],
            [key("ctrl", _KINDS[kind]), CALM],
        ]
    return steps


def _on_and_off() -> Steps:
    """Return steps that make the last full stop italic, and upright again."""
    return [[key("ctrl", "end"), key("shift", "left"), key("ctrl", "i"), CALM, key("ctrl", "i"), CALM]]


FAMILY = Family("writer.format", 3, _draft, ("libreoffice_writer",), "full")
