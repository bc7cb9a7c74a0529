"""Options of the proxy, in the form in which the host agent sends them to its process."""

from __future__ import annotations

import json
import os
from dataclasses import dataclass, field
from enum import StrEnum
from pathlib import Path
from typing import Any

from osgym_host.core.egress import Allowlist
from osgym_host.runtimes.base import Egress

TEST_WORLD = "OSGYM_TEST_WEB"
"""Variable that in tests names a file with a small internet: `{"names": {NAME: [ADDRESS]}, "places":
{"ADDRESS:PORT": [ADDRESS, PORT]}, "ca": PATH}`. Targets are still judged by their addresses."""


class WebMode(StrEnum):
    OFF = "off"
    RECORD = "record"
    REPLAY = "replay"


@dataclass(frozen=True, slots=True)
class Authority:
    """Certificate and key that sign for recorded and replayed sites, as PEM texts."""

    certificate: str
    key: str = field(repr=False)


@dataclass(frozen=True, slots=True)
class ProxyOptions:
    """Options of an instance's proxy.

    Attributes:
        archive: HAR file of `record` and `replay`.
        authority: Authority of `record` and `replay`, which replicas trust.
    """

    egress: Egress
    allowlist: Allowlist = field(default_factory=Allowlist)
    mode: WebMode = WebMode.OFF
    archive: Path | None = None
    authority: Authority | None = None

    def to_json(self) -> str:
        """Return the options as JSON, with a test's small internet from the environment."""
        world = os.environ.get(TEST_WORLD)
        return json.dumps(
            {
                "egress": self.egress,
                "networks": self.allowlist.networks,
                "names": sorted(self.allowlist.names),
                "mode": self.mode,
                "archive": None if self.archive is None else os.fspath(self.archive.absolute()),
                "authority": None
                if self.authority is None
                else [self.authority.certificate, self.authority.key],
                "world": json.loads(Path(world).read_text()) if world else None,
            }
        )

    @classmethod
    def from_json(cls, text: str) -> tuple[ProxyOptions, dict[str, Any]]:
        """Read the result of `to_json`: the options, and a test's small internet, else an empty one."""
        found = json.loads(text)
        authority, archive = found["authority"], found["archive"]
        options = cls(
            Egress(found["egress"]),
            Allowlist(tuple(found["networks"]), frozenset(found["names"])),
            WebMode(found["mode"]),
            None if archive is None else Path(archive),
            None if authority is None else Authority(*authority),
        )
        return options, found["world"] or {}
