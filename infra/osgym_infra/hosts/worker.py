"""Work on one host: bring-up, inspection, tear-down. Every failure says what was left."""

from __future__ import annotations

import asyncio
import contextlib
import shlex
import time
from collections.abc import AsyncIterator, Callable, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path

from osgym_infra.fleet.boot import DATA, TARGET, env_file
from osgym_infra.hosts import hold_drained, tls
from osgym_infra.hosts.rollout import REMEDY, Rollout, Turn, UpdateStopped
from osgym_infra.hosts.spec import (
    FIRST_LIVE_STEP,
    STEP_TIMEOUTS_S,
    TOKEN_FILE,
    ArchiveSource,
    HostSpec,
    ObservedHost,
    digest_of,
    drift,
    host_settings,
    read_state,
    uploads,
)
from osgym_infra.links.access import LOCAL
from osgym_infra.links.errors import (
    CommandFailed,
    ConnectionLost,
    FleetHostError,
    FleetHostUnreachable,
    HostKeyMismatch,
    Interrupted,
    LoginRefused,
    UnfitHost,
)
from osgym_infra.links.link import HostLink, OutputListener, check, write
from osgym_infra.links.local import LocalLink
from osgym_infra.links.ssh import SshLink

UPLOAD_S = 7200.0
DOWN_S = 600.0
RESTART_S = 300.0
"""Time that a lost host gets to come back: a reboot of a big machine."""
MOST_RESTARTS = 3
TLS = "/etc/osgym/tls"
CACHE = "/var/cache/osgym"
SETTINGS = "/etc/osgym/bootstrap.env"
NEXT_SETTINGS = "/etc/osgym/bootstrap.next.env"
"""Desired settings, staged until this host's update begins; until then `SETTINGS` describes the host."""
BOOTSTRAP = f"{TARGET}/bootstrap.sh"
BOOTSTRAP_NEXT = ("env", f"OSGYM_BOOTSTRAP_ENV={NEXT_SETTINGS}", BOOTSTRAP)
LAST_LOOK = "last look"
_STEPS = tuple(STEP_TIMEOUTS_S)
BESIDE_STEPS = _STEPS[: _STEPS.index(FIRST_LIVE_STEP)]
"""Steps beside a running agent, on all hosts at once."""
LIVE_STEPS = (*_STEPS[_STEPS.index(FIRST_LIVE_STEP) :], LAST_LOOK)
"""Steps that concern the running agent; a failure here stops the update of the other hosts."""
_RETRY_S = 2.0
HELD_S = 1800.0
"""Longest time that a host is held for its update: more than the following steps may take together."""
HOLD_SCRIPT = f"{TARGET}/hold_drained.py"


LOOK_S = 60.0

# Prints one flat JSON object of texts, cut to what cannot break it; a certificate's line ends are `|`.
LOOK_SCRIPT = f"""exec 2>/dev/null
say() {{ printf '"%s": "%s"' "$1" "$(printf '%s' "$2" | tr -cd 'A-Za-z0-9 .:_|/+=-' | head -c 20000)"; }}
status=$({TARGET}/bootstrap.sh status 2>/dev/null)
part() {{ printf '%s' "$status" | sed -n "s/.*\\"$1\\": \\"\\{{0,1\\}}\\([a-z0-9:]*\\).*/\\1/p"; }}
holding() {{ cd "$2" && for d in *; do [ -e "$d/$1" ] && printf '%s ' "$d"; done; }}
# What the agent itself says. The token goes through a pipe, never through an argument that others could see.
asked() {{ sed -n 's/^OSGYM_TOKEN=/Authorization: Bearer /p' /etc/osgym/secret.env |
  curl -fsS -m 10 --noproxy '*' --cacert /etc/osgym/tls/ca.pem -H @- "https://127.0.0.1:$(part port)$1"; }}
[ -r /etc/os-release ] && . /etc/os-release
printf '{{'; say uid "$(id -u)"
printf ', '; say system "$ID"
printf ', '; say version "$VERSION_ID"
printf ', '; say machine "$(uname -m)"
printf ', '; say agent "$(readlink /opt/osgym/current 2>/dev/null)"
printf ', '; say agents "$(holding .complete /opt/osgym)"
data=$(sed -n "s/^OSGYM_DATA='\\{{0,1\\}}\\([^']*\\).*/\\1/p" /etc/osgym/bootstrap.env)
printf ', '; say images "$(holding manifest.json "${{data:-{DATA}}}/images")"
printf ', '; say image_digest "$(part image_digest)"
printf ', '; say image_archive "$(cat /etc/osgym/.image)"
printf ', '; say active "$(part active)"
printf ', '; say serving "$(part serving)"
printf ', '; say admits "$(asked /v1/host | sed -n 's/.*"max_replicas": *\\([0-9]*\\).*/\\1/p')"
printf ', '; say token_digest "$(sha256sum < /etc/osgym/secret.env | cut -c1-64)"
printf ', '; say certificate "$(tr '\\n' '|' < /etc/osgym/tls/cert.pem 2>/dev/null)"
printf '}}\\n'
"""


