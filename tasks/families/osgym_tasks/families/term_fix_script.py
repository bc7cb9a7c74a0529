"""term.fix_script: fix a program that prints statistics of numbers; it is tested on hidden numbers."""

from __future__ import annotations

import random
from dataclasses import dataclass

from osgym_tasks.desk import home, sentence, shell_output, terminal
from osgym_tasks.family import Draft, Family, Steps, Ways
from osgym_tasks.pieces import DONE, every, line, upload


@dataclass(frozen=True, slots=True)
class _Part:
    """A statistic: its description, and its right and wrong computation."""

    said: str
    right: str
    wrong: str

    def value(self, numbers: list[int]) -> int:
        return int(eval(self.right, {"numbers": numbers}))  # noqa: S307 - one of the expressions below

    def fails_on(self, numbers: list[int]) -> bool:
        """Return whether the wrong computation gives another value."""
        return int(eval(self.wrong, {"numbers": numbers})) != self.value(numbers)  # noqa: S307 - as above


_PARTS = (
    _Part("how many numbers there are", "len(numbers)", "len(numbers) - 1"),
    _Part("the sum of the numbers", "sum(numbers)", "sum(numbers[1:])"),
    _Part("the largest number", "max(numbers)", "max(numbers, key=abs)"),
    _Part("the smallest number", "min(numbers)", "min(numbers, key=abs)"),
    _Part("how many numbers are even", "sum(n % 2 == 0 for n in numbers)", "sum(n % 2 for n in numbers)"),
    _Part("how many numbers are below zero", "sum(n < 0 for n in numbers)", "sum(n <= 0 for n in numbers)"),
    _Part("how many different numbers there are", "len(set(numbers))", "len(numbers)"),
    _Part("the sum of the squares of the numbers", "sum(n * n for n in numbers)",
          "sum(n * 2 for n in numbers)"),
    _Part("the last number", "numbers[-1]", "numbers[-2]"),
    _Part("the first number", "numbers[0]", "numbers[1]"),
    _Part("the difference between the largest and the smallest number", "max(numbers) - min(numbers)",
          "max(numbers) + min(numbers)"),
    _Part("how many numbers are above ten", "sum(n > 10 for n in numbers)", "sum(n >= 10 for n in numbers)"),
)  # fmt: skip
_COUNT = {1: 2, 2: 4, 3: 5, 4: 7, 5: 9}
_BUGS = {1: 1, 2: 2, 3: 3, 4: 5, 5: 7}
_HIDDEN = ((-30, 4, 10, 4, 0, 21, -7), (10, 10, -3, 0, 55, -41, 6, 2))
_WORDINGS = (
    "The program {program} does not work as it should. Run as python3 {program} FILE, with a file of whole "
    "numbers, one on each line, it should print, each on a line of its own and in this order: {figures}. "
    "Mend it so that it does for every such file of three numbers or more; {sample} is an example, which "
    "must not change.",
    "Please repair {program}: python3 {program} FILE must print for any file with three or more whole "
    "numbers, one on each line, these figures, a line for each, in this order: {figures}. {sample} is such "
    "a file; leave it unchanged.",
    "Something is wrong with {program}. For a file of at least three whole numbers, one on each line, "
    "python3 {program} FILE is to print {figures}, in this order and one to a line. Correct it for all "
    "such files. Try it on {sample}, but do not change that file.",
    "A student sent me {program}, and it gets some figures wrong. Called as python3 {program} FILE, it "
    "should print, one to a line and in this order: {figures}. FILE has three or more whole numbers, one "
    "on each line, such as {sample}. Please mend the program for all such files, and leave the example "
    "alone.",
    "We use {program} every month, and lately nobody believed the result. For any file with at least three "
    "whole numbers, one on each line, python3 {program} FILE has to print {figures}, in this order, each "
    "on a line of its own. Could you find out what is wrong and correct it? {sample} is such a file and "
    "must not change.",
    "I trust {program} no longer. What python3 {program} FILE prints should be {figures}, in this order "
    "and one to a line, whatever three or more whole numbers FILE holds, one on each line. Repair it; to "
    "try it out there is {sample}, which stays as it is.",
)


def _draft(dice: random.Random, level: int) -> Draft:
    parts = dice.sample(_PARTS, _COUNT[level])
    places = sorted(dice.sample(range(len(parts)), _BUGS[level]))
    program = home(f"{dice.choice(('figures', 'report', 'numbers', 'summary'))}.py")
    sample = home(f"{dice.choice(('sample', 'example', 'values', 'readings'))}.txt")
    shown = [dice.randrange(-40, 60) for _ in range(6 + 4 * level)]
    hidden = _hidden(dice, [parts[at] for at in places])
    mend = {at: f"print({parts[at].right})" for at in places}
    cheat = "".join(f"print({part.value(shown)})\\n" for part in parts)
    near = {
        "the example's figures only": [line(f"printf '{cheat}' > {program}"), *_run(program, sample)],
        "another line changed": [*_edit(program, {places[0]: "print(0)"}), *_run(program, sample)],
    }
    if len(places) > 1:
        one = {at: mend[at] for at in places[:-1]}
        near["one mistake left"] = [*_edit(program, one), *_run(program, sample)]
    return Draft(
        _WORDINGS,
        {"program": program, "figures": sentence(part.said for part in parts), "sample": sample},
        [upload({program: _source(parts, places), sample: _lines(shown)}), *terminal()],
        every(
            *(shell_output(_trial(program, one), _figures(parts, one)) for one in (shown, *hidden)),
        ),
        Ways([*_edit(program, mend), *_run(program, sample)], near),
        changes=(program,),
        allows={"text: NUL bytes appended": "the program prints what it has to"},
    )


def _hidden(dice: random.Random, wrong: list[_Part]) -> list[list[int]]:
    """Draw lists of numbers on which each of these mistakes shows."""
    while True:
        made = [[n + dice.choice((0, 60, -60)) for n in one] + list(one) for one in _HIDDEN]
        if all(any(part.fails_on(numbers) for numbers in made) for part in wrong):
            return made


_HEAD = (
    '"""Print figures of the numbers in a file."""\n\nimport sys\n\n'
    "numbers = [int(line) for line in open(sys.argv[1])]\n"
)


def _source(parts: list[_Part], wrong: list[int]) -> str:
    lines = (f"print({part.wrong if at in wrong else part.right})\n" for at, part in enumerate(parts))
    return _HEAD + "".join(lines)


def _lines(numbers: list[int]) -> str:
    return "".join(f"{n}\n" for n in numbers)


def _figures(parts: list[_Part], numbers: list[int]) -> str:
    return _lines([part.value(numbers) for part in parts])


def _trial(program: str, numbers: list[int]) -> str:
    """Return a command that runs the program on hidden numbers."""
    text = _lines(numbers).replace("\n", "\\n")
    return f"f=$(mktemp); printf -- '{text}' > $f; timeout 10 python3 {program} $f; rm -f $f"


def _edit(program: str, news: dict[int, str]) -> Steps:
    """Return a step for each line of the program that is replaced."""
    first = _HEAD.count("\n") + 1
    return [line(f"sed -i '{first + at}s/.*/{text}/' {program}") for at, text in news.items()]


def _run(program: str, sample: str) -> Steps:
    return [line(f"python3 {program} {sample}"), DONE]


FAMILY = Family("term.fix_script", 4, _draft, ("xfce4-terminal",))
