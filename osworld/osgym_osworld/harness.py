"""OSGym as the provider of OSWorld's DesktopEnv: an emulator is a lease, a snapshot is a fresh clone.

>>> import osgym_osworld.harness  # before or after desktop_env
>>> from desktop_env.desktop_env import DesktopEnv  # doctest: +SKIP
>>> env = DesktopEnv(provider_name="docker", action_space="pyautogui")  # doctest: +SKIP

desktop-env refuses names of providers that it does not know, so this one takes the place of ``docker``, which
starts from a clean state as well. ``OSGYM_HOSTS`` or ``install(hosts=...)`` names the hosts; see
``docs/osworld.md``. Needs OSWorld's package: ``pip install desktop-env``.
"""

from __future__ import annotations

import importlib.util
import logging
import sys
import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

from osgym_sdk import ConfigError, Episode, OSGymError
from osgym_sdk.integrations._desktop import shared_client

if importlib.util.find_spec("desktop_env") is None:
    raise ConfigError("OSWorld's package is not installed: pip install desktop-env")

from desktop_env import providers
from desktop_env.providers.base import Provider, VMManager

__all__ = ["PROVIDER_NAME", "OsgymManager", "OsgymProvider", "ProviderOptions", "install", "uninstall"]

PROVIDER_NAME = "docker"
"""The provider of desktop-env whose place this one takes."""
PORTS = (5000, 9222, 8006, 8080)
"""Ports of OSWorld's server, the browser's debugging, VNC and VLC, in the order of desktop-env's address."""
PATH = "osgym"
"""Placeholder for the path of a virtual machine, which desktop-env passes on."""
_FACTORY = "create_vm_manager_and_provider"
_THEIRS: list[Callable[..., Any]] = []
_LOG = logging.getLogger("osgym.sdk")


@dataclass(frozen=True, slots=True)
class ProviderOptions:
    """Source of an environment's desktops.

    Attributes:
        hosts: Hosts as for :class:`osgym_sdk.Client`.
        wait_s: Longest wait for a desktop in seconds.
    """

    hosts: str | tuple[str, ...] | None = None
    wait_s: float = 300.0

    def __post_init__(self) -> None:
        if not 0 < self.wait_s <= 86_400:
            raise ConfigError("wait_s must be more than 0 and at most a day")


class OsgymProvider(Provider):  # type: ignore[misc,unused-ignore] # theirs has no types
    """The desktop of one ``DesktopEnv``, and its ports at ports of this machine's loopback.

    Leases are renewed by the process's client as long as it lives, and given back by ``close()``, by the next
    ``reset()`` and at the end of the process; those of a process that was killed run out by themselves.
    """

    def __init__(self, region: str | None = None, options: ProviderOptions | None = None) -> None:
        super().__init__(region)
        self._options = options or ProviderOptions()
        self._lock = threading.Lock()
        self._episode: Episode | None = None
        self._address = ""

    def start_emulator(
        self, path_to_vm: str, headless: bool = True, os_type: str = "Ubuntu", *_: Any
    ) -> None:
        """Lease a clean desktop, unless there is one.

        Raises:
            ConfigError: ``os_type`` is not Ubuntu.
            NoCapacity: No desktop was free in time.
            HostUnreachable: No host could be reached.
        """
        if os_type.lower() != "ubuntu":
            raise ConfigError(f"os_type {os_type!r}: these desktops are Linux; use 'Ubuntu'")
        with self._lock:
            if self._episode is not None:
                return
            episode = shared_client(self._options.hosts).episode(wait_s=self._options.wait_s)
            episode.start()
            try:
                ports = [episode.expose(port).port for port in PORTS]
            except BaseException:
                episode.close()
                raise
            self._episode = episode
            self._address = ":".join(map(str, ("127.0.0.1", *ports)))

    def get_ip_address(self, path_to_vm: str) -> str:
        """Return ``127.0.0.1:SERVER:CHROMIUM:VNC:VLC``.

        Raises:
            ConfigError: No desktop is leased.
        """
        if self._episode is None:
            raise ConfigError("no desktop is leased: call start_emulator() first")
        return self._address

    def save_state(self, path_to_vm: str, snapshot_name: str) -> None:
        """Raise `NotImplementedError`, as desktop-env's Docker provider does."""
        raise NotImplementedError(
            "snapshots of running desktops are not supported here: use osgym_sdk's episode.checkpoint()"
        )

    def revert_to_snapshot(self, path_to_vm: str, snapshot_name: str) -> str:
        """Give the desktop back; the next start leases a fresh clone of the golden image."""
        self.stop_emulator(path_to_vm)
        return path_to_vm

    def stop_emulator(self, path_to_vm: str, *_: Any) -> None:
        """Give the desktop back. Idempotent."""
        with self._lock:
            episode, self._episode, self._address = self._episode, None, ""
        if episode is None:
            return
        try:
            episode.close()
        except OSGymError as exc:  # its lease runs out by itself
            _LOG.info("a desktop could not be released: %s", exc)


class OsgymManager(VMManager):  # type: ignore[misc,unused-ignore] # theirs has no types
    """Manager of virtual machines that manages none: hosts make the desktops."""

    checked_and_cleaned = True

    def initialize_registry(self, **_: Any) -> None: ...

    def add_vm(self, vm_path: str, *_: Any, **__: Any) -> None: ...

    def delete_vm(self, vm_path: str, *_: Any, **__: Any) -> None: ...

    def occupy_vm(self, vm_path: str, pid: int, *_: Any, **__: Any) -> None: ...

    def list_free_vms(self, **_: Any) -> list[str]:
        """Return the placeholder of any desktop."""
        return [PATH]

    def check_and_clean(self, **_: Any) -> None:
        """Do nothing: hosts end the leases of killed processes."""

    def get_vm_path(self, **_: Any) -> str:
        """Return the placeholder of any desktop."""
        return PATH


def install(hosts: str | Sequence[str] | None = None, *, wait_s: float = 300.0) -> None:
    """Make desktop-env use OSGym's provider for ``docker``. A second call replaces the options.

    Args:
        hosts: Hosts as for :class:`osgym_sdk.Client`; ``OSGYM_HOSTS`` by default.
        wait_s: Longest wait of an environment for a desktop in seconds.

    Raises:
        ConfigError: An option is wrong.
    """
    options = ProviderOptions(hosts if hosts is None or isinstance(hosts, str) else tuple(hosts), wait_s)
    if not _THEIRS:
        _THEIRS.append(getattr(providers, _FACTORY))
    ours = partial(_make, options)
    for module in _modules():
        setattr(module, _FACTORY, ours)


def uninstall() -> None:
    """Restore desktop-env's own Docker provider. Idempotent."""
    if not _THEIRS:
        return
    theirs = _THEIRS.pop()
    for module in _modules():
        setattr(module, _FACTORY, theirs)


def _modules() -> list[Any]:
    """Return the modules in which desktop-env looks the factory up."""
    environment = sys.modules.get("desktop_env.desktop_env")
    return [providers] if environment is None else [providers, environment]


def _make(
    options: ProviderOptions, provider_name: str, region: str | None = None, use_proxy: bool = False
) -> Any:
    if provider_name.lower().strip() != PROVIDER_NAME:
        return _THEIRS[0](provider_name, region, use_proxy)
    return OsgymManager(), OsgymProvider(region, options)


install()
