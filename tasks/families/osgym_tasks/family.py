"""Families of tasks: from a seed and a level to a task, its oracle and its near misses.

Pure: the same family, version, seed and level give the same bytes on every machine.
"""

from __future__ import annotations

import hashlib
import json
import random
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from osgym_tasks import kept
from osgym_tasks.pieces import without_last_wait
from osgym_tasks.variation import checked, varied

LEVELS = (1, 2, 3, 4, 5)
LANGUAGES = ("en", "de", "es", "zh")
"""Languages of instructions. Every family has English wordings, and many have the others."""
MIN_WORDINGS = 6
Steps = list[list[dict[str, Any]]]
"""Steps to play: lists of internal actions, each list one step."""


@dataclass(frozen=True, slots=True)
class Ways:
    """Steps that prove an instance.

    Attributes:
        oracle: Steps that earn 1.0.
        near: Near misses by name, plausible and wrong: each earns 0.0.
        right: Other ways to solve it by name: each earns 1.0.
        part: Ways to solve some of it by name, each with the reward between 0 and 1 that it earns.
        spoilt: Shell commands by name: after a set-up that each ends, the oracle earns 0.0.
    """

    oracle: Steps
    near: Mapping[str, Steps]
    right: Mapping[str, Steps] = field(default_factory=dict)
    part: Mapping[str, tuple[Steps, float]] = field(default_factory=dict)
    spoilt: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Draft:
    """Content of an instance, made by a family's module; `Family.make` turns it into a task.

    Attributes:
        wordings: English templates of `str.format` over the names in `named`, at least six.
        named: Values that the evaluator checks, as the instruction must have them.
        shown: Names in `named` whose values the first screen shows. A wording may leave them out; it has all
            others.
        translations: Templates like `wordings`, by language.
        translated: Values by name, by language, that replace English words of `named` in a translation.
        config: Set-up steps in OSWorld's format.
        evaluator: Evaluator in OSWorld's format.
        changes: Absolute paths that the task may change, each with all below it. All else in the home must
            stay as the set-up made it (`osgym_tasks.kept`).
        allows: Reasons why ends of a certificate may earn another reward, by patterns of their names.
    """

    wordings: Sequence[str]
    named: Mapping[str, str]
    config: list[dict[str, Any]]
    evaluator: dict[str, Any]
    ways: Ways
    changes: Sequence[str]
    shown: Collection[str] = ()
    translations: Mapping[str, Sequence[str]] = field(default_factory=dict)
    translated: Mapping[str, Mapping[str, str]] = field(default_factory=dict)
    allows: Mapping[str, str] = field(default_factory=dict)

    @property
    def content(self) -> dict[str, str]:
        """Values that all wordings name: all but those that the first screen shows."""
        return {name: value for name, value in self.named.items() if name not in self.shown}

    def templates(self, language: str) -> Sequence[str]:
        """Return the wordings in a language; none if the family lacks it."""
        return self.wordings if language == "en" else self.translations.get(language, ())


@dataclass(frozen=True, slots=True)
class Instance:
    """One task of a family.

    Attributes:
        named: Values that all wordings name, in English (`Draft.content`).
        said: Values that the instruction has literally, in its language.
        vary: Names of its variations.
        task: Task in OSWorld's format, with the files that it uploads inside.
    """

    family: str
    seed: int
    level: int
    named: Mapping[str, str] = field(repr=False)
    said: Mapping[str, str] = field(repr=False)
    task: dict[str, Any] = field(repr=False)
    ways: Ways = field(repr=False)
    vary: tuple[str, ...] = ()

    @property
    def name(self) -> str:
        """Unique name, which is safe in a path."""
        return str(self.task["id"])

    def write(self, folder: Path) -> Path:
        """Write the task and its oracle as files that `osgym task run` plays; return the task's path.

        The first of its near misses is `near`, the others are `wrong`. Each step waits for the final screen
        of the one before.

        Raises:
            OSError: It cannot be written.
        """
        folder.mkdir(parents=True, exist_ok=True)
        path = folder / f"{self.name}.json"
        path.write_text(json.dumps(self.task, indent=2, sort_keys=True) + "\n", encoding="utf-8")
        (name, near), *others = self.ways.near.items()
        beside = {
            "notes": f"near: {name}",
            "oracle": _certain(self.ways.oracle),
            "near": _certain(near),
            "wrong": {way: _certain(steps) for way, steps in others},
            "right": {way: _certain(steps) for way, steps in self.ways.right.items()},
        }
        path.with_suffix(".oracle.json").write_text(json.dumps(beside, indent=2) + "\n", encoding="utf-8")
        return path


def _certain(steps: Steps) -> list[dict[str, Any]]:
    return [{"actions": without_last_wait(step), "settle": "certain"} for step in steps]


