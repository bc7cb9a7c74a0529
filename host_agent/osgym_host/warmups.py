"""Warm-ups: what is done on a template's desktop before it is frozen.

A TOML file beside the definition of the virtual machine (`images/warmups/<name>.toml`), or anywhere:

    format = 1
    why = "What clones of this snapshot are for."
    read = ["/usr/lib/libreoffice/program/*.so"]   # kept in the memory that all clones share

    [[steps]]                                      # as in the `config` of a task
    type = "launch"
    parameters = { command = ["libreoffice", "--calc"] }
"""

from __future__ import annotations

import hashlib
import tomllib
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from osgym_host.images.content_store import NAME
from osgym_host.images.errors import DefinitionError
from osgym_host.tasks.schema import Step, UnknownStep


class _WarmupFile(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)

    format: Literal[1]
    why: str = Field(min_length=8)
    read: list[str] = []
    steps: list[Step] = []


@dataclass(frozen=True, slots=True)
class Warmup:
    """One warm-up.

    Attributes:
        name: Name of its file without the ending.
        key: Hash of its file.
        read: Patterns of files of the guest that are read, and so stay in memory.
        steps: Carried out in order, on the desktop.
    """

    name: str
    key: str
    read: tuple[str, ...]
    steps: tuple[Step, ...]


def load_warmup(path: Path) -> Warmup:
    """Read a warm-up.

    Raises:
        DefinitionError: It is not there, or not in the form above.
    """
    try:
        data = path.read_bytes()
        file = _WarmupFile.model_validate(tomllib.loads(data.decode()))
    except (OSError, UnicodeDecodeError, tomllib.TOMLDecodeError, ValidationError) as exc:
        raise DefinitionError(f"{path}: {exc}") from exc
    if not NAME.fullmatch(path.stem):
        raise DefinitionError(f"{path}: not a name: {path.stem!r}")
    unknown = [step.type for step in file.steps if isinstance(step, UnknownStep)]
    if unknown:
        raise DefinitionError(f"{path}: no such setup step: {', '.join(unknown)}")
    return Warmup(path.stem, hashlib.sha256(data).hexdigest(), tuple(file.read), tuple(file.steps))


def find_warmup(name: str, images_folder: Path) -> Warmup | None:
    """Return the warm-up that belongs to a snapshot's name; None when there is none of this name.

    Raises:
        DefinitionError: It is malformed.
    """
    path = images_folder / "warmups" / f"{name}.toml"
    return load_warmup(path) if NAME.fullmatch(name) and path.is_file() else None


__all__ = ["Warmup", "find_warmup", "load_warmup"]
