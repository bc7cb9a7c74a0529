"""Sources of the settings, and the errors about unknown or wrong ones."""

from __future__ import annotations

import difflib
import logging
from collections.abc import Mapping
from pathlib import Path
from typing import Any, TypeVar

import yaml
from pydantic import BaseModel, ValidationError

from osgym_host.errors import OsgymHostError
from osgym_host.runtime_registry import DISTRIBUTIONS, how_to_install, load_runtime_kind, runtime_names
from osgym_host.settings.model import Settings
from osgym_protocol.plugins import PluginError

log = logging.getLogger(__name__)

PREFIX = "OSGYM_"
MISSPELT = 0.75
"""Likeness to a setting (`difflib`'s ratio) from which an unknown variable counts as a misspelt one."""
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
_RENAMED = {
    name: f"qemu.{name}"
    for name in ("snapshot", "accel", "parked", "tb_mib", "fork_native", "runner", "network")
}
"""Former names of settings, accepted with a warning until 0.3."""


_Model = TypeVar("_Model", bound=BaseModel)


class SettingsError(OsgymHostError):
    """A setting is unknown or wrong; the message has its name, its source and the allowed values."""


def load(
    file: Path | None = None,
    environment: Mapping[str, str] | None = None,
    flags: Mapping[str, Any] | None = None,
) -> Settings:
    """Read the settings from all sources.

    Args:
        file: YAML file; None: no file.
        environment: Variables; those that start with `OSGYM_` count.
        flags: Options of the command line; None values do not count.

    Raises:
        SettingsError: A key is unknown (a variable: misspelt), a value is wrong, or the file cannot be read.
    """
    known = _KnownSettings()
    values: dict[str, Any] = {}
    origin: dict[str, str] = {}
    for source, found in (
        (str(file), _from_file(file) if file is not None else {}),
        ("environment", _from_environment(environment or {})),
        ("command line", {k: v for k, v in (flags or {}).items() if v is not None}),
    ):
        for given, value in found.items():
            key = _present_name(given, source)
            if key not in known:
                lacking = _lacking_runtime(key)
                if source == "environment" and not lacking and not known.similar(key, MISSPELT):
                    log.warning("%s is not a setting of the host agent: ignored", variable(key))
                    continue
                remedy = lacking or known.near(key)
                raise SettingsError(f"unknown setting {_shown(source, key)}{remedy} ({source})")
            values[key] = value
            origin[key] = source
    return _checked(values, origin)


def _checked(values: Mapping[str, Any], origin: Mapping[str, str]) -> Settings:
    """Make the settings of flat values; those of runtimes have dotted names."""
    given = {key: value for key, value in values.items() if "." not in key}
    own: dict[str, dict[str, Any]] = {}
    for key, value in values.items():
        runtime, dot, name = key.partition(".")
        if dot:
            own.setdefault(runtime, {})[name] = value
    for runtime, fields in own.items():
        given[runtime] = _made(load_runtime_kind(runtime).settings_model, fields, origin, f"{runtime}.")
    return _made(Settings, given, origin)


def _made(
    model: type[_Model], fields: Mapping[str, Any], origin: Mapping[str, str], prefix: str = ""
) -> _Model:
    try:
        return model(**fields)
    except ValidationError as error:
        raise SettingsError(_explain(error, origin, prefix)) from error


class _KnownSettings:
    """Names of all settings. A runtime is imported when one of its settings is given."""

    def __init__(self) -> None:
        self._names = list(Settings.model_fields)
        self._runtimes: set[str] = set()

    def __contains__(self, key: str) -> bool:
        runtime, dot, _ = key.partition(".")
        if dot and runtime in runtime_names() and runtime not in self._runtimes:
            self._runtimes.add(runtime)
            try:
                model = load_runtime_kind(runtime).settings_model
            except PluginError as error:
                raise SettingsError(f"{key}: {error}") from error
            self._names += [f"{runtime}.{name}" for name in model.model_fields]
        return key in self._names

    def similar(self, key: str, cutoff: float) -> list[str]:
        return difflib.get_close_matches(key, self._names, n=3, cutoff=cutoff)

    def near(self, key: str) -> str:
        near = self.similar(key, 0.6)
        return f"; did you mean {' or '.join(near)}?" if near else ""


