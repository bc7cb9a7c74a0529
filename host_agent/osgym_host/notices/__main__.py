"""Process that watches a cloud's metadata service, and writes its notices into a file for the host agent.

    python -m osgym_host.notices aws|gcp|… PATH

For hosts where the agent's own account must not reach the metadata service, because a guest that broke out
into that account would get the host's role with it: this process has an account of its own. The file is there
while there is a notice; `PATH.failing` is there until the service first answers, and while it does not any
more.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import logging
import os
import signal
import sys
from pathlib import Path

from osgym_host.core.draining import DrainNotices
from osgym_host.notices.sources import FAILING, METADATA_URL, sources_of
from osgym_host.notices.watch import NoticeWatch
from osgym_host.whole_file import write_whole
from osgym_protocol.host_api import Notice
from osgym_protocol.plugins import PluginGroup, plugin_names

log = logging.getLogger(__name__)

LOOK_S = 0.25


class NoticeWriter:
    """Writes the file as the sources report, once all of them have."""

    def __init__(self, path: Path, sources: int) -> None:
        """Write nothing yet: the file of a former process holds until the sources have reported."""
        self._path = path
        self._sources = sources
        self._heard: set[str] = set()
        self._drain = DrainNotices()

    @property
    def all_reported(self) -> bool:
        return len(self._heard) == self._sources

    def tell(self, source: str, notice: Notice | None) -> None:
        self._heard.add(source)
        self._drain = self._drain.updated(source, notice)
        found = self._drain.notice
        if found is not None:
            _place(self._path, json.dumps(found.to_dict()))
        elif self.all_reported:
            self._path.unlink(missing_ok=True)

    def failing(self, why: str) -> None:
        """Record the failure of a source, or its end with an empty reason."""
        path = Path(f"{self._path}{FAILING}")
        if why:
            _place(path, why[:500])
        else:
            path.unlink(missing_ok=True)


def _place(path: Path, text: str) -> None:
    """Replace a file atomically, unless it has this text already."""
    with contextlib.suppress(FileNotFoundError, UnicodeDecodeError):
        if path.read_text(encoding="utf-8") == text:
            return
    write_whole(path, text.encode(), 0o644)


async def watch(setting: str, path: Path, url: str) -> None:
    """Watch until SIGTERM or SIGINT.

    Raises:
        OSError: The file cannot be written.
    """
    sources = sources_of(setting, url)
    writer = NoticeWriter(path, len(sources))
    watched = NoticeWatch(sources, writer.tell)
    stop = asyncio.Event()
    for sig in (signal.SIGINT, signal.SIGTERM):
        asyncio.get_running_loop().add_signal_handler(sig, stop.set)
    watched.start()
    try:
        while not stop.is_set():
            silent = "" if writer.all_reported else "no notice yet"
            writer.failing(next((w.why for w in watched.watchers if w.why), silent))
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(LOOK_S):
                    await stop.wait()
    finally:
        await watched.close()


def main() -> None:
    """Run as a process."""
    if len(sys.argv) != 3 or sys.argv[1] not in plugin_names(PluginGroup.NOTICES):
        sys.exit(__doc__)
    logging.basicConfig(level=logging.INFO, format="%(levelname)s %(message)s")
    logging.getLogger("httpx").setLevel(logging.WARNING)
    url = os.environ.get("OSGYM_TEST_METADATA", METADATA_URL)
    asyncio.run(watch(sys.argv[1], Path(sys.argv[2]), url))


if __name__ == "__main__":
    main()
