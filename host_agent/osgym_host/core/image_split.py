"""Split of the warm replicas among the images of a host, by recent demand. Pure."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

HALF_LIFE_S = 120.0
"""Time after which a request counts half: a few episodes long, so that a new phase of a run shows soon."""


class RecentDemand:
    """Number of requests for each image, of which older ones count less. Times are of one monotonic clock."""

    def __init__(self, images: Sequence[str]) -> None:
        """Begin with one request for each image, so that the first real one does not take all."""
        self._counts = dict.fromkeys(images, 1.0)
        self._at_s: float | None = None

    def add(self, image: str, now_s: float) -> None:
        """Count a request."""
        if self._at_s is not None:
            left = 0.5 ** (max(0.0, now_s - self._at_s) / HALF_LIFE_S)
            self._counts = {name: 1.0 + (count - 1.0) * left for name, count in self._counts.items()}
        self._at_s = now_s
        self._counts[image] += 1.0

    def counts(self) -> Mapping[str, float]:
        """Return the numbers as of the last request; each image has at least one."""
        return self._counts


def split_warm(warm: int, demand: Mapping[str, float], minimum: int) -> dict[str, int]:
    """Return the number of warm replicas for each image, `warm` together.

    Each image gets `minimum` where `warm` is enough for that, else an equal part. The rest goes in proportion
    to the square root of demand, as the spread of independent requests does: a warm replica is replaced
    within seconds, so it covers bursts rather than the mean, and a rare image needs more than its share of
    requests. The method of D'Hondt rounds, so more demand for an image never gets it less. Where two have
    the same claim, the first has it.

    Args:
        demand: A positive number for each image; the order breaks ties.
    """
    if not demand:
        return {}
    shares = dict.fromkeys(demand, min(minimum, warm // len(demand)))
    claims = {name: math.sqrt(count) for name, count in demand.items()}
    for _ in range(warm - sum(shares.values())):
        image = max(claims, key=lambda name: claims[name] / (shares[name] + 1))
        shares[image] += 1
    return shares


def updated_split(
    before: Mapping[str, int], warm: int, demand: Mapping[str, float], minimum: int
) -> Mapping[str, int]:
    """Return the split for the present demand, or the one before as long as it is nearly right.

    Requests come in random order. Following each of them, the host would retire idle replicas of one image
    for those of another one again and again.
    """
    fresh = split_warm(warm, demand, minimum)
    if before.keys() != fresh.keys() or sum(before.values()) != warm:
        return fresh
    changed = any(
        abs(fresh[name] - share) > max(1, share // 4) or (share == 0 and fresh[name] > 0)
        for name, share in before.items()
    )
    return fresh if changed else before
