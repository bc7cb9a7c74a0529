"""OSWorld's own harness on OSGym's desktops, unchanged: import this, and ``provider_name="docker"`` is OSGym.

>>> import osgym_osworld  # before or after desktop_env
>>> from desktop_env.desktop_env import DesktopEnv  # doctest: +SKIP
>>> env = DesktopEnv(provider_name="docker", action_space="pyautogui")  # doctest: +SKIP

desktop-env takes no name of a provider that it does not know, so ours stands in the place of its Docker one,
which starts from a clean state, too. ``OSGYM_HOSTS`` (or ``install(hosts=...)``) says where; see
``docs/osworld.md``. Needs OSWorld's package: ``pip install desktop-env``.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

from osgym_osworld._provider import PROVIDER_NAME, OsgymManager, OsgymProvider, ProviderOptions

__all__ = ["PROVIDER_NAME", "OsgymManager", "OsgymProvider", "ProviderOptions", "install", "uninstall"]

_FACTORY = "create_vm_manager_and_provider"
_THEIRS: list[Callable[..., Any]] = []


def install(hosts: str | Sequence[str] | None = None, *, wait_s: float = 300.0) -> None:
    """Have desktop-env make OSGym's provider for ``docker``. Called again, the new options count.

    Args:
        hosts: as for :class:`osgym_sdk.Client`; ``OSGYM_HOSTS`` by default.
        wait_s: how long an environment waits for a desktop.

    Raises:
        ConfigError: an option is wrong, or desktop-env is not installed.
    """
    options = ProviderOptions(hosts if hosts is None or isinstance(hosts, str) else tuple(hosts), wait_s)
    import desktop_env.providers as providers

    if not _THEIRS:
        _THEIRS.append(getattr(providers, _FACTORY))
    ours = partial(_make, options)
    for module in _modules(providers):
        setattr(module, _FACTORY, ours)


def uninstall() -> None:
    """Give desktop-env its own Docker provider back. Idempotent."""
    if not _THEIRS:
        return
    import desktop_env.providers as providers

    theirs = _THEIRS.pop()
    for module in _modules(providers):
        setattr(module, _FACTORY, theirs)


def _modules(providers: Any) -> list[Any]:
    """Where the factory is looked up: its own module, and that of the environment if it was imported."""
    environment = sys.modules.get("desktop_env.desktop_env")
    return [providers] if environment is None else [providers, environment]


def _make(
    options: ProviderOptions, provider_name: str, region: str | None = None, use_proxy: bool = False
) -> Any:
    if provider_name.lower().strip() != PROVIDER_NAME:
        return _THEIRS[0](provider_name, region, use_proxy)
    return OsgymManager(), OsgymProvider(region, options)


install()
