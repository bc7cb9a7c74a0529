"""Publishers of the lease pressure: the contract, and a file for the process beside the host agent.

A cloud's publisher is an extension (`osgym.publishers`): a function from the fleet's name, the argument after
the extension's name and a colon (or an empty text), and the address of the metadata service, to a publisher.
Publishers block, each call within its own deadlines; `publish` runs them in a thread.
"""

from __future__ import annotations

import json
import math
import time
from abc import ABC, abstractmethod
from pathlib import Path

from osgym_host.errors import OsgymHostError
from osgym_host.whole_file import write_whole
from osgym_protocol.plugins import PluginGroup, load_plugin, plugin_names

METRIC, DIMENSION = "lease_pressure_percent", "fleet"
CONNECT_S, READ_S, ATTEMPTS = 3, 7, 2
MOST_FILE_BYTES = 4096


class PublishFailed(Exception):
    """The number did not arrive; the next one may."""


class PublisherUnavailable(OsgymHostError):
    """The setting `metrics_to` names something that this host cannot use."""


class Publisher(ABC):
    """Receiver of the number."""

    name: str

    @abstractmethod
    def put(self, percent: float | None) -> None:
        """Publish the number; None: there is none now.

        Raises:
            PublishFailed: It did not arrive.
        """


class PressureFile(Publisher):
    """File that another account reads, since this account must not reach the cloud's credentials."""

    def __init__(self, path: Path) -> None:
        self.name = str(path)
        self._path = path

    def put(self, percent: float | None) -> None:
        text = json.dumps({METRIC: percent, "at": round(time.time(), 3)})
        try:
            write_whole(self._path, text.encode(), 0o644)
        except OSError as error:
            raise PublishFailed(f"{error.strerror}: {self._path}") from error


def read_pressure(path: Path, most_age_s: float, now: float) -> float | None:
    """Return the number in a file, None where it is old or absent.

    Raises:
        PublishFailed: There is no such file, or it is something else.
    """
    try:
        with path.open("rb") as file:
            found = json.loads(file.read(MOST_FILE_BYTES))
        percent, at = found[METRIC], float(found["at"])
        if percent is not None and not (math.isfinite(percent) and percent >= 0):
            raise ValueError(f"{percent} is not a percentage")
        return None if percent is None or now - at > most_age_s else float(percent)
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise PublishFailed(f"{path} cannot be read: {error}") from error


def publisher_of(setting: str, fleet: str, metadata_url: str) -> Publisher | None:
    """Return the publisher of a setting: `none`, `file:/PATH`, or an extension as `NAME[:ARGUMENT]`.

    Raises:
        PublisherUnavailable: A package that it needs is not installed.
        ValueError: The setting names none of them.
    """
    kind, _, rest = setting.partition(":")
    if setting == "none":
        return None
    if kind == "file" and rest.startswith("/"):
        return PressureFile(Path(rest))
    if kind not in plugin_names(PluginGroup.PUBLISHERS):
        names = ", ".join(plugin_names(PluginGroup.PUBLISHERS))
        raise ValueError(f"one of none, {names}, perhaps with :ARGUMENT, file:/PATH")
    found: Publisher = load_plugin(PluginGroup.PUBLISHERS, kind)(fleet, rest, metadata_url)
    return found
