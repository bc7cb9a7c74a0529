"""Where settings come from, and what is said of one that is unknown or wrong."""

from __future__ import annotations

import difflib
import logging
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import yaml
from pydantic import ValidationError

from osgym_host.errors import OsgymHostError
from osgym_host.settings.model import Settings

log = logging.getLogger(__name__)

PREFIX = "OSGYM_"
MISSPELT = 0.75
"""Likeness to a setting (`difflib`'s ratio) from which an unknown variable is taken for a misspelt one."""
FOREIGN_PREFIXES = ("OSGYM_TEST_", "OSGYM_BENCH_", "OSGYM_DEMO_", "OSGYM_SETTLE", "OSGYM_SERVICE_")
"""Variables of other parts of the project, and of orchestrators; they are not settings of the service."""
FOREIGN = frozenset(
    (
        "OSGYM_HOSTS",
        "OSGYM_CA",
        "OSGYM_PROXY",
        "OSGYM_IMAGES_DIR",
        "OSGYM_GUEST_DIR",
        "OSGYM_STATE_DIR",
        "OSGYM_OSWORLD_TASKS",
        "OSGYM_SCREEN",
        "OSGYM_REPLICA_ID",
        "OSGYM_GENERATION",
        "OSGYM_FBDIR",
    )
)


class SettingsError(OsgymHostError):
    """A setting is unknown or wrong; the message names it, where it stands and what is allowed."""


def load(
    file: Path | None = None,
    environment: Mapping[str, str] | None = None,
    flags: Mapping[str, Any] | None = None,
) -> Settings:
    """Read the settings from all sources.

    Args:
        file: A YAML file; None: no file.
        environment: Variables; those that start with `OSGYM_` count.
        flags: What the command line set; None values do not count.

    Raises:
        SettingsError: A key is unknown (a variable: misspelt), a value is wrong, or the file cannot be
            read.
    """
    values: dict[str, Any] = {}
    origin: dict[str, str] = {}
    for source, found in (
        (str(file), _from_file(file) if file is not None else {}),
        ("environment", _from_environment(environment or {})),
        ("command line", {k: v for k, v in (flags or {}).items() if v is not None}),
    ):
        for key, value in found.items():
            if key not in Settings.model_fields:
                if source == "environment" and not _similar(key, MISSPELT):
                    log.warning("%s is not a setting of the host agent: ignored", PREFIX + key.upper())
                    continue
                raise SettingsError(f"unknown setting {_shown(source, key)}{_near(key)} ({source})")
            values[key] = value
            origin[key] = source
    try:
        return Settings(**values)
    except ValidationError as error:
        raise SettingsError(_explain(error, origin)) from error


def _from_file(file: Path) -> dict[str, Any]:
    try:
        loaded = yaml.safe_load(file.read_text(encoding="utf-8"))
    except (OSError, yaml.YAMLError, UnicodeDecodeError) as error:
        raise SettingsError(f"cannot read {file}: {error}") from error
    if loaded is None:
        return {}
    if not isinstance(loaded, dict):
        raise SettingsError(f"{file}: must be `key: value` lines")
    return {str(key): value for key, value in loaded.items()}


def _from_environment(environment: Mapping[str, str]) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for name, value in environment.items():
        if not name.startswith(PREFIX) or name in FOREIGN or name.startswith(FOREIGN_PREFIXES):
            continue
        if value != "":
            found[name[len(PREFIX) :].lower()] = value
    return found


def _shown(source: str, key: str) -> str:
    return PREFIX + key.upper() if source == "environment" else key


def _similar(key: str, cutoff: float) -> list[str]:
    return difflib.get_close_matches(key, list(Settings.model_fields), n=3, cutoff=cutoff)


def _near(key: str) -> str:
    near = _similar(key, 0.6)
    return f"; did you mean {' or '.join(near)}?" if near else ""


def _explain(error: ValidationError, origin: Mapping[str, str]) -> str:
    parts = []
    for problem in error.errors(include_url=False, include_input=False):
        key = str(problem["loc"][0]) if problem["loc"] else ""
        where = f" ({origin[key]})" if key in origin else ""
        text = problem["msg"].removeprefix("Value error, ")
        parts.append(f"{key}: {text}{where}" if key else text)
    return "; ".join(parts)
