"""Calibration of an image by `osgym settle calibrate`: a file beside its root file system.

The image itself never changes. A host agent reads the file once, at its start, and gives the same table to
every replica of the image. Nothing is learned while episodes run, so runs are repeatable.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any, Literal

from pydantic import BaseModel, ConfigDict, Field, ValidationError, field_validator

from osgym_host.images.content_store import replace_file
from osgym_host.images.errors import ImageError
from osgym_host.images.store import Image
from osgym_protocol.settle_table import ENVIRONMENT, MAX_HORIZON_MS, MAX_PROGRAMS, ActionKind, parse_table

FILE = "calibration.json"
MAX_FILE_BYTES = 1 << 20
MAX_ROWS = MAX_PROGRAMS * len(ActionKind)


class CalibrationRow(BaseModel):
    """One program and kind of action.

    Attributes:
        program: Name of its process, as the kernel keeps it.
        samples: Number of recorded actions.
        premature_before, premature_after: Number of them after which the screen still changed when `exact`
            had answered, by the image's own horizons and by the chosen ones; both replayed on the same
            recording.
        wait_before_ms, wait_after_ms: Mean wait of `exact`, likewise.
        applied: The chosen horizons are in the table; else the image's own apply, or there are too few
            samples.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    program: str
    kind: ActionKind
    samples: int = Field(ge=0)
    premature_before: int = Field(ge=0)
    premature_after: int = Field(ge=0)
    horizon_ms: float = Field(ge=0, le=MAX_HORIZON_MS)
    change_horizon_ms: float = Field(ge=0, le=MAX_HORIZON_MS)
    wait_before_ms: float = Field(ge=0)
    wait_after_ms: float = Field(ge=0)
    applied: bool


class Calibration(BaseModel):
    """Content of the file; equal recordings give equal files.

    Attributes:
        applications: Explored applications, by the names of the desktop entries.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    format: Literal[1] = 1
    image_digest: str
    applications: list[str]
    rows: list[CalibrationRow] = Field(max_length=MAX_ROWS)
    table: dict[str, Any]

    @field_validator("table")
    @classmethod
    def _check_table(cls, table: dict[str, Any]) -> dict[str, Any]:
        parse_table(table)
        return table

    def environment(self) -> tuple[tuple[str, str], ...]:
        """Return the variables by which a replica gets the table; none for an empty one."""
        if not self.table:
            return ()
        return ((ENVIRONMENT, json.dumps(self.table, sort_keys=True, separators=(",", ":"))),)


def calibration_path(image_folder: Path) -> Path:
    return image_folder / FILE


def read_calibration(image_folder: Path, digest: str) -> Calibration | None:
    """Read the calibration beside an image; None when it was never calibrated.

    Raises:
        ImageError: It cannot be read, is malformed, or is of another image.
    """
    path = calibration_path(image_folder)
    hint = "run osgym settle calibrate again, or remove it with osgym settle forget"
    try:
        with path.open() as file:
            text = file.read(MAX_FILE_BYTES + 1)
        found = Calibration.model_validate_json(text)
    except FileNotFoundError:
        return None
    except (OSError, UnicodeDecodeError, ValidationError) as exc:
        raise ImageError(f"{path} cannot be read: {exc}", hint) from exc
    if found.image_digest != digest:
        raise ImageError(f"{path} belongs to the image {found.image_digest[:16]}", hint)
    return found


def replica_environment(image: object) -> tuple[tuple[str, str], ...]:
    """Return the variables of a replica with the image's calibration; none where there is no calibration.

    Raises:
        ImageError: As `read_calibration`.
    """
    if not isinstance(image, Image):  # a snapshot's sessions run already
        return ()
    found = read_calibration(image.folder, image.digest)
    return found.environment() if found else ()


def write_calibration(path: Path, found: Calibration) -> None:
    """Write the file atomically.

    Raises:
        ImageError: The file cannot be written.
    """
    try:
        replace_file(path, found.model_dump_json(indent=1) + "\n")
    except OSError as exc:
        raise ImageError(f"{path} cannot be written: {exc}", "name another file with --out") from exc


def forget_calibration(image_folder: Path) -> bool:
    path = calibration_path(image_folder)
    there = path.exists()
    path.unlink(missing_ok=True)
    return there
