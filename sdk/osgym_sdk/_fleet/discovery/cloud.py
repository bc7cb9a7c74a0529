"""Base of sources that ask a cloud for its instances by a blocking library."""

from __future__ import annotations

import threading
from abc import abstractmethod
from typing import Any

from osgym_sdk._daemon import in_thread
from osgym_sdk._fleet.discovery.address import SourceAddress
from osgym_sdk.host_sources import FoundHost, HostSource, Listing


class CloudSource(HostSource):
    """The instances that run now, asked for in a thread, one question at a time."""

    pause_s = 15.0
    most_pause_s = 300.0
    limit_s = 60.0

    def __init__(self, address: SourceAddress) -> None:
        self.name = address.text
        self._address = address
        self._asking = threading.Lock()

    async def look(self) -> Listing | None:
        """Return the instances that run now."""
        return Listing(await in_thread(self._list))

    def _list(self) -> tuple[FoundHost, ...]:
        where = self._address
        with self._asking:
            found = [where.address.choose(*self.addresses_of(one)) for one in self._instances()]
        return tuple(FoundHost(where.url(address), where.server_name) for address in found if address)

    @abstractmethod
    def _instances(self) -> list[dict[str, Any]]:
        """Ask the cloud for the instances that run. Raises SourceFailed if it gives no list."""

    @staticmethod
    @abstractmethod
    def addresses_of(instance: dict[str, Any]) -> tuple[str, str]:
        """Return the public and the private address of an instance, empty where it has none (yet)."""
