"""term.count: count lines of logs by words in them, and write each number into a file."""

from __future__ import annotations

import random
from dataclasses import dataclass

from osgym_tasks.desk import sentence, terminal
from osgym_tasks.family import Draft, Family, Steps, Ways
from osgym_tasks.pieces import DONE, HOME, every, line, text_check, upload

_LINES = {1: 20, 2: 40, 3: 60, 4: 90, 5: 120}
_FILES = {1: 1, 2: 1, 3: 1, 4: 2, 5: 3}
_COUNTS = {1: 1, 2: 1, 3: 2, 4: 3, 5: 4}
_WORDS = ("ERROR", "WARN", "FATAL", "RETRY")
_PARTS = ("disk", "network", "printer", "login", "backup")
_SERVICES = ("web", "mail", "shop")
_ANSWERS = ("count", "number", "answer", "total", "sum", "lines")
_WORDINGS = (
    "Count lines of {logs} in {folder}: {jobs}. Only whole words count, spelt as they are here, capitals "
    "included. Each of these files, in {folder}, gets its number and nothing else. Leave the logs as they "
    "are.",
    "Find numbers out of {logs} in {folder}: count {jobs}. I mean whole words in exactly this spelling, "
    "capitals included. Write each number alone into its file in the same folder; the logs stay unchanged.",
    "Count over {logs}, in {folder}: {jobs}. Whole words only, with capitals and small letters as given. "
    "The files go into that folder, each with the number and nothing more. The logs must not change.",
    "I am writing the weekly report and need figures from {logs} in my home folder: {jobs}. Whole words in "
    "this spelling only, please, capitals and all. Put each number, just the number, into the file that I "
    "name, next to the logs, and don't touch those.",
    "Something went wrong. From {logs} here in the terminal's folder, could you tell me how often these "
    "turn up? Count {jobs}. A line counts when it has the whole word, written exactly like that. Leave "
    "each count as a plain number in its file in the same folder, and the logs as they are.",
    "My colleague wants numbers, not logs. For {logs} in the folder where the terminal is, please save the "
    "following there, each file holding one number only: {jobs}. Whole words, same capitals. Do not edit "
    "the logs.",
)
_TRANSLATIONS = {
    "de": (
        "Ich brauche für den Wochenbericht Zahlen aus {logs} in meinem persönlichen Ordner: {jobs}. Es "
        "zählen nur ganze Wörter in genau dieser Schreibweise, auch bei Groß- und Kleinbuchstaben. Schreib "
        "jede Zahl, und sonst nichts, in ihre Datei neben den Protokollen, und ändere die Protokolle nicht.",
    ),
    "es": (
        "Necesito para el informe semanal unas cifras de {logs}, en mi carpeta personal: {jobs}. Solo "
        "cuentan palabras completas escritas exactamente así, con sus mayúsculas y minúsculas. Guarda cada "
        "número, y nada más, en su archivo junto a los registros, y no cambies los registros.",
    ),
    "zh": (
        "我写周报需要主目录中 {logs} 的一些数字：{jobs}。只统计完整的单词，拼写和大小写都要与这里一致。把每"
        "个数字单独写入相应的文件，放在日志旁边，文件里不要有别的内容，也不要改动日志。",
    ),
}
_JOBS = {
    "en": ("the lines with {} into {}", "the word {}"),
    "de": ("die Zeilen mit {} in {}", "dem Wort {}"),
    "es": ("las líneas con {} en {}", "la palabra {}"),
    "zh": ("含有{}的行数写入 {}", "单词 {}"),
}
"""Words for one number, and for one word of its condition, by language."""


@dataclass(frozen=True, slots=True)
class _Job:
    """One number: the words that its lines have, the first in capitals, and its file."""

    words: tuple[str, ...]
    answer: str

    def said(self, language: str) -> str:
        whole, word = _JOBS[language]
        return whole.format(sentence((word.format(f'"{one}"') for one in self.words), language), self.answer)

    def command(self, logs: list[str], *, whole: str = "w") -> str:
        first, *others = self.words
        return f"grep -h{whole} {first} {' '.join(logs)}" + "".join(f" | grep -w {one}" for one in others)

    def value(self, text: str) -> int:
        return sum(set(self.words) <= set(row.split()) for row in text.splitlines())


def _draft(dice: random.Random, level: int) -> Draft:
    pairs = dice.sample([(word, part) for word in _WORDS for part in _PARTS], _COUNTS[level])
    answers = [f"{name}.txt" for name in dice.sample(_ANSWERS, len(pairs))]
    logs = [f"{name}.log" for name in dice.sample(_SERVICES, _FILES[level])]
    texts = {name: _log(dice, _LINES[level], pairs) for name in logs}
    jobs = [
        _Job(pair if level >= 3 else pair[:1], answer) for pair, answer in zip(pairs, answers, strict=True)
    ]
    last = jobs[-1]
    begin = [step for job in jobs[:-1] for step in _count(job.command(logs), job.answer)]
    oracle = [*begin, *_count(last.command(logs), last.answer), DONE]
    near = {"parts of words counted": [*begin, *_count(last.command(logs, whole=""), last.answer), DONE]}
    if len(last.words) > 1:
        wide = _Job(last.words[:1], last.answer)
        near["one condition forgotten"] = [*begin, *_count(wide.command(logs), last.answer), DONE]
    if len(logs) > 1:
        near["one log forgotten"] = [*begin, *_count(last.command(logs[:1]), last.answer), DONE]
    if begin:
        near["one forgotten"] = [*begin, DONE]
    plain = [line(f"printf %s $({job.command(logs)} | wc -l) > {job.answer}") for job in jobs]
    whole = "".join(texts.values())
    return Draft(
        _WORDINGS,
        {"logs": sentence(logs), "jobs": sentence(job.said("en") for job in jobs), "folder": HOME},
        [upload({f"{HOME}/{name}": text for name, text in texts.items()}), *terminal()],
        every(*(text_check(f"{HOME}/{job.answer}", f"{job.value(whole)}\n") for job in jobs)),
        Ways(oracle, near, right={"no last line end": [*plain, DONE]}),
        changes=[f"{HOME}/{answer}" for answer in answers],
        shown=("folder",),
        translations=_TRANSLATIONS,
        translated={
            language: {
                "logs": sentence(logs, language),
                "jobs": sentence((job.said(language) for job in jobs), language),
            }
            for language in _TRANSLATIONS
        },
    )


def _log(dice: random.Random, lines: int, pairs: list[tuple[str, str]]) -> str:
    """Draw a log in which each line that could be mistaken is there at least once."""
    kinds: list[tuple[str, str]] = []
    for word, part in pairs:
        elsewhere = [other for other in _PARTS if other != part]
        kinds += [(word, part), (word, part), (f"{word}S", part), (f"{word}S", part)]
        kinds += [(word, dice.choice(elsewhere)), (word, dice.choice(elsewhere)), (word.lower(), part)]
    shapes = [shape for word, _ in pairs for shape in (word, f"{word}S", word.lower())]
    while len(kinds) < lines:
        kinds.append((dice.choice((*shapes, *_WORDS)), dice.choice(_PARTS)))
    dice.shuffle(kinds)
    return "".join(f"09:{at // 60:02}:{at % 60:02} {kind} {of} {at}\n" for at, (kind, of) in enumerate(kinds))


def _count(command: str, answer: str) -> Steps:
    return [line(f"{command} | wc -l > {answer}"), line(f"cat {answer}")]


FAMILY = Family("term.count", 4, _draft, ("xfce4-terminal",))
