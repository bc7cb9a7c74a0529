"""Installed runtimes: entry points of the group `osgym.runtimes`, each naming a `runtimes.kind.RuntimeKind`.

No runtime is imported before it is asked for. `local` is registered in this distribution's pyproject.toml, an
extension's runtime in its own.
"""

from __future__ import annotations

from typing import Annotated, Any

from pydantic import AfterValidator

from osgym_protocol.plugins import PluginGroup, load_plugin, plugin_names

DEFAULT_RUNTIME = "local"
DISTRIBUTIONS = {"local": "osgym-host", "qemu": "osgym-qemu"}
"""OSGym's runtimes → the distribution that brings each, for error messages."""


def runtime_names() -> tuple[str, ...]:
    """Names of all installed runtimes, the default one first."""
    return tuple(sorted(plugin_names(PluginGroup.RUNTIMES), key=lambda name: (name != DEFAULT_RUNTIME, name)))


def how_to_install(name: str) -> str:
    """Return how to install a runtime of OSGym; empty for a runtime of others."""
    return f"install {DISTRIBUTIONS[name]}" if name in DISTRIBUTIONS else ""


def load_runtime_kind(name: str) -> Any:
    """Import the runtime's package and return its `RuntimeKind`.

    Raises:
        PluginError: It is not installed, or its import fails.
    """
    return load_plugin(PluginGroup.RUNTIMES, name)


def check_runtime_name(name: str) -> str:
    """Return the name of an installed runtime.

    Raises:
        ValueError: The runtime is not installed. The message lists the installed runtimes, and names the
            distribution to install for a runtime of OSGym.
    """
    if name not in runtime_names():
        installed = ", ".join(map(repr, runtime_names())) or "none"
        remedy = f": {how_to_install(name)}" if how_to_install(name) else ""
        raise ValueError(f"the runtime {name!r} is not installed{remedy}; installed runtimes: {installed}")
    return name


RuntimeSetting = Annotated[str, AfterValidator(check_runtime_name)]