@dataclass(frozen=True, slots=True)
class Family:
    """A kind of task.

    Attributes:
        name: ``group.what``.
        version: Number that is raised with every change of the output; the same seed means another task then.
        draft: Makes the content of an instance from its own random generator and the level, 1 to 5.
        apps: Applications that the image must have.
        flavor: Smallest golden image that has them.
        fixed: Variations that it never has, since they would change what it checks.
    """

    name: str
    version: int
    draft: Callable[[random.Random, int], Draft] = field(repr=False)
    apps: tuple[str, ...]
    flavor: str = "small"
    fixed: tuple[str, ...] = ()

    @property
    def languages(self) -> tuple[str, ...]:
        """Languages in which the family has wordings."""
        draft = self.draft(dice_of(self.name, self.version, 0, LEVELS[0]), LEVELS[0])
        return tuple(language for language in LANGUAGES if draft.templates(language))

    def make(
        self,
        seed: int,
        level: int,
        *,
        wording: int | None = None,
        vary: Iterable[str] = (),
        language: str = "en",
    ) -> Instance:
        """Make the instance of a seed and a level.

        Args:
            seed: Seed, not negative.
            level: 1 to 5.
            wording: Number of the template; None leaves it to the seed.
            vary: Names in `osgym_tasks.variation.VARIATIONS`; those that are `fixed` are left out. The check
                and the solution stay the same.
            language: Language of the instruction, one of `languages`. Files, check and solution stay the
                same.

        Raises:
            ValueError: The seed or the level is out of range, a wording or variation is unknown, or the
                family has no wording in that language.
        """
        chosen, made = self._drawn(seed, level)
        templates = made.templates(language)
        if not templates:
            raise ValueError(f"{self.name} has no wording in {language[:20]!r}; it has {self.languages}")
        if wording is not None and not 0 <= wording < len(templates):
            raise ValueError(f"wording must be 0 to {len(templates) - 1} in {self.name}, not {wording}")
        template = templates[chosen % len(templates) if wording is None else wording]
        values = {**made.named, **made.translated.get(language, {})}
        said = {name: value for name, value in values.items() if f"{{{name}}}" in template}
        chosen_variations = tuple(name for name in checked(vary) if name not in self.fixed)
        marks = [*([] if language == "en" else [language]), *chosen_variations]
        task = {
            "id": f"{self.name.replace('.', '-')}-v{self.version}-l{level}-s{seed}"
            + "".join(f"-{mark}" for mark in marks),
            "snapshot": self.apps[0],
            "instruction": template.format(**said),
            "source": "osgym_tasks",
            "config": made.config,
            "related_apps": list(self.apps),
            "evaluator": made.evaluator,
            "osgym": {"flavor": self.flavor, "apps": list(self.apps), "reach": False, **_allowed(made)},
        }
        task = varied(
            task,
            tuple(said.values()),
            chosen_variations,
            lambda name: dice_of(f"{self.name}:{name}", self.version, seed, level),
        )
        task = kept.recorded(task, made.changes)
        ways = replace(made.ways, spoilt={**made.ways.spoilt, kept.LOST: kept.LOSE})
        return Instance(self.name, seed, level, made.content, said, task, ways, chosen_variations)

    def named(self, seed: int, level: int) -> Mapping[str, str]:
        """Return the values that all wordings of an instance name, without making its task.

        Raises:
            ValueError: The seed or the level is out of range.
        """
        return self._drawn(seed, level)[1].content

    def actions(self, seed: int, level: int) -> int:
        """Return the number of actions of an instance's oracle; waits do not count.

        Raises:
            ValueError: The seed or the level is out of range.
        """
        return count_actions(self._drawn(seed, level)[1].ways.oracle)

    def _drawn(self, seed: int, level: int) -> tuple[int, Draft]:
        """Return the number that chooses the wording, and the content."""
        if seed < 0:
            raise ValueError(f"seed must be 0 or more, not {seed}")
        if level not in LEVELS:
            raise ValueError(f"level must be one of {LEVELS}, not {level}")
        dice = dice_of(self.name, self.version, seed, level)
        chosen = dice.randrange(1 << 30)
        return chosen, self.draft(dice, level)


def count_actions(steps: Steps) -> int:
    """Return the number of actions in steps; waits do not count."""
    return sum(action["op"] != "wait" for step in steps for action in step)


def dice_of(family: str, version: int, seed: int, level: int) -> random.Random:
    """Return the random generator of one instance, which nothing else uses."""
    key = json.dumps([family, version, seed, level]).encode()
    return random.Random(int.from_bytes(hashlib.sha256(key).digest()))  # noqa: S311 - dice


def _allowed(made: Draft) -> dict[str, Any]:
    ends = [{"end": end, "why": why} for end, why in made.allows.items()]
    return {"allows": ends} if ends else {}
