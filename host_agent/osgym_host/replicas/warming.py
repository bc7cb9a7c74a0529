"""Warm programs: started in replicas ahead of demand, and handed over to tasks that use them."""

from __future__ import annotations

import asyncio
import logging
import time
from collections import Counter
from collections.abc import Callable, Sequence

from osgym_host.core.warm_apps import WarmApp, end_script, hand_over_script, start_command, start_script
from osgym_host.guest_client import GuestClient, GuestRefused
from osgym_host.logs import escape_controls
from osgym_host.replicas.saved_desktops import SavedDesktop, SavedDesktops
from osgym_host.runtimes import base

log = logging.getLogger(__name__)

UP_S = 60.0
"""Longest wait until a second start finds the program; the office suite takes one on an idle core."""
_COMMAND_S = 30.0
_LOOK_S = 0.1
MAX_FAILURES = 3
"""Number of failed starts in a row after which a program is not tried again."""
MAX_DUMPS = 3
"""Number of dumps in a row without a ready clone after which no dump is made."""
PREPARE_S = 240.0
"""Deadline of all preparations: two programs that do not start, rest and dump."""
REST_S = 30.0
REST_WINDOW_S = 1.0
REST_CPU = 0.02
"""Share of a core below which a desktop rests; an idle one uses less than 0.01."""


class Warming:
    """Prepares clean replicas before they are leased. For one event loop.

    Programs are started in them, as far as the image does not have them running. With `clones` the first
    that got so far is dumped, and later ones are clones of it.

    Attributes:
        somebody_waits: Function that tells whether clients wait; then no program is started.
    """

    def __init__(
        self,
        saved: SavedDesktops,
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
        self.somebody_waits: Callable[[], bool] = lambda: False
        self._saved = saved
        self._runtime = saved.runtime
        self._dump: SavedDesktop | None = None
        self._dumped_apps: tuple[WarmApp, ...] = ()
        self._in_image = tuple(in_image)
        held = {app.program.name: app for app in in_image}
        to_start = [app for app in wanted if app.program.name not in held]
        for app in wanted:
            if held.get(app.program.name, app) != app:
                log.warning("warm_apps: the image already runs %s with other options", app.program.name)
        self._before_dump = [app for app in to_start if clones and app.program.has_no_sandbox]
        self._in_each = [app for app in to_start if app not in self._before_dump]
        self._clones = clones
        self._dumps = 0
        self._dumping = False
        self._failures: Counter[str] = Counter()

    @property
    def origin(self) -> base.BranchPoint | None:
        """Branch point of an unused replica that clean ones are made from; None: they are of the image."""
        return None if self._dump is None else self._dump.point

    async def prepare(self, replica: base.Replica, guest: GuestClient) -> tuple[WarmApp, ...]:
        """Start programs in a ready desktop that nobody has used; dump the first such desktop.

        A program that does not come up is ended, and the desktop goes without it.

        Returns:
            The programs that run in it.

        Raises:
            GuestError: The replica is lost, or no clean one any more.
            TimeoutError: It took longer than `PREPARE_S`.
        """
        async with asyncio.timeout(PREPARE_S):
            if replica.spec.origin is not None:
                running = self._dumped_apps
                self._dumps = 0
            else:
                running = (*self._in_image, *await self._started(guest, self._before_dump))
                wanted = [app for app in self._before_dump if not self._is_given_up(app)]
                complete = set(wanted) <= set(running)
                if self._clones and complete and self._dump is None and not self._dumping:
                    await self._save(replica, guest, running)
            in_each = [] if self.somebody_waits() else self._in_each
            return (*running, *await self._started(guest, in_each))

    def failed(self, origin: base.BranchPoint) -> None:
        """Release `origin`, of which a clone failed. Idempotent."""
        if self._dump is not None and self._dump.point == origin:
            self._saved.release(self._dump)
            self._dump = None

    def _is_given_up(self, app: WarmApp) -> bool:
        return self._failures[app.program.name] >= MAX_FAILURES

    async def _started(self, guest: GuestClient, apps: Sequence[WarmApp]) -> list[WarmApp]:
        """Start programs; return those that are running."""
        running = []
        for app in apps:
            name = app.program.name
            if self._is_given_up(app):
                continue
            try:
                await open_app(guest, app)
            except GuestRefused as error:
                self._failures[name] += 1
                ends = "; it is not tried again" if self._is_given_up(app) else ""
                log.warning("warm_apps: %s: %s%s", name, escape_controls(str(error)), ends)
                await _run(guest, end_script(app))
            else:
                self._failures[name] = 0
                running.append(app)
        return running

    async def _save(self, replica: base.Replica, guest: GuestClient, running: tuple[WarmApp, ...]) -> None:
        """Make a branch point of an unused replica for later ones; the replica continues."""
        lacking = self._runtime.why_no_warm_clones()
        if self._dumps >= MAX_DUMPS:
            lacking = f"{MAX_DUMPS} dumps could not be cloned"
        if lacking is not None:
            self._clones = False
            log.warning("warm_clones: replicas are made from the image: %s", lacking)
            return
        self._dumps += 1
        self._dumping = True
        try:
            if not await self._rests(replica):
                log.warning("warm_clones: the desktop did not come to rest within %g s", REST_S)
                return
            guest.drop_idle()  # a clone has none of this host's connections
            await self._runtime.witness(replica)
            self._dump = self._saved.add(SavedDesktop(await self._saved.take(replica)))
        except (base.RuntimeFault, OSError) as error:
            log.warning("warm_clones: the first replica could not be dumped: %s", escape_controls(str(error)))
            return
        finally:
            self._dumping = False
        self._dumped_apps = running
        log.info("warm_clones: replicas are clones of %s from now on", replica.replica_id)

    async def _rests(self, replica: base.Replica) -> bool:
        """Wait until a desktop is idle; return False if it never is."""
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
    """Start a program without a window, and wait until it runs and the desktop is idle.

    Raises:
        GuestError: The program did not start within `up_s`, or the guest agent failed.
    """
    await _run(guest, start_script(app))
    await guest.launch(start_command(app), timeout_s=_COMMAND_S)
    await guest.execute_with_verification(
        ["true"],
        verification={"command_success": app.program.is_up},
        max_wait_s=up_s,
        check_interval_s=_LOOK_S,
        timeout_s=_COMMAND_S,
    )
    await guest.ready(timeout_s=up_s)


async def hand_over(guest: GuestClient, used: Sequence[WarmApp], unused: Sequence[WarmApp]) -> None:
    """Keep the used programs and end the others without a trace.

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
