"""desktop-env's two abstract classes over OSGym: an emulator is a lease, a snapshot is a fresh clone."""

from __future__ import annotations

import importlib.util
import logging
import threading
from dataclasses import dataclass
from typing import Any

from osgym_sdk import ConfigError, Episode, OSGymError
from osgym_sdk.integrations._desktop import shared_client

if importlib.util.find_spec("desktop_env") is None:
    raise ConfigError("OSWorld's package is not installed: pip install desktop-env")

from desktop_env.providers.base import Provider, VMManager

PROVIDER_NAME = "docker"
"""Of desktop-env's names, the one in whose place we stand: it starts from a clean state, as we do."""
PORTS = (5000, 9222, 8006, 8080)
"""OSWorld's server, the browser's debugging, VNC, VLC: in the order of desktop-env's address."""
PATH = "osgym"
"""Stands for the path of a virtual machine, which desktop-env passes on."""
_LOG = logging.getLogger("osgym.sdk")


@dataclass(frozen=True, slots=True)
class ProviderOptions:
    """Where desktops come from.

    Attributes:
        hosts: as for :class:`osgym_sdk.Client`.
        wait_s: how long to wait for a desktop.
    """

    hosts: str | tuple[str, ...] | None = None
    wait_s: float = 300.0

    def __post_init__(self) -> None:
        """Check the numbers."""
        if not 0 < self.wait_s <= 86_400:
            raise ConfigError("wait_s is more than 0 and at most a day")


class OsgymProvider(Provider):  # type: ignore[misc,unused-ignore] # theirs has no types
    """The desktop of one ``DesktopEnv``, and its ports at ports of this machine's loopback.

    Leases are renewed by the process's client as long as it lives, and given back by ``close()``, by the next
    ``reset()`` and at the end of the process; those of a process that was killed run out by themselves.
    """

    def __init__(self, region: str | None = None, options: ProviderOptions | None = None) -> None:
        """Lease nothing yet."""
        super().__init__(region)
        self._options = options or ProviderOptions()
        self._lock = threading.Lock()
        self._episode: Episode | None = None
        self._address = ""

    def start_emulator(
        self, path_to_vm: str, headless: bool = True, os_type: str = "Ubuntu", *_: Any
    ) -> None:
        """Lease a clean desktop; nothing where there is one.

        Raises:
            ConfigError: Windows is asked for.
            NoCapacity: none was free in time.
            HostUnreachable: no host could be reached.
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
            ConfigError: there is no desktop.
        """
        if self._episode is None:
            raise ConfigError("there is no desktop: call start_emulator() first")
        return self._address

    def save_state(self, path_to_vm: str, snapshot_name: str) -> None:
        """Not offered, as by their Docker provider.

        Raises:
            NotImplementedError: always.
        """
        raise NotImplementedError("snapshots of running desktops: use osgym_sdk's episode.checkpoint()")

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
            _LOG.info("giving a desktop back: %s", exc)


class OsgymManager(VMManager):  # type: ignore[misc,unused-ignore] # theirs has no types
    """Nothing to manage: desktops are clones that hosts make."""

    checked_and_cleaned = True

    def initialize_registry(self, **_: Any) -> None:
        """Do nothing."""

    def add_vm(self, vm_path: str, *_: Any, **__: Any) -> None:
        """Do nothing."""

    def delete_vm(self, vm_path: str, *_: Any, **__: Any) -> None:
        """Do nothing."""

    def occupy_vm(self, vm_path: str, pid: int, *_: Any, **__: Any) -> None:
        """Do nothing."""

    def list_free_vms(self, **_: Any) -> list[str]:
        """Return the one name that there is."""
        return [PATH]

    def check_and_clean(self, **_: Any) -> None:
        """Do nothing: hosts reap what killed processes leave."""

    def get_vm_path(self, **_: Any) -> str:
        """Return a name that stands for any desktop."""
        return PATH
