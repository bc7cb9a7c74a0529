"""Parts that families of the calculator share: expressions, and the buttons that compute them."""

from __future__ import annotations

import random
from collections.abc import Sequence
from fractions import Fraction
from typing import Any

from osgym_tasks.pieces import launch, place
from osgym_tasks.targets import click

Expression = list[Any]
"""Numbers (as text) or expressions in brackets, with operators between them."""
_OPERATORS = "+-*"


def calculator() -> list[dict[str, Any]]:
    """Return set-up steps that open the calculator."""
    return [*launch("galculator", "galculator"), *place("galculator.Galculator", 600, 300, 300, 330)]


def expression(
    dice: random.Random, operators: int, *, brackets: int = 0, decimals: bool = False
) -> Expression:
    """Draw an expression of at most four decimals, whose value from left to right would be another."""
    while True:
        made = _drawn(dice, operators, brackets, decimals)
        result, wrong = value(made), [value_in_order(flat(made))]
        if brackets:
            wrong.append(value(flat(made)))
        if (result * 10**4).denominator == 1 and abs(result) < 10**7 and result not in wrong:
            return made


def _drawn(dice: random.Random, operators: int, brackets: int, decimals: bool) -> Expression:
    def number() -> str:
        return (
            f"{dice.randrange(11, 400) / 10}"
            if decimals and dice.random() < 0.3
            else str(dice.randrange(2, 100))
        )

    made: Expression = []
    inside = set(dice.sample(range(operators + 1 - brackets), brackets))
    for place_ in range(operators + 1 - brackets):
        term: Any = [number(), dice.choice("+-"), number()] if place_ in inside else number()
        operator = dice.choice(_OPERATORS)
        if place_ not in inside and dice.random() < 0.2:
            operator, term = "/", dice.choice(("2", "4", "5", "8"))
        made += [operator, term] if made else [term]
    return made


def value(made: Expression) -> Fraction:
    """Return the value: brackets first, then products and quotients."""
    terms, total, sign = [_term(term) for term in made[::2]], Fraction(0), 1
    product = terms[0]
    for operator, term in zip(made[1::2], terms[1:], strict=True):
        if operator in "+-":
            total, sign, product = total + sign * product, 1 if operator == "+" else -1, term
        else:
            product = product * term if operator == "*" else product / term
    return total + sign * product


def _term(term: Any) -> Fraction:
    return value(term) if isinstance(term, list) else Fraction(term)


def value_in_order(tokens: Sequence[str]) -> Fraction:
    """Return the value of numbers and operators that are computed one after another."""
    total = Fraction(tokens[0])
    for operator, number in zip(tokens[1::2], tokens[2::2], strict=True):
        total = value([str(total), operator, number])
    return total


def flat(made: Expression) -> list[str]:
    """Return its numbers and operators, without brackets."""
    return [one for term in made for one in (flat(term) if isinstance(term, list) else [term])]


def shown(made: Expression) -> str:
    """Return the expression as people write it: `12 + (3 - 4) * 5`."""
    return " ".join(f"({shown(one)})" if isinstance(one, list) else one for one in made)


def number_text(number: Fraction) -> str:
    """Return the number as the calculator shows it, with four decimals at most."""
    text = f"{float(number):.4f}".rstrip("0").rstrip(".")
    return "0" if text == "-0" else text


def press(text: str) -> list[dict[str, Any]]:
    """Return a step that clicks the calculator's buttons.

    Keys that come faster than its buttons blink are lost, so nothing is typed.
    """
    return [click("toggle-button", sign) for sign in text.replace(" ", "")]


def press_in_order(made: Expression) -> list[dict[str, Any]]:
    """Compute it from left to right, with the result of each operation before the next."""
    first, *rest = flat(made)
    return press(
        first + "".join(f"{sign}{number}=" for sign, number in zip(rest[::2], rest[1::2], strict=True))
    )
