"""Base of sources that ask a cloud for its instances by a blocking library."""

from __future__ import annotations

import threading
from abc import abstractmethod

from osgym_sdk._fleet.discovery.address import SourceAddress
from osgym_sdk.host_sources import FoundHost, HostSource, Listing, in_thread


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
        with self._asking:
            addresses = self._addresses()
        return tuple(FoundHost(self._address.url(one), self._address.server_name) for one in addresses)

    @abstractmethod
    def _addresses(self) -> list[str]:
        """Ask the cloud for all instances with an address. Raises SourceFailed if it gives no list."""
