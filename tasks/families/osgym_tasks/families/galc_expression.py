"""galc.expression: compute an expression with the calculator and copy the result."""

from __future__ import annotations

import random

from osgym_tasks.family import Draft, Family, Steps, Ways
from osgym_tasks.galc import calculator, expression, flat, number_text, press, press_in_order, shown, value
from osgym_tasks.pieces import DONE, key, outputs

_OPERATORS = {1: 2, 2: 3, 3: 4, 4: 6, 5: 8}
_BRACKETS = {1: 0, 2: 1, 3: 1, 4: 2, 5: 3}
_WORDINGS = (
    "Work out {expression} and copy the result to the clipboard. A calculator is open.",
    "Calculate {expression}. Products and quotients go before sums, as usual. Copy the result to the "
    "clipboard.",
    "Please calculate {expression}, and put the result on the clipboard.",
    "I'm filling in a form and need a number: what is {expression}? Put the result on the clipboard, so "
    "that I can paste it.",
    "The carpenter wants to know how much to order, which is {expression}. Could you work it out, by the "
    "usual order of operations, and copy the result to the clipboard?",
    "To check an invoice, I have to know {expression}. Calculate it, please, and leave the answer on the "
    "clipboard.",
)
_TRANSLATIONS = {
    "de": (
        "Für ein Formular brauche ich eine Zahl: Wie viel ist {expression}? Kopiere das Ergebnis in die "
        "Zwischenablage, damit ich es einfügen kann.",
    ),
    "es": (
        "Necesito un número para un formulario: ¿cuánto es {expression}? Copia el resultado al "
        "portapapeles para que pueda pegarlo.",
    ),
    "zh": ("我填表需要一个数：{expression} 等于多少？请把结果复制到剪贴板，我好粘贴。",),
}
_COPY: Steps = [[key("ctrl", "c")], DONE]


def _draft(dice: random.Random, level: int) -> Draft:
    made = expression(dice, _OPERATORS[level], brackets=_BRACKETS[level], decimals=level > 2)
    text = shown(made)
    near = {
        "from left to right": [press_in_order(made), *_COPY],
        "not copied": [press(f"{text}="), DONE],
    }
    if _BRACKETS[level]:
        near["brackets forgotten"] = [press(" ".join(flat(made)) + "="), *_COPY]
    clipboard = ("bash", "-c", r"xsel --clipboard --output | tr -d ' ,\n'")
    return Draft(
        _WORDINGS,
        {"expression": text},
        calculator(),
        outputs({clipboard: number_text(value(made))}),
        Ways([press(f"{text}="), *_COPY], near),
        changes=(),
        translations=_TRANSLATIONS,
    )


FAMILY = Family("galc.expression", 4, _draft, ("galculator",))
