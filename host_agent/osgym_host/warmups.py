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

import asyncio
import hashlib
import shlex
import tempfile
import tomllib
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from osgym_host.core.warm_apps import parse_warm_apps
from osgym_host.guest_client import GuestClient
from osgym_host.images.content_store import NAME
from osgym_host.images.errors import DefinitionError
from osgym_host.replicas.warming import open_app
from osgym_host.tasks.context import TaskContext
from osgym_host.tasks.downloads import DownloadCache
from osgym_host.tasks.policy import TaskPolicy
from osgym_host.tasks.sandbox import Sandbox
from osgym_host.tasks.schema import Step, UnknownStep
from osgym_host.tasks.setup import run_steps

OPEN_TIMEOUT_S = 600.0
"""For a program under emulation on a busy machine."""
READ_TIMEOUT_S = 300.0
WARMUP_TIMEOUT_S = 900.0


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
        read: Patterns of files of the guest that are read, and so stay in memory.
        steps: Carried out in order, on the desktop.
    """

    name: str
    key: str
    read: tuple[str, ...]
    steps: tuple[Step, ...]


@dataclass(frozen=True, slots=True)
class Preparation:
    """Warm-up of a desktop, and the programs that are opened on it afterwards."""

    warmup: Warmup | None = None
    warm_apps: tuple[str, ...] = ()

    @property
    def name(self) -> str:
        """Name of the warm-up, empty without one."""
        return "" if self.warmup is None else self.warmup.name

    @property
    def key(self) -> str:
        """Hash of the warm-up, empty without one."""
        return "" if self.warmup is None else self.warmup.key

    async def carry_out(
        self, guest: GuestClient, screen: tuple[int, int], enter: Callable[[str, str], None]
    ) -> None:
        """Warm the desktop up and open the programs.

        Raises:
            GuestError: The guest agent does not answer, or refuses.
            TaskError: A step failed.
        """
        if self.warmup is not None:
            enter("warmup", self.warmup.name)
            await _warm_up(self.warmup, guest, screen)
        for app in parse_warm_apps(self.warm_apps):
            enter("open", app.program.name)
            await open_app(guest, app, OPEN_TIMEOUT_S)


async def _warm_up(warmup: Warmup, guest: GuestClient, screen: tuple[int, int]) -> None:
    if warmup.read:
        # Unmatched patterns stay as they are, and cat complains; that is no failure.
        patterns = " ".join(_quoted_pattern(pattern) for pattern in warmup.read)
        script = f"cat -- {patterns} >/dev/null 2>&1; true"
        await guest.run_bash_script(script, run_timeout_s=READ_TIMEOUT_S)
    with tempfile.TemporaryDirectory(prefix="osgym-warmup-") as scratch:
        policy = TaskPolicy(allow_downloads=False)
        async with Sandbox() as sandbox:
            downloads = DownloadCache(Path(scratch), policy)
            context = TaskContext(Path(scratch), policy, downloads, sandbox, screen)
            deadline = asyncio.get_running_loop().time() + WARMUP_TIMEOUT_S
            await run_steps(warmup.steps, warmup.name, guest, context, deadline, phase="warmup")
    await guest.ready(timeout_s=60.0)


def _quoted_pattern(pattern: str) -> str:
    """Quote a pattern for the guest's shell, but for its wildcards."""
    return "".join(part if part in "*?" else shlex.quote(part) for part in pattern)


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
        raise DefinitionError(f"{path}: the file's name is not a valid name: {path.stem!r}")
    unknown = [step.type for step in file.steps if isinstance(step, UnknownStep)]
    if unknown:
        raise DefinitionError(f"{path}: unknown setup steps: {', '.join(unknown)}")
    return Warmup(path.stem, hashlib.sha256(data).hexdigest(), tuple(file.read), tuple(file.steps))


def find_warmup(name: str, images_folder: Path) -> Warmup | None:
    """Return the warm-up that belongs to a snapshot's name; None when there is none of this name.

    Raises:
        DefinitionError: It is malformed.
    """
    path = images_folder / "warmups" / f"{name}.toml"
    return load_warmup(path) if NAME.fullmatch(name) and path.is_file() else None
