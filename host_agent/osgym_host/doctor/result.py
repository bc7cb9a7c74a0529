"""Result of one check."""

from __future__ import annotations

import enum
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any


class Status(enum.StrEnum):
    OK = "ok"
    WARN = "warn"  # works, but something is lost; or an option is not there
    MISSING = "missing"


@dataclass(frozen=True, slots=True)
class Finding:
    """One row of the table.

    Attributes:
        remedy: Remedy; empty when nothing is to be done.
        needed: The local runtime cannot run without it.
    """

    name: str
    status: Status
    found: str
    remedy: str = ""
    needed: bool = False
    facts: dict[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class DoctorContext:
    """Context of the checks.

    Attributes:
        data_dir: Folder of images and replicas (which may not exist yet).
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
