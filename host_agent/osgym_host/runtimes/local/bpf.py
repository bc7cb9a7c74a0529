"""Assembler for classic BPF programs with labels. Pure."""

from __future__ import annotations

import struct
from dataclasses import dataclass

_LD_W_ABS = 0x20
_JEQ = 0x15
_JGE = 0x35
_AND = 0x54
_RET = 0x06
_FARTHEST_JUMP = 255


@dataclass(frozen=True)
class _Instruction:
    code: int
    value: int
    if_true: str = ""
    if_false: str = ""


class Program:
    """Instructions in order. Jumps go forward, to labels that are unique."""

    def __init__(self) -> None:
        self._instructions: list[_Instruction] = []
        self._labels: dict[str, int] = {}

    def label(self, name: str) -> None:
        if name in self._labels:
            raise ValueError(f"the label {name!r} is there already")
        self._labels[name] = len(self._instructions)

    def load(self, offset: int) -> None:
        self._instructions.append(_Instruction(_LD_W_ABS, offset))

    def keep_bits(self, mask: int) -> None:
        """Clear all other bits of the loaded word."""
        self._instructions.append(_Instruction(_AND, mask))

    def answer(self, value: int) -> None:
        self._instructions.append(_Instruction(_RET, value))

    def jump_if_equal(self, value: int, label: str) -> None:
        self._instructions.append(_Instruction(_JEQ, value, if_true=label))

    def jump_unless_equal(self, value: int, label: str) -> None:
        self._instructions.append(_Instruction(_JEQ, value, if_false=label))

    def jump_if_less(self, value: int, label: str) -> None:
        """Go to the label if the loaded word is less, unsigned."""
        self._instructions.append(_Instruction(_JGE, value, if_false=label))

    def assemble(self) -> bytes:
        """Return instructions of struct sock_filter, 8 bytes each.

        Raises:
            KeyError: A label is missing.
            ValueError: A jump goes backward or too far.
        """
        return b"".join(
            struct.pack(
                "<HBBI",
                one.code,
                self._distance(at, one.if_true),
                self._distance(at, one.if_false),
                one.value,
            )
            for at, one in enumerate(self._instructions)
        )

    def _distance(self, at: int, label: str) -> int:
        if not label:
            return 0
        distance = self._labels[label] - at - 1
        if not 0 <= distance <= _FARTHEST_JUMP:
            raise ValueError(f"the jump to {label!r} is {distance} instructions long")
        return distance