def _lacking_runtime(key: str) -> str:
    """Return how to install the runtime that a setting belongs to; empty if it is installed or not ours."""
    runtime = key.partition(".")[0]
    remedy = how_to_install(runtime)
    if not remedy or runtime in runtime_names():
        return ""
    return f": the runtime {runtime!r} is not installed; {remedy}"


def _present_name(key: str, source: str) -> str:
    if key not in _RENAMED:
        return key
    log.warning("%s is now called %s (%s)", _shown(source, key), _shown(source, _RENAMED[key]), source)
    return _RENAMED[key]


def _from_file(file: Path) -> dict[str, Any]:
    try:
        loaded = yaml.safe_load(file.read_text(encoding="utf-8"))
    except (OSError, yaml.YAMLError, UnicodeDecodeError) as error:
        raise SettingsError(f"cannot read {file}: {error}") from error
    if loaded is None:
        return {}
    if not isinstance(loaded, dict):
        raise SettingsError(f"{file}: the file must have `key: value` lines")
    found: dict[str, Any] = {}
    for key, value in loaded.items():
        if key in runtime_names() and isinstance(value, dict):
            found |= {f"{key}.{name}": each for name, each in value.items()}
        else:
            found[str(key)] = value
    return found


def _from_environment(environment: Mapping[str, str]) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for name, value in environment.items():
        if not name.startswith(PREFIX) or name in FOREIGN or name.startswith(FOREIGN_PREFIXES):
            continue
        if value != "":
            found[_setting_of(name[len(PREFIX) :].lower())] = value
    return found


def _setting_of(variable_name: str) -> str:
    """Return the setting of a variable's name: `qemu_parked` is `qemu.parked`."""
    if variable_name not in Settings.model_fields:
        for runtime in sorted({*runtime_names(), *DISTRIBUTIONS}, key=len, reverse=True):
            if variable_name.startswith(f"{runtime}_"):
                return f"{runtime}.{variable_name.removeprefix(f'{runtime}_')}"
    return variable_name


def variable(key: str) -> str:
    return PREFIX + key.replace(".", "_").upper()


def _shown(source: str, key: str) -> str:
    return variable(key) if source == "environment" else key


def _explain(error: ValidationError, origin: Mapping[str, str], prefix: str) -> str:
    parts = []
    for problem in error.errors(include_url=False, include_input=False):
        key = f"{prefix}{problem['loc'][0]}" if problem["loc"] else ""
        where = f" ({origin[key]})" if key in origin else ""
        text = problem["msg"].removeprefix("Value error, ")
        parts.append(f"{key}: {text}{where}" if key else text)
    return "; ".join(parts)


def table() -> str:
    """Return the documentation of all settings as Markdown tables (`host_agent/SETTINGS.md`)."""
    parts = [_table_of(Settings)]
    for name in runtime_names():
        own = load_runtime_kind(name).settings_model
        if own.model_fields:
            parts.append(f"## Settings of the runtime `{name}`\n\n{_table_of(own, f'{name}.')}")
    return "\n".join(parts)


def _table_of(model: type[BaseModel], prefix: str = "") -> str:
    rows = ["| setting | variable | default | what |", "|---|---|---|---|"]
    for field_name, field in model.model_fields.items():
        name = prefix + field_name
        default = "" if field.default_factory is not None else _plain(field.default)
        rows.append(f"| `{name}` | `{variable(name)}` | {default} | {field.description} |")
    return "\n".join(rows) + "\n"


def _plain(value: object) -> str:
    if value is None or value == []:
        return "none"
    if isinstance(value, list):
        return "`" + ",".join(map(str, value)) + "`"
    if isinstance(value, tuple):
        return "`" + "x".join(map(str, value)) + "`"
    if isinstance(value, bool):
        return f"`{str(value).lower()}`"
    return f"`{value}`"
