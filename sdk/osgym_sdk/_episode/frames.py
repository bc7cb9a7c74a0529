"""Cache of an episode's newest image, used again where the host says that nothing changed."""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass

from osgym_sdk._inputs.options import Observe, as_observe
from osgym_sdk.wire import FrameInfo, ObserveOptions


@dataclass(frozen=True, slots=True)
class _CachedFrame:
    options: ObserveOptions
    info: FrameInfo
    data: bytes


class FrameCache:
    """The options of an episode's images, and the newest image."""

    def __init__(self, default: ObserveOptions | None, reuse: bool) -> None:
        self._default = default
        self._reuse = reuse
        self._last: _CachedFrame | None = None

    def options(self, observe: Observe | None) -> ObserveOptions:
        """Return the options of a call, the episode's by default."""
        return as_observe(observe) or self._default or ObserveOptions()

    def unless_hash(self, options: ObserveOptions) -> ObserveOptions:
        """Return the options with the hash of the newest frame, which the host need not send again."""
        last = self._last
        if last is None or options.unless_hash is not None or last.options != options:
            return options
        return dataclasses.replace(options, unless_hash=last.info.hash)

    def image(self, frame: FrameInfo, blob: bytes, options: ObserveOptions) -> tuple[FrameInfo, bytes]:
        """Return the image of an answer, and what it is: what came, or the last one where it is the same."""
        last = self._last
        if frame.unchanged and not blob and last is not None and last.info.hash == frame.hash:
            # Of a frame that it did not send, an older guest says the size of the screen.
            same = dataclasses.replace(
                frame, format=last.info.format, width=last.info.width, height=last.info.height
            )
            return same, last.data
        usual_region = None if self._default is None else self._default.region
        if blob and self._reuse and options.region in (None, usual_region):  # a zoom replaces no frame
            self._last = _CachedFrame(dataclasses.replace(options, unless_hash=None), frame, blob)
        return frame, blob

    def copy(self) -> FrameCache:
        """Return the same for a child, which begins with the same screen."""
        made = FrameCache(self._default, self._reuse)
        made._last = self._last
        return made

    def forget(self) -> None:
        """Drop the image."""
        self._last = None
