"""The documentation of all settings."""

from __future__ import annotations

from osgym_host.settings.model import Settings
from osgym_host.settings.sources import PREFIX


def table() -> str:
    """Return the documentation of all settings as a Markdown table (`host_agent/SETTINGS.md`)."""
    rows = ["| setting | variable | default | what |", "|---|---|---|---|"]
    for name, field in Settings.model_fields.items():
        default = "" if field.default_factory is not None else _plain(field.default)
        rows.append(f"| `{name}` | `{PREFIX}{name.upper()}` | {default} | {field.description} |")
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
