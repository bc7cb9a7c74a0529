"""Results of an import: a task for each original, perhaps with something missing, or why it was refused."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from enum import StrEnum
from pathlib import Path
from typing import Any, Literal

from osgym_cli.task.imports.source import SourceError, SourceFolder


class Outcome(StrEnum):
    CONVERTED = "converted"
    INCOMPLETE = "something missing"
    REFUSED = "refused"


class Change(StrEnum):
    """Changes of the folder of task files."""

    WRITTEN = "written"
    UPDATED = "updated"
    UNCHANGED = "unchanged"


@dataclass(frozen=True, slots=True)
class ImportOptions:
    """Choices of the user.

    Attributes:
        flavor: Golden image that converted tasks ask for, unless their original says so.
        verifiers: Folder with the verifier programs of OpenComputer, if it is not part of the set.
    """

    flavor: Literal["small", "full"] = "full"
    verifiers: Path | None = None


@dataclass(frozen=True, slots=True)
class Conversion:
    """A task made of an original, before it is checked and written.

    Attributes:
        original_id: Id in the original's set.
        group: Folder of its task file, e.g. the application.
        missing: Names of what the original needs and the task lacks.
    """

    task: dict[str, Any] = field(repr=False)
    original_id: str
    group: str
    missing: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Attempt:
    """A conversion that was tried.

    Attributes:
        place: Name of the original in its set.
        digest: SHA-256 of the original's files.
        refusal: Reason for which there is no conversion; empty if there is one.
    """

    place: str
    digest: str
    conversion: Conversion | None = None
    refusal: str = ""


@dataclass(frozen=True, slots=True)
class Row:
    """One row of the report.

    Attributes:
        file: Path of the task file; None for a refusal.
        missing: Names of what is missing.
        to_fetch: Addresses of files that a host fetches once.
        reason: Reason of a refusal.
    """

    place: str
    outcome: Outcome
    original_id: str | None = None
    file: str | None = None
    change: Change | None = None
    missing: tuple[str, ...] = ()
    to_fetch: tuple[str, ...] = ()
    reason: str = ""


def attempts(
    source: SourceFolder, places: list[str], convert: Callable[[str], Conversion]
) -> Iterator[Attempt]:
    """Yield the conversion of each place; ``convert(place)`` raises `SourceError` to refuse one."""
    for place in places:
        source.begin()
        try:
            conversion = convert(place)
        except SourceError as error:
            yield Attempt(place, source.digest(), refusal=str(error))
        else:
            yield Attempt(place, source.digest(), conversion)
