"""What the proxy of an instance does, in the form in which the host agent tells its process."""

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
{"ADDRESS:PORT": [ADDRESS, PORT]}, "ca": PATH}`. What may be reached is judged by its addresses."""


class WebMode(StrEnum):
    """Whether sites are recorded or replayed."""

    OFF = "off"
    RECORD = "record"
    REPLAY = "replay"


@dataclass(frozen=True, slots=True)
class Authority:
    """What signs the certificates of recorded and replayed sites: PEM texts."""

    certificate: str
    key: str = field(repr=False)


@dataclass(frozen=True, slots=True)
class ProxyOptions:
    """What replicas reach by the proxy.

    Attributes:
        archive: Of `record` and `replay`.
        authority: The same; replicas trust it.
    """

    egress: Egress
    allowlist: Allowlist = field(default_factory=Allowlist)
    mode: WebMode = WebMode.OFF
    archive: Path | None = None
    authority: Authority | None = None

    def to_json(self) -> str:
        """Write it down, with what tests set in the environment."""
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
        """Read what `to_json` wrote, and the world of a test; that is empty otherwise."""
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
