"""Libraries of others that an extra of the SDK brings."""

from __future__ import annotations

import importlib.util

from osgym_sdk._exceptions import ConfigError


def need_extra(extra: str, *modules: str) -> None:
    """Check that what an extra brings is installed.

    Raises:
        ConfigError: it is not; the message says what to install.
    """
    missing = [module for module in modules if importlib.util.find_spec(module) is None]
    if missing:
        raise ConfigError(f"{', '.join(missing)} is not installed: pip install 'osgym-sdk[{extra}]'")
