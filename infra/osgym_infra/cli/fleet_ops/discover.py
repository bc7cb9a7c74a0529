"""Discovery of hosts that come and go, by the SDK and fleet.json's source of hosts."""

from __future__ import annotations

import os
import time
from dataclasses import replace
from urllib.parse import parse_qs, urlsplit

from osgym_infra.errors import OsgymInfraError
from osgym_infra.fleet.managed import ManagedFleet, ManagedHost

LOOK_S = 30.0
PAUSE_S = 0.2
NO_TOKEN = "none"  # noqa: S105 - not one: hosts are listed without, and asked for nothing
"""What the SDK is given where nobody has the token: it lists hosts all the same."""


def with_found(fleet: ManagedFleet) -> ManagedFleet:
    """Return the fleet with the discovered hosts beside those that the file names.

    Raises:
        OsgymInfraError: The SDK is not installed, or the look fails.
    """
    if not fleet.discover:
        return fleet
    try:
        from osgym_sdk import Client, OSGymError
    except ImportError as error:
        raise OsgymInfraError(
            "looking up the hosts of this fleet needs osgym-sdk: pip install ./sdk"
        ) from error
    token = os.environ.get("OSGYM_TOKEN") or NO_TOKEN
    end_s = time.monotonic() + LOOK_S
    try:
        with Client.from_fleet(fleet.path, token=token) as client:
            urls = set(client.hosts)
            while not urls - {host.url for host in fleet.hosts} and time.monotonic() < end_s:
                time.sleep(PAUSE_S)
                urls = set(client.hosts)
    except OSGymError as error:
        raise OsgymInfraError(f"the hosts of {fleet.discover} cannot be looked up: {error}") from error
    name = fleet.server_name or parse_qs(urlsplit(fleet.discover).query).get("server_name", [""])[0]
    new = sorted(urls - {host.url for host in fleet.hosts})
    found = tuple(ManagedHost(urlsplit(url).netloc, url, name) for url in new)
    if not fleet.hosts and not found:
        raise OsgymInfraError(
            f"{fleet.discover} names no hosts within {LOOK_S:g} s; check that its hosts run"
        )
    return replace(fleet, hosts=(*fleet.hosts, *found))
