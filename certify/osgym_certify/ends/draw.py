"""Draws of places to change, from a generator that each kind of change has for itself."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterable
from typing import TypeVar

_T = TypeVar("_T")

Dice = Callable[[str], random.Random]
"""Function that returns the generator of a name: what one name draws does not change what another draws."""


def by_name(dice: random.Random) -> Dice:
    """Return generators by name that depend on the next number of a generator."""
    seed = dice.getrandbits(64)
    return lambda name: random.Random(f"{seed} {name}")  # noqa: S311 - draws places, no secrets


def few(candidates: Iterable[_T], dice: random.Random, most: int = 1) -> list[_T]:
    """Return candidates drawn without repetition: ``most`` of them, or all if they are fewer."""
    given = list(candidates)
    return dice.sample(given, min(len(given), most))
