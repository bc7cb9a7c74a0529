"""Starting programs in warm replicas ahead of demand, and handing one over with those that a task uses."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Sequence

from osgym_host.core.warm_apps import WarmApp, hand_over_script, start_command, start_script
from osgym_host.guest_client import GuestClient, GuestRefused
from osgym_host.runtimes import base

log = logging.getLogger(__name__)

UP_S = 60.0
"""How long a program may take until a second start finds it; the office suite takes one on an idle core."""
_COMMAND_S = 30.0
_LOOK_S = 0.1
MAX_FAILURES = 3
"""Replicas in a row in which the programs did not come up before it is not tried any more."""
MAX_DUMPS = 3
"""Replicas that may be dumped, or be tried to: clones of each of the earlier ones failed."""
DUMP_S = 30.0
REST_S = 30.0
REST_WINDOW_S = 1.0
REST_CPU = 0.02
"""A desktop rests when it uses at most this part of a core: an idle one uses less than 0.01."""


class Warming:
    """What is done to clean replicas before they are leased. For one event loop.

    Programs are started in them, as far as the image does not have them running. With `clones` the first
    that got so far is dumped, and later ones are clones of it.

    Attributes:
        origin: What clean replicas are made from; None: the image.
    """

    def __init__(
        self,
        runtime: base.Runtime,
        in_image: Sequence[WarmApp] = (),
        wanted: Sequence[WarmApp] = (),
        *,
        clones: bool = False,
    ) -> None:
        """Nothing happens before `prepare`.

        Args:
            in_image: Programs that run in each clone of the image already.
            wanted: Programs to start, unless the image has them.
            clones: Dump the first replica, where the runtime can.
        """
        self.origin: base.BranchPoint | None = None
        self._runtime = runtime
        self._in_image = tuple(in_image)
        held = {app.program.name for app in in_image}
        to_start = [app for app in wanted if app.program.name not in held]
        self._shared = tuple(app for app in to_start if clones and app.program.has_no_sandbox)
        self._in_each = tuple(app for app in to_start if app not in self._shared)
        self._clones = clones
        self._dumps = 0
        self._dumping = False
        self._failures = 0
        self._points: set[str] = set()
        self._releases: set[asyncio.Task[None]] = set()

    def made(self, origin: base.BranchPoint) -> bool:
        """Whether a branch point is of a replica that nobody had used."""
        return origin.point_id in self._points

    async def prepare(self, replica: base.Replica, guest: GuestClient) -> tuple[WarmApp, ...]:
        """Bring a desktop that is ready, and that nobody has used, as far as is wanted.

        A program that does not come up is ended, and the desktop has none of those that come with it.

        Returns:
            The programs that run in it.

        Raises:
            GuestError: The replica is lost, or no clean one any more.
        """
        if replica.spec.origin is not None:
            running = (*self._in_image, *self._shared)
        else:
            running = (*self._in_image, *await self._started(guest, self._shared))
            complete = len(running) == len(self._in_image + self._shared)
            if complete and self._clones and self.origin is None and not self._dumping:
                self._dumping = True
                try:
                    await self._dump(replica, guest)
                finally:
                    self._dumping = False
        return (*running, *await self._started(guest, self._in_each))

    def failed(self, origin: base.BranchPoint) -> None:
        """A clone of `origin` could not be made: drop it. Idempotent."""
        if self.origin == origin:
            self.origin = None
            task = asyncio.create_task(self._release(origin), name=f"release:{origin.point_id}")
            self._releases.add(task)
            task.add_done_callback(self._releases.discard)

    async def _release(self, point: base.BranchPoint) -> None:
        try:
            await self._runtime.release_point(point)
        except (base.RuntimeFault, OSError) as error:
            log.warning("warm_clones: a point was not released: %s", error)

    async def _started(self, guest: GuestClient, apps: Sequence[WarmApp]) -> Sequence[WarmApp]:
        """Start all of them, or none; return what runs."""
        if not apps or self._failures >= MAX_FAILURES:
            return ()
        try:
            for app in apps:
                await open_app(guest, app)
        except GuestRefused as error:
            self._failures += 1
            ends = self._failures == MAX_FAILURES
            log.warning("warm_apps: %s%s", error, "; not tried any more" if ends else "")
            await hand_over(guest, (), apps)
            return ()
        self._failures = 0
        return apps

    async def _dump(self, replica: base.Replica, guest: GuestClient) -> None:
        """Make a replica that nobody has used what later ones are cloned from; it goes on."""
        if self._dumps >= MAX_DUMPS or (lacking := self._runtime.why_no_templates()) is not None:
            self._clones = False
            log.warning("warm_clones: %s", "they failed" if self._dumps >= MAX_DUMPS else lacking)
            return
        self._dumps += 1
        try:
            if not await self._rests(replica):
                log.warning("warm_clones: the desktop did not come to rest within %g s", REST_S)
                return
            await self._runtime.witness(replica)
            guest.drop_idle()  # a clone has none of this host's connections
            async with asyncio.timeout(DUMP_S):
                point = await self._runtime.branch(replica)
        except (base.RuntimeFault, OSError, TimeoutError) as error:
            log.warning("warm_clones: not dumped: %s", error)
            return
        self._points.add(point.point_id)
        self.origin = point

    async def _rests(self, replica: base.Replica) -> bool:
        """Wait until a desktop computes next to nothing; False when it never does."""
        until = time.monotonic() + REST_S
        before = self._runtime.used_cpu_s(replica)
        while before is not None and time.monotonic() < until:
            await asyncio.sleep(REST_WINDOW_S)
            used = self._runtime.used_cpu_s(replica)
            if used is None or used - before <= REST_CPU * REST_WINDOW_S:
                break
            before = used
        return time.monotonic() < until


async def open_app(guest: GuestClient, app: WarmApp, up_s: float = UP_S) -> None:
    """Start a program without a window, and wait until it runs and nothing is at work any more.

    Raises:
        GuestError: It did not come up within `up_s`, or the guest agent failed.
    """
    await _run(guest, start_script(app))
    await guest.launch(start_command(app), timeout_s=_COMMAND_S)
    await guest.execute_with_verification(
        ["true"],
        verification={"command_success": app.program.is_up},
        max_wait_s=up_s,
        check_interval_s=_LOOK_S,
        timeout_s=up_s + _COMMAND_S,
    )
    await guest.ready(timeout_s=up_s)


async def hand_over(guest: GuestClient, used: Sequence[WarmApp], unused: Sequence[WarmApp]) -> None:
    """Leave the used programs to whoever gets the desktop; of the others nothing is left.

    Raises:
        GuestError: Something is left, or the guest agent failed: it is no clean desktop any more.
    """
    if used or unused:
        await _run(guest, hand_over_script(used, unused))


async def _run(guest: GuestClient, script: str) -> None:
    result = await guest.execute(["/bin/sh", "-c", script], timeout_s=_COMMAND_S)
    if result.returncode != 0:
        said = result.error.strip()[-300:]
        raise GuestRefused(
            500, "warm_apps", f"a script of warm_apps ended with {result.returncode}: {said}", {}
        )
