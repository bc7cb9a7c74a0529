"""Installed runtimes: entry points of the group `osgym.runtimes`, each naming a `runtimes.kind.RuntimeKind`.

No runtime is imported before it is asked for. `local` and `qemu` are registered in this distribution's
pyproject.toml, as an extension's runtime is in its own.
"""

from __future__ import annotations

from typing import Annotated, Any

from pydantic import AfterValidator

from osgym_protocol.plugins import PluginGroup, load_plugin, plugin_names

DEFAULT_RUNTIME = "local"


def runtime_names() -> tuple[str, ...]:
    """Names of all installed runtimes, the default one first."""
    return tuple(sorted(plugin_names(PluginGroup.RUNTIMES), key=lambda name: (name != DEFAULT_RUNTIME, name)))


def load_runtime_kind(name: str) -> Any:
    """Import the runtime's package and return its `RuntimeKind`.

    Raises:
        PluginError: It is not installed, or its import fails.
    """
    return load_plugin(PluginGroup.RUNTIMES, name)


def check_runtime_name(name: str) -> str:
    """Return the name of an installed runtime.

    Raises:
        ValueError: None of this name is installed; the message lists those that are.
    """
    if name not in runtime_names():
        installed = ", ".join(map(repr, runtime_names())) or "none: install osgym-host again"
        raise ValueError(f"no runtime of this name is installed; installed are {installed}")
    return name


RuntimeSetting = Annotated[str, AfterValidator(check_runtime_name)]
