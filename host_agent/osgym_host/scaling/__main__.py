"""Process that publishes the lease pressure that the host agent writes into a file.

    python -m osgym_host.scaling cloudwatch[:REGION]|gcp|… PATH FLEET [EVERY_S]

For hosts where the agent's own account must not reach the metadata service and with it the host's role,
because a guest that broke out into that account would have them too: this process has an account of its own,
and the agent has `metrics_to: file:PATH`. A number that is older than three intervals is not published.
"""

from __future__ import annotations

import asyncio
import logging
import os
import signal
import sys
import time
from pathlib import Path

from osgym_host.notices.sources import METADATA_URL
from osgym_host.scaling.publish import PressurePublisher
from osgym_host.scaling.publishers import Publisher, PublisherUnavailable, publisher_of, read_pressure
from osgym_protocol.plugins import PluginGroup, plugin_names

EVERY_S = 60.0
MOST_AGE_INTERVALS = 3


class _FromFile(Publisher):
    """Publishes the content of the file at each interval."""

    def __init__(self, publisher: Publisher, path: Path, every_s: float) -> None:
        self.name = publisher.name
        self._publisher, self._path, self._most_age_s = publisher, path, MOST_AGE_INTERVALS * every_s

    def put(self, percent: float | None) -> None:
        self._publisher.put(read_pressure(self._path, self._most_age_s, time.time()))


async def publish(publisher: Publisher, path: Path, every_s: float) -> None:
    """Publish until SIGTERM or SIGINT."""
    stop = asyncio.Event()
    for sig in (signal.SIGINT, signal.SIGTERM):
        asyncio.get_running_loop().add_signal_handler(sig, stop.set)
    publishing = PressurePublisher(_FromFile(publisher, path, every_s), lambda: None, every_s)
    publishing.start()
    try:
        await stop.wait()
    finally:
        await publishing.close()


def main() -> None:
    """Run as a process."""
    arguments = sys.argv[1:]
    if len(arguments) not in (3, 4) or arguments[0].partition(":")[0] not in plugin_names(
        PluginGroup.PUBLISHERS
    ):
        sys.exit(__doc__)
    logging.basicConfig(level=logging.INFO, format="%(levelname)s %(message)s")
    every_s = float(arguments[3]) if len(arguments) == 4 else EVERY_S
    try:
        publisher = publisher_of(
            arguments[0], arguments[2], os.environ.get("OSGYM_TEST_METADATA", METADATA_URL)
        )
    except PublisherUnavailable as error:
        sys.exit(str(error))
    assert publisher is not None
    asyncio.run(publish(publisher, Path(arguments[1]), every_s))


if __name__ == "__main__":
    main()
