"""The result of one check."""

from __future__ import annotations

import enum
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any


class Status(enum.StrEnum):
    """How a check came out."""

    OK = "ok"
    WARN = "warn"  # works, but something is lost; or an option is not there
    MISSING = "missing"


@dataclass(frozen=True, slots=True)
class Finding:
    """One row of the table.

    Attributes:
        name: What was checked, stable.
        found: What is the case, one sentence.
        remedy: What to do about it; empty when nothing is to be done.
        needed: The local runtime cannot run without it.
        facts: The same for machines.
    """

    name: str
    status: Status
    found: str
    remedy: str = ""
    needed: bool = False
    facts: dict[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class DoctorContext:
    """What checks are told.

    Attributes:
        data_dir: Where images and replicas are (to be).
        replicas: How many replicas the limits are held against.
        kernel: Kernel to boot in a virtual machine; None: one of /boot.
        deep: Also boot virtual machines.
    """

    data_dir: Path
    replicas: int
    kernel: Path | None = None
    deep: bool = True


Check = Callable[[DoctorContext], Awaitable[list[Finding]]]
Checks = tuple[tuple[str, Check], ...]
"""Checks with their names, which are unique among all."""