def _utc_now() -> datetime:
    return datetime.now(UTC)


@dataclass(frozen=True, slots=True)
class Worker:
    """Worker for one host.

    Attributes:
        say: Receives a line for each step; never a secret.
    """

    spec: HostSpec
    files: Mapping[str, bytes]
    say: OutputListener
    now: Callable[[], datetime] = _utc_now
    restart_s: float = RESTART_S
    rollout: Rollout = field(default_factory=Rollout)

    @property
    def name(self) -> str:
        return LOCAL if self.spec.is_local else self.spec.at.name

    def link(self) -> HostLink:
        """Return a link to the host, not yet open."""
        return LocalLink() if self.spec.is_local else SshLink(self.spec.at)

    async def bring_up(self) -> ObservedHost:
        """Bring the host to serve, whatever its state. Safe to repeat: finished parts are left alone.

        An agent that serves is restarted only in its turn, and drained before.

        Raises:
            HostError: What failed; `touched` says whether the host may have been changed. Everything that
                was run there has been stopped.
            UpdateStopped: Another host did not come back, so this one was left as it was.
            Interrupted: This task was cancelled; the same holds.
        """
        link = self.link()
        turn = self.rollout.turn(link.name, self.spec.max_unavailable)
        touched = False
        step = ""

        def doing(name: str) -> None:
            nonlocal touched, step
            touched, step = True, name

        try:
            found = await self._persist(link, turn, doing)
            await turn.end()
            return found
        except UpdateStopped:
            raise  # what was put beside the running agent is no change of the host
        except asyncio.CancelledError:
            where = f"interrupted in step {step}" if step else "interrupted"
            hint = "; the host is partly configured, and `pulumi up` continues there" if touched else ""
            raise Interrupted(link.name, where + hint, touched=touched) from None
        except FleetHostError as error:
            error.touched = touched
            error.step = error.step or step
            if turn.is_taken and error.step in LIVE_STEPS:
                error.problem += REMEDY
                await turn.end(error)
            raise
        finally:
            await turn.end(Interrupted(link.name, "given up"))
            await _closed(link)

    async def inspect(self) -> ObservedHost:
        """Connect and return the findings of a look at the host.

        Raises:
            HostError: The host cannot be inspected.
        """
        link = self.link()
        try:
            await link.connect()
            return await inspect_host(link)
        finally:
            await _closed(link)

    def drift(self, found: ObservedHost) -> list[str]:
        return drift(found, self.spec, self.now())

    async def tear_down(self) -> None:
        """Remove everything that `bring_up` made, images and data too. Safe to repeat.

        Raises:
            HostError: Something is left, or nobody knows.
        """
        link = self.link()
        try:
            await link.connect()
            # Put there anew: a host that is half configured may have an older one, or none.
            await self._place_files(link)
            await self._place_settings(link, SETTINGS)
            if (await inspect_host(link)).active:
                async with held_drained(link, self.spec.drain_timeout_s, self._on_output):
                    pass
            self.say("removing everything")
            await self._bootstrap(link, ["down", "--purge"], DOWN_S)
            await check(link, ["rm", "-rf", TARGET, CACHE], timeout_s=60)
        except asyncio.CancelledError:
            raise Interrupted(
                link.name, "interrupted while the host was removed from the fleet", touched=True
            ) from None
        finally:
            await _closed(link)

    async def _persist(self, link: HostLink, turn: Turn, doing: OutputListener) -> ObservedHost:
        """Run all steps, again from the first when the connection breaks and comes back."""
        await link.connect()
        for restarts in range(MOST_RESTARTS + 1):
            try:
                return await self._all_steps(link, turn, doing)
            except ConnectionLost as error:
                if restarts == MOST_RESTARTS:
                    raise
                self.say(f"{error.problem}; waiting for the host to come back")
                await self._reconnect(link, error)
        raise AssertionError("not reached")

    async def _reconnect(self, link: HostLink, lost: ConnectionLost) -> None:
        end = time.monotonic() + self.restart_s
        while True:
            try:
                await link.connect()
                return
            except (HostKeyMismatch, LoginRefused):
                raise
            except FleetHostUnreachable as error:
                if time.monotonic() > end:
                    problem = f"{lost.problem}, and the host did not come back within {self.restart_s:g} s"
                    raise FleetHostUnreachable(link.name, problem) from error
            await asyncio.sleep(_RETRY_S)

    async def _all_steps(self, link: HostLink, turn: Turn, doing: OutputListener) -> ObservedHost:
        spec = self.spec
        found = await inspect_host(link)
        if found.unfit:
            raise UnfitHost(link.name, found.unfit)
        if found.user_id != 0:
            raise LoginRefused(link.name, f"commands run there as user {found.user_id}, not as root")
        if found.agent and not found.serving:
            await turn.take(serves=False)  # it is away already, and counts
        doing("files")
        await self._place_files(link)
        await self._place_settings(link, NEXT_SETTINGS)
        needed = {source.lower(): (source, path) for source, path in uploads(spec, found).items()}
        for name in BESIDE_STEPS:
            doing(name)
            if name in needed:
                await self._upload(link, *needed[name])
            await self._bootstrap(link, ["up", name], STEP_TIMEOUTS_S[name], name)
        reason = await self._restart_reason(link, found)
        if not reason:
            return await self._live_steps(link, found, doing)
        if not found.serving:
            await turn.take(serves=False)
            return await self._live_steps(link, found, doing)
        if not turn.is_taken:
            self.say("ready for the update, waiting for other hosts")
        await turn.take(serves=True)
        doing("drain")
        self.say(f"draining, since the agent has to be restarted: {reason}")
        async with held_drained(link, spec.drain_timeout_s, self._on_output):
            return await self._live_steps(link, found, doing)

    async def _restart_reason(self, link: HostLink, found: ObservedHost) -> str:
        """Return why the live steps would restart the agent, in a few words; empty: they would not."""
        spec = self.spec
        if not found.active:
            return "the agent does not run"
        if found.agent != spec.agent:
            return "another agent"
        if found.token_digest != digest_of(spec.token):
            return "another token"
        if not self._has_certificate(found):
            return "another certificate"
        output = await check(link, [*BOOTSTRAP_NEXT, "pending"])
        return ", ".join(line.removeprefix("osgym: ") for line in output.splitlines() if line)

    async def _live_steps(self, link: HostLink, found: ObservedHost, doing: OutputListener) -> ObservedHost:
        doing(FIRST_LIVE_STEP)
        await self._place_settings(link, SETTINGS)
        await self._place_secrets(link, found)
        for name in LIVE_STEPS[:-1]:
            doing(name)
            await self._bootstrap(link, ["up", name], STEP_TIMEOUTS_S[name], name)
        doing(LAST_LOOK)
        await check(link, ["rm", "-rf", CACHE])
        found = await inspect_host(link)
        if wrong := self.drift(found):
            raise FleetHostError(link.name, f"all steps succeeded, but: {'; '.join(wrong)}")
        if 0 < found.admits < self.spec.most_replicas:
            self.say(
                f"its agent admits {found.admits} of {self.spec.most_replicas} replicas, since its memory "
                "allows no more"
            )
        return found

    async def _upload(self, link: HostLink, source: ArchiveSource, path: Path) -> None:
        """Upload a file right before its step, so that earlier failures cost no upload."""
        self.say(f"uploading {path.name}")
        if not await asyncio.to_thread(path.is_file):
            raise FleetHostError(
                link.name, f"{path} (of {source.uri}) does not exist here and cannot be uploaded"
            )
        await write(link, source.remote, path, mode="600", timeout_s=UPLOAD_S)

    async def _place_settings(self, link: HostLink, path: str) -> None:
        await write(link, path, env_file(host_settings(self.spec)).encode())

    async def _place_files(self, link: HostLink) -> None:
        for name, data in sorted(self.files.items()):
            await write(link, f"{TARGET}/{name}", data, mode="755")

    async def _place_secrets(self, link: HostLink, found: ObservedHost) -> None:
        spec = self.spec
        await write(link, TOKEN_FILE, f"{spec.token}\n".encode(), mode="600")
        await write(link, f"{TLS}/ca.pem", spec.ca.certificate.encode())
        if not self._has_certificate(found):
            # The key is made here and goes to the host's disk: it is kept nowhere else.
            pair = tls.issue(spec.ca, spec.addresses, self.now())
            await write(link, f"{TLS}/key.pem", pair.key.encode(), mode="600")
            await write(link, f"{TLS}/cert.pem", pair.certificate.encode())

    def _has_certificate(self, found: ObservedHost) -> bool:
        spec = self.spec
        return tls.is_still_valid(found.certificate, spec.ca.certificate, spec.addresses, self.now())

    async def _bootstrap(self, link: HostLink, words: list[str], timeout_s: float, step: str = "") -> None:
        argv = [*(BOOTSTRAP_NEXT if step in BESIDE_STEPS else [BOOTSTRAP]), *words]
        done = await link.run(argv, timeout_s=timeout_s, on_output=self._on_output)
        if done.exit_code != 0:
            raise CommandFailed(link.name, shlex.join(argv), done.exit_code, done.output, step)

    def _on_output(self, line: str) -> None:
        if line.startswith("osgym: "):
            self.say(line.removeprefix("osgym: "))


