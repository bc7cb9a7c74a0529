"""OSWorld for OSGym: metrics, getters and setup steps for hosts, a provider of its DesktopEnv for clients.

Hosts find the extensions by their entry points. Clients import `osgym_osworld.harness`.
"""

from __future__ import annotations

import importlib
import importlib.util
import sys
import warnings
from typing import Any

_HARNESS = ("PROVIDER_NAME", "OsgymManager", "OsgymProvider", "ProviderOptions", "install", "uninstall")


def __getattr__(name: str) -> Any:
    """Return a name of the provider, which this package had in earlier releases."""
    if name not in _HARNESS:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    warnings.warn(f"{__name__}.{name} is now {__name__}.harness.{name}", DeprecationWarning, stacklevel=2)
    return getattr(importlib.import_module("osgym_osworld.harness"), name)


if "osgym_host" not in sys.modules and importlib.util.find_spec("desktop_env") is not None:
    # Earlier releases installed the provider when this package was imported; clients may rely on that.
    importlib.import_module("osgym_osworld.harness")
