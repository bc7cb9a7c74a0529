"""Documentation of all settings."""

from __future__ import annotations

from pydantic import BaseModel

from osgym_host.runtime_registry import load_runtime_kind, runtime_names
from osgym_host.settings.model import Settings
from osgym_host.settings.sources import variable


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
