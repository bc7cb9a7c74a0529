"""Videos of the screen, made by ffmpeg."""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import tempfile
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from osgym_guest.osworld.process import ChildProcess, PipeSink, open_sink, start
from osgym_guest.osworld.session import DesktopSession

FRAMES_PER_S = 15
MAX_DURATION_S = 2 * 3600
MAX_BYTES = 1 << 30
START_TIMEOUT_S = 5.0
STOP_TIMEOUT_S = 15.0
POLL_S = 0.05
STDERR_BYTES = 16 * 1024


@dataclass(frozen=True)
class RecordingBounds:
    """Bounds at which a recording ends by itself, and the interval at which they are checked."""

    frames_per_s: int = FRAMES_PER_S
    max_s: float = MAX_DURATION_S
    max_bytes: int = MAX_BYTES


class ScreenRecorder:
    """Makes one recording at a time.

    Args:
        screen_size: Returns width and height of the screen.
        session: Session that names its display.
    """

    def __init__(self, screen_size: Callable[[], tuple[int, int]], session: DesktopSession):
        self._screen_size = screen_size
        self._session = session
        self._running: tuple[ChildProcess, PipeSink] | None = None
        self.path = Path(tempfile.gettempdir()) / "osworld_recording.mp4"
        self.lock = asyncio.Lock()
        self.recording_id = ""
        """Id of the last recording; empty for OSWorld's, which have none."""

    @property
    def running(self) -> bool:
        """Whether a recording is being made."""
        return self._running is not None and self._running[0].returncode is None

    @property
    def started(self) -> bool:
        """Whether there is a recording to stop, which may have ended at its bounds."""
        return self._running is not None

    async def start(self, bounds: RecordingBounds = RecordingBounds(), recording_id: str = "") -> str | None:
        """Start recording; return the error, or None when the first bytes are written.

        Raises:
            OSError: There is no ffmpeg.
        """
        self.path.unlink(missing_ok=True)
        self.recording_id = ""
        width, height = self._screen_size()
        grab = ["-f", "x11grab", "-draw_mouse", "1", "-framerate", str(bounds.frames_per_s)]
        source = ["-video_size", f"{width}x{height}", "-i", self._session.env["DISPLAY"]]
        ends = ["-t", str(bounds.max_s), "-fs", str(bounds.max_bytes)]
        encode = ["-c:v", "libx264", "-preset", "ultrafast", "-crf", "28", "-pix_fmt", "yuv420p"]
        # fragments: what is written so far can be played even when it is not ended properly
        output = ["-movflags", "+frag_keyframe+empty_moov", str(self.path)]
        command = ["ffmpeg", "-nostdin", "-hide_banner", "-loglevel", "error", "-y", *grab, *source]
        write_end, said = await open_sink(STDERR_BYTES)
        try:
            child = await start([*command, *ends, *encode, *output], self._session, stderr=write_end)
        finally:
            os.close(write_end)
        self._running = (child, said)
        loop = asyncio.get_running_loop()
        deadline = loop.time() + START_TIMEOUT_S
        while not (self.path.exists() and self.path.stat().st_size > 0):
            if child.returncode is not None or loop.time() >= deadline:
                await self.stop()
                return said.take().strip() or "ffmpeg wrote nothing"
            await asyncio.sleep(POLL_S)
        self.recording_id = recording_id
        return None

    async def stop(self) -> str | None:
        """End the recording; return the error, or None when the file is complete."""
        if self._running is None:
            return "no recording is running"
        child, said = self._running
        self._running = None
        if child.returncode is None:
            with contextlib.suppress(ProcessLookupError):
                os.kill(child.pid, signal.SIGINT)
        try:
            await asyncio.wait_for(child.wait(), STOP_TIMEOUT_S)
        except asyncio.TimeoutError:
            child.kill_session()
            return f"ffmpeg did not end within {STOP_TIMEOUT_S:g} seconds"
        if not self.path.exists() or self.path.stat().st_size == 0:
            return said.take().strip() or "the recording is empty"
        return None
