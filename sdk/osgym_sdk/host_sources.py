"""Sources of hosts: where a client looks up which hosts a fleet has now.

`Client.from_fleet` and the `discover` of a fleet.json take a source as a URL. The URL's scheme is the name of
an extension (`osgym.host_sources`): a function from the whole URL and `HostDefaults` to a `HostSource`, which
raises `ConfigError` where the URL is wrong or a package is missing.
"""

from __future__ import annotations

import ssl
from abc import ABC, abstractmethod
from dataclasses import dataclass

from osgym_sdk._config import DEFAULT_PORT


class SourceFailed(Exception):
    """A source cannot say now which hosts there are; those that are known stay."""


@dataclass(frozen=True, slots=True)
class FoundHost:
    """A host as a source names it.

    Attributes:
        server_name: the name in its certificate where that is not its address.
    """

    url: str
    server_name: str = ""


@dataclass(frozen=True, slots=True)
class HostDefaults:
    """Defaults of a source's hosts where its URL does not say otherwise."""

    scheme: str = "https"
    port: int = DEFAULT_PORT
    server_name: str = ""


@dataclass(frozen=True, slots=True)
class Trust:
    """Authority that hosts' certificates are checked against, and the token that hosts ask for."""

    context: ssl.SSLContext | None
    token: str | None


@dataclass(frozen=True, slots=True)
class Listing:
    """Hosts that a source names; ``trust`` where it is another than before."""

    hosts: tuple[FoundHost, ...]
    trust: Trust | None = None


class HostSource(ABC):
    """A source that lists hosts.

    Attributes:
        name: for messages.
        pause_s: between two looks.
        most_pause_s: the longest pause while looks fail.
        limit_s: deadline of one look.
    """

    name: str
    pause_s: float
    most_pause_s: float
    limit_s: float

    @abstractmethod
    async def look(self) -> Listing | None:
        """Return the hosts that there are now; None: as at the last look.

        Raises:
            SourceFailed: it cannot be known.
        """
