"""Work in the middle of which a desktop is branched: text that is in an application and in no file.

A session is a task to begin with, actions that type, and a way to read the application's real text: save, and
read the file inside the guest.
"""

from __future__ import annotations

import asyncio
import contextlib
import time
from dataclasses import dataclass
from typing import Any

from benchmarks.vm_common import Service
from osgym_host.tasks.shipped import load_shipped
from osgym_sdk import AsyncEpisode, AsyncObservation

SAVED_WITHIN_S = 60.0
"""Time for saving: the first time takes an emulated office suite 5 to 20 s, more on a busy machine."""
CLOSED_S = 15.0
"""Time after which a dialog that took its answer is gone."""
DIALOG = "DISPLAY=:0 wmctrl -l | grep -q ' Save'"
"""Command that finds an open window to save in."""
_READ_ODS = (
    "import re,zipfile;"
    "print(''.join(re.findall('<text:p>(.*?)</text:p>',"
    "zipfile.ZipFile('{path}').read('content.xml').decode())))"
)


@dataclass(frozen=True)
class Session:
    """Work with one application.

    Attributes:
        task: Task of `tasks/` that opens the application; empty when it is open already.
        place: Place to click before typing.
        settled: Keys that end the typing before it is saved.
        read: Command of the guest that prints the text in that file.
    """

    name: str
    task: str
    place: tuple[int, int]
    settled: tuple[str, ...]
    path: str
    read: str

    def begin_with(self) -> dict[str, Any] | None:
        """Return the task of an episode; None for none."""
        found = [known.task for known in load_shipped() if known.name == self.task]
        return dict(found[0]) if found else None

    async def begin(self, episode: AsyncEpisode, text: str) -> None:
        """Place the caret and type."""
        x, y = self.place
        await episode.step({"op": "click", "x": x, "y": y})
        await self.type(episode, text)

    async def type(self, episode: AsyncEpisode, text: str) -> AsyncObservation:
        return await episode.step({"op": "type", "text": text})

    async def saved_text(self, service: Service, episode: AsyncEpisode) -> str:
        """Save by keyboard and dialog, and read the file.

        Raises:
            TimeoutError: The dialog or the file did not appear.
        """
        for key in self.settled:
            await episode.step({"op": "key", "keys": [key]})
        await episode.step({"op": "key", "keys": ["ctrl", "s"]})
        replica_id = episode.trajectory.replica_id
        assert replica_id is not None
        end = time.monotonic() + SAVED_WITHIN_S
        await self._until(service, replica_id, DIALOG, end)
        # A dialog that is still being built loses keys: then it stays, and is told again.
        while await self._holds(service, replica_id, DIALOG):
            await episode.step(
                [
                    {"op": "wait", "duration_ms": 500},
                    {"op": "key", "keys": ["ctrl", "a"]},
                    {"op": "type", "text": self.path},
                    {"op": "wait", "duration_ms": 500},
                ]
            )
            await episode.step({"op": "key", "keys": ["enter"]})
            with contextlib.suppress(TimeoutError):
                await self._until(service, replica_id, f"! ({DIALOG})", min(end, time.monotonic() + CLOSED_S))
            if time.monotonic() > end:
                break
        await self._until(service, replica_id, f"test -s {self.path}", end)
        return (await service.inside(replica_id, self.read)).strip()

    async def _until(self, service: Service, replica_id: str, condition: str, end: float) -> None:
        while not await self._holds(service, replica_id, condition):
            if time.monotonic() > end:
                seen = await service.inside(replica_id, "DISPLAY=:0 wmctrl -l; ls -lt ~ ~/*/ | head -30")
                raise TimeoutError(f"{self.name}: not in time: {condition}\n{seen}")
            await asyncio.sleep(0.5)

    async def _holds(self, service: Service, replica_id: str, condition: str) -> bool:
        return "yes" in await service.inside(replica_id, f"{condition} && echo yes; true")


CALC = Session(
    name="Calc, a cell being edited",
    task="",
    place=(300, 300),
    settled=("enter",),
    path="/home/user/branch.ods",
    read=f'python3 -c "{_READ_ODS.format(path="/home/user/branch.ods")}"',
)
EDITOR = Session(
    name="Mousepad",
    task="mousepad/write-note",
    place=(760, 500),
    settled=(),
    path="/home/user/branch.txt",
    read="cat /home/user/branch.txt",
)


def session_of(image: str, snapshot: str) -> Session:
    return CALC if snapshot.startswith("calc") else EDITOR
