"""Policies without a model, which measure what a task gives away: nothing, random, random by keyboard only.

Their reward is a property of the families: a policy that learns nothing must earn next to nothing. Pure.
"""

from __future__ import annotations

import math
import random
import string
from collections.abc import Iterable
from dataclasses import dataclass
from enum import StrEnum
from statistics import mean
from typing import Any

from osgym_tasks.family import Instance, Steps, dice_of
from osgym_tasks.pieces import DONE, key
from osgym_tasks.record import BASELINE, Outcome
from osgym_tasks.verify import Trial, nothing_in

SUSPICIOUS = 0.05
"""Mean reward above which a family pays for chance."""
PER_STEP = 25
_SCREEN_PX = (1920, 1080)
_Z = 1.959964
_PLAIN = (
    *string.ascii_lowercase,
    *string.digits,
    *("enter", "enter", "escape", "tab", "tab", "space", "up", "down", "left", "right", "home", "end"),
    *("pageup", "pagedown", "delete", "backspace", "f2", "f5", "f10"),
)


class Chance(StrEnum):
    """A policy without a model."""

    NOTHING = "nothing"
    RANDOM = "random"
    KEYBOARD = "keyboard"


def baseline_of(instance: Instance, policy: Chance, actions: int) -> Trial:
    """Return the trial of a policy in an instance; its actions are the same each time.

    Args:
        actions: Number of actions; ignored by `nothing`.
    """
    way = policy.value if policy is Chance.NOTHING else f"{policy} {actions}"
    dice = dice_of(f"{BASELINE}{way}", 1, instance.seed, instance.level)
    dice.seed(f"{instance.name}:{dice.random()}")
    made = {Chance.RANDOM: _any, Chance.KEYBOARD: _press}.get(policy)
    if made is None:
        return nothing_in(instance, f"{BASELINE}{way}")
    steps = in_steps([made(dice) for _ in range(actions)])
    return Trial(instance, f"{BASELINE}{way}", [*steps, DONE], 0.0, patient=False)


def in_steps(actions: list[dict[str, Any]]) -> Steps:
    return [actions[at : at + PER_STEP] for at in range(0, len(actions), PER_STEP)]


def _press(dice: random.Random) -> dict[str, Any]:
    """Return a key, a line of letters, or a shortcut."""
    kind = dice.random()
    if kind < 0.15:
        text = "".join(dice.choices(string.ascii_letters + string.digits + " .-=", k=dice.randint(1, 16)))
        return {"op": "type", "text": text, "press_enter": dice.random() < 0.3}
    if kind < 0.4:
        return key(*dice.choice((("ctrl",), ("alt",), ("shift",), ("ctrl", "shift"))), dice.choice(_PLAIN))
    return key(dice.choice(_PLAIN))


def _any(dice: random.Random) -> dict[str, Any]:
    kind = dice.random()
    x, y = dice.randrange(_SCREEN_PX[0]), dice.randrange(_SCREEN_PX[1])
    if kind < 0.45:
        button = "right" if dice.random() < 0.1 else "left"
        return {"op": "click", "x": x, "y": y, "button": button, "count": 2 if dice.random() < 0.2 else 1}
    if kind < 0.52:
        return {"op": "scroll", "x": x, "y": y, "dy": dice.choice((-5, 5))}
    if kind < 0.58:
        return {
            "op": "drag",
            "path": [[x, y], [dice.randrange(_SCREEN_PX[0]), dice.randrange(_SCREEN_PX[1])]],
        }
    return _press(dice)


@dataclass(frozen=True, slots=True)
class Earned:
    """Rewards of a policy in a family.

    Attributes:
        low, high: 95 % interval of the mean, by Wilson's formula; rewards between 0 and 1 only narrow it.
    """

    family: str
    policy: str
    episodes: int
    mean: float
    low: float
    high: float

    @property
    def is_suspicious(self) -> bool:
        """Whether chance earns more than next to nothing."""
        return self.mean > SUSPICIOUS


def earned(outcomes: Iterable[Outcome]) -> list[Earned]:
    """Return the rewards of baselines, by family and policy."""
    rewards: dict[tuple[str, str], list[float]] = {}
    for one in outcomes:
        if one.is_baseline and one.reward is not None:
            rewards.setdefault((one.family, one.way.removeprefix(BASELINE)), []).append(one.reward)
    return [
        Earned(family, policy, len(values), mean(values), *wilson(mean(values), len(values)))
        for (family, policy), values in sorted(rewards.items())
    ]


def wilson(share: float, n: int) -> tuple[float, float]:
    z2 = _Z * _Z
    centre = (share + z2 / (2 * n)) / (1 + z2 / n)
    reach = _Z / (1 + z2 / n) * math.sqrt(share * (1 - share) / n + z2 / (4 * n * n))
    return max(0.0, centre - reach), min(1.0, centre + reach)
