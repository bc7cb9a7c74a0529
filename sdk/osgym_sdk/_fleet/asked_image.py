"""The golden image that an episode is for, and the error where no host serves it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from osgym_protocol.episode_options import EpisodeOptions
from osgym_sdk._exceptions import Unsupported
from osgym_sdk._fleet.host import FleetHost

_SHOWN = 5
"""Number of hosts that an error names."""


@dataclass(frozen=True, slots=True)
class AskedImage:
    """Flavor or digest of the image that a client or its task asks for."""

    name: str
    required: bool = True
    """False: OSWorld's ``snapshot``, for which a host without such an image gives its default one."""

    @classmethod
    def of(cls, options: EpisodeOptions) -> AskedImage | None:
        """Return what the options ask for: `image`, else the task's `osgym.image`, else its `snapshot`."""
        task = options.task or {}
        extras = task.get("osgym")
        for asked in (options.image, extras.get("image") if isinstance(extras, Mapping) else None):
            if asked is not None:
                return cls(asked) if isinstance(asked, str) else None
        snapshot = task.get("snapshot")
        return cls(snapshot, required=False) if isinstance(snapshot, str) else None


def unknown_image(refusal: Unsupported, not_reached: Sequence[FleetHost]) -> Unsupported:
    """Return the refusal of one host as that of all, naming the hosts that could not be asked."""
    if not not_reached:
        return refusal
    told = "; ".join(f"{host.link.url} ({_why(host)})" for host in not_reached[:_SHOWN])
    more = f"; and {len(not_reached) - _SHOWN} more" if len(not_reached) > _SHOWN else ""
    return Unsupported(
        f"{refusal.message} Hosts that were not reached may serve it: {told}{more}.",
        code=refusal.code,
        details={**refusal.details, "not_reached": [host.link.url for host in not_reached]},
        host=refusal.host,
    )


def _why(host: FleetHost) -> str:
    if host.draining:
        return "draining"
    return "not asked" if host.down_cause is None else host.down_cause.code
