"""Zooms that models ask for: parts of the screen at full resolution, taken without a step."""

from __future__ import annotations

from collections.abc import Iterable

from osgym_protocol.grammars import Call, Parsed
from osgym_sdk._episode.episode import AsyncObservation
from osgym_sdk._models.observation import Observation

MAX_LOOKS = 10
"""Answers of a model in a row that only look; what follows is a step, so that episodes end."""
MAX_ENLARGEMENT = 4
"""Factor of a zoom; a larger one shows the same pixels and costs tokens."""
_LOOKS = frozenset(("zoom", "cursor_position"))


def only_looks(parsed: Parsed) -> bool:
    """Tell an output whose calls can all be answered without a step."""
    looks = bool(parsed.calls) and all(call.look in _LOOKS for call in parsed.calls)
    return looks and not parsed.actions and parsed.ending is None


def zoom_size(region: tuple[int, int, int, int], bounds: tuple[int, int]) -> tuple[int, int]:
    """Return width and height of a zoom's image: the region's shape, as large as fits into `bounds`.

    Args:
        region: x, y, width, height in pixels of the screen.
        bounds: size of the image that the model saw, which suits it.
    """
    width, height = region[2:]
    scale = min(bounds[0] / width, bounds[1] / height, MAX_ENLARGEMENT)
    return max(1, round(width * scale)), max(1, round(height * scale))


async def take_zooms(obs: Observation, calls: Iterable[Call]) -> dict[str, bytes]:
    """Return a PNG for each zoom among the calls, under the call's id.

    They are taken of the screen as it is now. Where the observation belongs to no episode, there are none.

    Raises:
        OSGymError: as for a step.
    """
    episode = obs.episode if isinstance(obs, AsyncObservation) else None
    taken: dict[str, bytes] = {}
    for call in calls:
        if episode is not None and call.look == "zoom" and call.region is not None:
            cut = await episode.zoom(call.region, size=zoom_size(call.region, obs.size))
            taken[call.call_id] = cut.png
    return taken