async def _closed(link: HostLink) -> None:
    await asyncio.shield(asyncio.ensure_future(link.close()))


async def inspect_host(link: HostLink) -> ObservedHost:
    """Return the findings of a look at a connected host, which changes nothing.

    Raises:
        UnfitHost: It does not answer like a Linux machine with a shell.
        HostError: The connection broke, or we may not run commands.
    """
    output = await check(link, ["sh", "-c", LOOK_SCRIPT], timeout_s=LOOK_S)
    try:
        return read_state(output)
    except (ValueError, KeyError, TypeError) as error:
        raise UnfitHost(link.name, f"its answer is malformed: {output[-200:]!r}") from error


@contextlib.asynccontextmanager
async def held_drained(link: HostLink, deadline_s: float, say: OutputListener) -> AsyncIterator[None]:
    """Hold a host drained: entered when no episode is open, and none begins until the block is left.

    Whatever ends the block, the host's agent takes episodes again: what holds it is a process there that ends
    with our connection.

    Args:
        deadline_s: Time that episodes get; then they end with their cause, unscored.

    Raises:
        HostError: The connection broke.
    """
    await write(link, HOLD_SCRIPT, Path(hold_drained.__file__), mode="755")
    drained = asyncio.Event()

    def heard(line: str) -> None:
        if line == f"osgym: {hold_drained.DRAINED}":
            drained.set()
        say(line)

    most_s = deadline_s + hold_drained.END_S + HELD_S
    argv = ["python3", HOLD_SCRIPT, "--deadline-s", f"{deadline_s:g}", "--most-s", f"{HELD_S:g}"]
    holding = asyncio.create_task(link.run(argv, timeout_s=most_s, on_output=heard))
    waiting = asyncio.create_task(drained.wait())
    try:
        await asyncio.wait({holding, waiting}, return_when=asyncio.FIRST_COMPLETED)
        if holding.done() and not drained.is_set():
            done = holding.result()
            raise FleetHostError(link.name, f"the host cannot be drained: {done.output.strip()}", "drain")
        yield
    finally:
        waiting.cancel()
        holding.cancel()
        # It is over, or stopped within moments; what it would still say concerns nobody.
        await asyncio.gather(holding, waiting, return_exceptions=True)
