"""Archives that hosts fetch at their first start, by name and digest. Pure."""

from __future__ import annotations

from dataclasses import dataclass

from osgym_infra.config.keys import FleetConfig


@dataclass(frozen=True, slots=True)
class FetchedArchives:
    """Two archives; empty texts stand for one that the stack makes and does not know yet.

    Attributes:
        image_digest: Digest of the golden image; the other two digests are of archives.
    """

    image_uri: str
    image_sha256: str
    image_digest: str
    agent_uri: str
    agent_sha256: str

    @classmethod
    def named_in(cls, config: FleetConfig) -> FetchedArchives:
        """Return the archives that the configuration names."""
        return cls(**{name: getattr(config, name) for name in cls.__slots__})
