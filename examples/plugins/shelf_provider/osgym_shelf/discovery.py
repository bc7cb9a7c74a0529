"""Hosts by a URL like `shelf://board-1,board-2?port=20000`, for clients."""

from __future__ import annotations

from urllib.parse import parse_qs, urlsplit

from osgym_sdk.host_sources import FoundHost, HostDefaults, HostSource, Listing


class ShelfSource(HostSource):
    """Boards that the URL names; each has the address BOARD.shelf.lab."""

    pause_s = 30.0
    most_pause_s = 60.0
    limit_s = 5.0

    def __init__(self, text: str, defaults: HostDefaults) -> None:
        parts = urlsplit(text)
        port = parse_qs(parts.query).get("port", [str(defaults.port)])[0]
        urls = [f"{defaults.scheme}://{board}.shelf.lab:{port}" for board in parts.netloc.split(",")]
        self.name = text
        self._hosts = tuple(FoundHost(url, defaults.server_name) for url in urls)

    async def look(self) -> Listing | None:
        return Listing(self._hosts)


def open_source(text: str, defaults: HostDefaults) -> HostSource:
    """Return the source of a URL."""
    return ShelfSource(text, defaults)
