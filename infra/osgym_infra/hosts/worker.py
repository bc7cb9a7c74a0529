"""Brings a host up, looks at it, takes it down. Every way out but success says what was left."""

from __future__ import annotations

import asyncio
import shlex
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path

from osgym_infra.fleet.boot import TARGET, env_file
from osgym_infra.hosts import tls
from osgym_infra.hosts.errors import (
    CommandFailed,
    ConnectionLost,
    FleetHostError,
    FleetHostUnreachable,
    HostKeyMismatch,
    Interrupted,
    LoginRefused,
    UnfitHost,
)
from osgym_infra.hosts.inspection import inspect_host
from osgym_infra.hosts.local import LocalTransport
from osgym_infra.hosts.spec import (
    STEP_TIMEOUTS_S,
    TOKEN_FILE,
    ArchiveSource,
    HostSpec,
    ObservedHost,
    drift,
    host_settings,
    uploads,
)
from osgym_infra.hosts.ssh import SshTransport
from osgym_infra.hosts.transport import LOCAL, OutputListener, Transport, check, write

UPLOAD_S = 7200.0
DOWN_S = 600.0
RESTART_S = 300.0
"""How long a host that went away in the middle may take to come back: a reboot of a big machine."""
MOST_RESTARTS = 3
TLS = "/etc/osgym/tls"
CACHE = "/var/cache/osgym"
_RETRY_S = 2.0


def _utc_now() -> datetime:
    return datetime.now(UTC)


