"""Curriculum: levels that keep success near a target, raised on success and lowered on failure. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from osgym_tasks.contents import Split
from osgym_tasks.family import LEVELS, Instance, dice_of
from osgym_tasks.registry import FAMILIES
from osgym_tasks.sampling import draw, with_levels
from osgym_tasks.splits import levels_of
from osgym_tasks.variation import checked

STEP = 0.25
"""Change of level by an instance whose reward is 1 away from the target: four in a row are a level."""


@dataclass(slots=True)
class _Standing:
    """Position of a family between two levels, both of which are drawn."""

    level: float = 1.0
    seen: int = 0


@dataclass(slots=True)
class Curriculum:
    """Draws instances, family by family, at the level where rewards are near `target`.

    The same calls with the same rewards give the same instances. The state is small and plain, so that it can
    be saved with a checkpoint of the policy (`state`, `load`).

    Attributes:
        families: Names; None means all that have tasks in the split.
        target: Mean reward to keep, between 0 and 1; groups of rollouts learn most near one half.
        split: Split whose tasks are drawn. A level that has none is replaced by the nearest one that has.
        vary: Names in `VARIATIONS` that every instance has.
        language: Language of all instructions, such as `de`.
    """

    families: Sequence[str] | None = None
    target: float = 0.5
    split: Split | str = Split.TRAIN
    seed: int = 0
    vary: Sequence[str] = ()
    language: str = "en"
    _standing: dict[str, _Standing] = field(default_factory=dict)
    _drawn: int = 0

    def __post_init__(self) -> None:
        """Check the attributes.

        Raises:
            ValueError: The target is not between 0 and 1, a split, variation or language is unknown, there is
                no family, or a named one has no task in the split or no wording in the language.
            UnknownFamily: There is no such family.
        """
        if not 0 < self.target < 1:
            raise ValueError(f"target must lie between 0 and 1, not {self.target}")
        self.split = Split(self.split)
        self.vary = checked(self.vary)
        chosen = with_levels(self.families, self.split, language=self.language)
        self._standing = {family.name: _Standing() for family, _ in chosen}

    def next(self) -> Instance:
        """Return the next instance, of a family that was drawn least, at its level."""
        name = min(self._standing, key=lambda one: self._standing[one].seen)
        standing = self._standing[name]
        standing.seen += 1
        family, split = FAMILIES[name], Split(self.split)
        dice = dice_of(f"curriculum:{split}", 1, self.seed, self._drawn)
        self._drawn += 1
        whole = int(standing.level)
        level = whole + (whole < LEVELS[-1] and dice.random() < standing.level - whole)
        level = min(levels_of(family, split), key=lambda one: abs(one - level))
        return draw(family, level, split, dice, self.vary, self.language)

    def report(self, instance: Instance, reward: float | None) -> None:
        """Report the reward of an instance, or the mean of a group.

        None, which no policy earned, changes nothing.

        Only an instance near the family's level moves it: an easy one that is solved proves little.
        """
        standing = self._standing.get(instance.family)
        if reward is None or standing is None or abs(instance.level - standing.level) > 1:
            return
        moved = standing.level + STEP * (reward - self.target) / max(self.target, 1 - self.target)
        standing.level = min(max(moved, float(LEVELS[0])), float(LEVELS[-1]))

    def levels(self) -> dict[str, float]:
        """Return the level of each family."""
        return {name: standing.level for name, standing in self._standing.items()}

    def state(self) -> dict[str, object]:
        """Return the changing state, as JSON."""
        standing = {name: [one.level, one.seen] for name, one in self._standing.items()}
        return {"drawn": self._drawn, "standing": standing}

    def load(self, state: dict[str, object]) -> None:
        """Continue from a `state`; families that it lacks begin at level 1.

        Raises:
            ValueError: It has another form.
        """
        drawn, standing = state.get("drawn"), state.get("standing")
        if not isinstance(drawn, int) or not isinstance(standing, dict):
            raise ValueError("the data is not the state of a curriculum")
        for name, found in standing.items():
            level, seen = found
            if not LEVELS[0] <= level <= LEVELS[-1] or seen < 0:
                raise ValueError(f"{name}: level {level} or count {seen} is out of range")
            if name in self._standing:
                self._standing[name] = _Standing(float(level), int(seen))
        self._drawn = drawn