@dataclass(frozen=True, slots=True)
class Worker:
    """Works on one host.

    Attributes:
        files: the bootstrap.
        say: gets a line for each thing done; never a secret.
        restart_s: see `RESTART_S`.
    """

    spec: HostSpec
    files: Mapping[str, bytes]
    say: OutputListener
    now: Callable[[], datetime] = _utc_now
    restart_s: float = RESTART_S

    @property
    def name(self) -> str:
        """The host as users know it."""
        return LOCAL if self.spec.is_local else self.spec.at.name

    def transport(self) -> Transport:
        """A connection to the host, not yet made."""
        return LocalTransport() if self.spec.is_local else SshTransport(self.spec.at)

    async def bring_up(self) -> ObservedHost:
        """From whatever the host is to a serving host. Safe to repeat: what is right is left alone.

        Raises:
            HostError: what failed; `touched` says whether the host may have been changed. Everything that
                was run there has been stopped.
            Interrupted: this task was cancelled; the same holds.
        """
        transport = self.transport()
        touched = False
        step = ""

        def doing(name: str) -> None:
            nonlocal touched, step
            touched, step = True, name

        try:
            return await self._persist(transport, doing)
        except asyncio.CancelledError:
            where = f"interrupted in step {step}" if step else "interrupted"
            hint = "; it is half configured, and running up again goes on" if touched else ""
            raise Interrupted(transport.name, where + hint, touched=touched) from None
        except FleetHostError as error:
            error.touched = touched
            error.step = error.step or step
            raise
        finally:
            await _closed(transport)

    async def inspect(self) -> ObservedHost:
        """Return what is on the host now.

        Raises:
            HostError: the host cannot be inspected.
        """
        transport = self.transport()
        try:
            await transport.connect()
            return await inspect_host(transport)
        finally:
            await _closed(transport)

    def drift(self, found: ObservedHost) -> list[str]:
        """What is not as it shall be."""
        return drift(found, self.spec, self.now())

    async def tear_down(self) -> None:
        """Remove everything that `bring_up` made, images and data too. Safe to repeat.

        Raises:
            HostError: something is left, or nobody knows.
        """
        transport = self.transport()
        try:
            await transport.connect()
            # Put there anew: a host that is half configured may have an older one, or none.
            await self._place_files(transport)
            self.say("removing everything")
            await self._bootstrap(transport, ["down", "--purge"], DOWN_S)
            await check(transport, ["rm", "-rf", TARGET, CACHE], timeout_s=60)
        except asyncio.CancelledError:
            raise Interrupted(transport.name, "interrupted while it was taken down", touched=True) from None
        finally:
            await _closed(transport)

    async def _persist(self, transport: Transport, doing: OutputListener) -> ObservedHost:
        """All steps; when the host goes away in the middle, all of them again once it is back."""
        await transport.connect()
        for restarts in range(MOST_RESTARTS + 1):
            try:
                return await self._all_steps(transport, doing)
            except ConnectionLost as error:
                if restarts == MOST_RESTARTS:
                    raise
                self.say(f"{error.problem}; waiting for the host to come back")
                await self._reconnect(transport, error)
        raise AssertionError("not reached")

    async def _reconnect(self, transport: Transport, lost: ConnectionLost) -> None:
        end = time.monotonic() + self.restart_s
        while True:
            try:
                await transport.connect()
                return
            except (HostKeyMismatch, LoginRefused):
                raise
            except FleetHostUnreachable as error:
                if time.monotonic() > end:
                    problem = f"{lost.problem}, and it did not come back within {self.restart_s:g} s"
                    raise FleetHostUnreachable(transport.name, problem) from error
            await asyncio.sleep(_RETRY_S)

    async def _all_steps(self, transport: Transport, doing: OutputListener) -> ObservedHost:
        spec = self.spec
        found = await inspect_host(transport)
        if found.unfit:
            raise UnfitHost(transport.name, found.unfit)
        if found.user_id != 0:
            raise LoginRefused(transport.name, f"commands run there as user {found.user_id}, not as root")
        doing("files")
        await self._place_files(transport)
        await self._place_secrets(transport, found)
        needed = {source.lower(): (source, path) for source, path in uploads(spec, found).items()}
        for name, timeout_s in STEP_TIMEOUTS_S.items():
            doing(name)
            if name in needed:
                await self._upload(transport, *needed[name])
            await self._bootstrap(transport, ["up", name], timeout_s, name)
        doing("last look")
        await check(transport, ["rm", "-rf", CACHE])
        found = await inspect_host(transport)
        if wrong := self.drift(found):
            raise FleetHostError(transport.name, f"all steps were done, and yet: {'; '.join(wrong)}")
        return found

    async def _upload(self, transport: Transport, source: ArchiveSource, path: Path) -> None:
        """Only when its step comes, so that what fails before costs no upload."""
        self.say(f"uploading {path.name}")
        if not await asyncio.to_thread(path.is_file):
            raise FleetHostError(transport.name, f"{path} (of {source.uri}) is not here to be uploaded")
        await write(transport, source.remote, path, mode="600", timeout_s=UPLOAD_S)

    async def _place_files(self, transport: Transport) -> None:
        for name, data in sorted(self.files.items()):
            await write(transport, f"{TARGET}/{name}", data, mode="755")
        settings = env_file(host_settings(self.spec)).encode()
        await write(transport, "/etc/osgym/bootstrap.env", settings)

    async def _place_secrets(self, transport: Transport, found: ObservedHost) -> None:
        spec = self.spec
        await write(transport, TOKEN_FILE, f"{spec.token}\n".encode(), mode="600")
        await write(transport, f"{TLS}/ca.pem", spec.ca.certificate.encode())
        if not tls.is_still_valid(found.certificate, spec.ca.certificate, spec.addresses, self.now()):
            # The key is made here and goes to the host's disk: it is kept nowhere else.
            pair = tls.issue(spec.ca, spec.addresses, self.now())
            await write(transport, f"{TLS}/key.pem", pair.key.encode(), mode="600")
            await write(transport, f"{TLS}/cert.pem", pair.certificate.encode())

    async def _bootstrap(
        self, transport: Transport, words: list[str], timeout_s: float, step: str = ""
    ) -> None:
        argv = [f"{TARGET}/bootstrap.sh", *words]
        done = await transport.run(argv, timeout_s=timeout_s, on_output=self._on_output)
        if done.exit_code != 0:
            raise CommandFailed(transport.name, shlex.join(argv), done.exit_code, done.output, step)

    def _on_output(self, line: str) -> None:
        if line.startswith("osgym: "):
            self.say(line.removeprefix("osgym: "))


async def _closed(transport: Transport) -> None:
    await asyncio.shield(asyncio.ensure_future(transport.close()))
