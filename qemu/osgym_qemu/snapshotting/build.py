"""Build a golden snapshot: boot, warm up, come to rest, freeze, try, publish."""

from __future__ import annotations

import asyncio
import contextlib
import hashlib
import json
import secrets
import time
from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass
from pathlib import Path

from osgym_host.addresses import GuestAddress
from osgym_host.errors import OsgymHostError
from osgym_host.guest_client import GuestClient, GuestError
from osgym_host.images.content_store import NAME
from osgym_host.images.progress import BakeProgress
from osgym_qemu.disks.manifest import GuestKind
from osgym_qemu.golden.template import FrozenTemplate, Template, TemplateFailed, trial_clone
from osgym_qemu.machine.argv import Accel, Shape
from osgym_qemu.machine.host_checks import (
    QemuFacts,
    ask_qemu,
    check_host,
    choose_accel,
    choose_cpu,
    shape_fields,
)
from osgym_qemu.machine.launcher import Launcher
from osgym_qemu.machine.machine import MachineFailed
from osgym_qemu.runner.process import ProcessLauncher
from osgym_qemu.snapshots import SECRET, Snapshot, SnapshotManifest, SnapshotStore
from osgym_qemu.snapshotting.guest_preparation import (
    IDLE_TIMEOUT_S,
    REST_TIMEOUT_S,
    TRIAL_TIMEOUT_S,
    forget_token,
    free_caches,
    trim_disk,
    try_clone,
    wait_for_idle,
    wait_for_rest,
    warm_code_paths,
)
from osgym_qemu.snapshotting.machine import (
    QUIET_S,
    agentless_client,
    copy_firmware,
    shape_of_disk,
)
from osgym_qemu.snapshotting.request import SnapshotFailed, SnapshotRequest, definition_key

READY_TIMEOUT_S = 600.0
"""For a boot under emulation on a busy machine; a quiet one needs 20 to 60 s."""
TRIAL_QUIET_S = 0.3
_TOKEN_BYTES = 32


@dataclass(slots=True)
class _SnapshotBuild:
    """What one build carries from stage to stage."""

    request: SnapshotRequest
    folder: Path
    launcher: Launcher
    facts: QemuFacts
    shape: Shape
    key: str
    token: str
    frozen_token: str | None
    screen: tuple[int, int]
    uefi: Path | None
    stage: str = "boot"
    boot_s: float = 0.0
    guest_version: str = ""

    @property
    def has_our_agent(self) -> bool:
        return self.request.disk.manifest.guest is GuestKind.OSGYM

    def guest(
        self, address: GuestAddress, screen_socket: Path, pid: int, quiet_s: float
    ) -> contextlib.AbstractAsyncContextManager[GuestClient]:
        """Return a client of the guest agent of a machine, or of who stands for it."""
        if self.has_our_agent:
            return GuestClient(address, token=self.token)
        return agentless_client(
            self.request.disk,
            folder=self.folder,
            screen_socket=screen_socket,
            pid=pid,
            address=address,
            screen=self.screen,
            quiet_s=quiet_s,
        )


class SnapshotBuilder:
    def __init__(self, store: SnapshotStore, progress: BakeProgress) -> None:
        """Args: progress: Told what is done; shown by the caller."""
        self._store = store
        self._progress = progress

    async def build(self, request: SnapshotRequest) -> Snapshot:
        """Make a snapshot, if there is none like it, and let its reference name it from now on.

        Raises:
            SnapshotFailed: A stage failed; nothing is left but older snapshots.
            RuntimeUnsupported: This host cannot run it at all.
        """
        if not NAME.fullmatch(request.name):
            raise SnapshotFailed("request", f"not a valid name of a snapshot: {request.name!r}")
        kind = request.disk.manifest.guest
        if kind is GuestKind.NONE and request.preparation.name:
            raise SnapshotFailed("request", f"{request.disk.name} has no agent inside to warm it up")
        if kind is not GuestKind.OSGYM and request.preparation.warm_apps:
            raise SnapshotFailed(
                "request", f"--warm-apps needs a disk built by OSGym, which {request.disk.name} is not"
            )
        began = time.monotonic()
        facts = await ask_qemu(request.qemu)
        screen = request.screen or request.disk.manifest.screen
        shape = await self._shape(request, screen)
        key = definition_key(request, shape, screen)
        found = None if request.refresh else self._store.made_from(key)
        if found is not None and not await check_host(found.manifest, self._store.data_dir, request.qemu):
            self._store.tag(request.reference, found.digest)
            return found
        with self._store.workspace() as folder:
            launcher = ProcessLauncher(folder, kvm=shape.accel is Accel.KVM)
            await launcher.prepare()
            token = secrets.token_urlsafe(_TOKEN_BYTES)
            uefi = copy_firmware(request.disk, folder)
            job = _SnapshotBuild(request, folder, launcher, facts, shape, key, token, token, screen, uefi)
            frozen = await self._freeze(job)
            await self._try(job)
            (folder / SECRET).touch(mode=0o600)
            (folder / SECRET).write_text(f"{(job.frozen_token or '') if job.has_our_agent else ''}\n")
            self._enter(job, "publish")
            manifest = _manifest(job, frozen, time.monotonic() - began)
            snapshot = await asyncio.to_thread(self._store.publish, folder, manifest)
        self._store.tag(request.reference, snapshot.digest)
        return snapshot

    async def _shape(self, request: SnapshotRequest, screen: tuple[int, int]) -> Shape:
        accel, why = await choose_accel(
            request.accel, self._store.data_dir, kernel=request.disk.kernel, qemu=request.qemu
        )
        self._progress.note(f"accelerator {accel}: {why}")
        cpu = await choose_cpu(accel, request.qemu)
        return shape_of_disk(request.disk, accel, cpu, request.ram_mib, request.vcpus, screen)

    async def _freeze(self, job: _SnapshotBuild) -> FrozenTemplate:
        width, height = job.screen
        credentials = {"osgym.token": job.token, "osgym.screen": f"{width}x{height}"}
        if not job.has_our_agent:
            credentials = {}
        self._enter(job, "boot", job.request.disk.name)
        began = time.monotonic()
        template: Template | None = None
        try:
            template = await Template.boot(
                job.launcher,
                job.request.disk,
                job.shape,
                folder=job.folder,
                credentials=credentials,
                screen_server=not job.has_our_agent,
                uefi=job.uefi,
                qemu=job.request.qemu,
            )
            async with job.guest(
                template.address, template.screen_socket, template.machine.pid, QUIET_S
            ) as guest:
                job.guest_version = await self._until_ready(guest, template)
                job.boot_s = time.monotonic() - began
                await self._prepare(job, guest)
            await self._come_to_rest(job, template)
            self._enter(job, "freeze")
            return await template.freeze()
        except _FAILURES as exc:
            tail = template.console_tail() if template is not None else ""
            raise SnapshotFailed(job.stage, str(exc), tail) from exc
        finally:
            if template is not None:
                await asyncio.shield(template.remove())

    async def _until_ready(self, guest: GuestClient, template: Template) -> str:
        """Wait until the desktop is drawn and quiet; return the guest agent's version."""
        last: list[str] = ["the machine does not answer"]
        async with _deadline(READY_TIMEOUT_S, lambda: f"the desktop is not ready ({last[-1]})"):
            while template.machine.end is None:
                try:
                    return (await guest.ready(timeout_s=30.0)).version
                except GuestError as exc:
                    last = [str(exc)]
                await asyncio.sleep(0.2)
        raise MachineFailed("the machine ended", end=template.machine.end)

    async def _prepare(self, job: _SnapshotBuild, guest: GuestClient) -> None:
        """Bring the desktop into the state that clones start from."""
        if job.has_our_agent:
            await free_caches(guest, isolated=job.request.disk.manifest.session_isolated)
        await job.request.preparation.carry_out(
            guest, job.screen, lambda stage, what: self._enter(job, stage, what)
        )
        await guest.observe()
        if job.has_our_agent:
            await guest.accessibility(timeout_s=60.0, deadline_s=40.0)  # of an emulated machine
            isolated = job.request.disk.manifest.session_isolated
            self._progress.note(await trim_disk(guest, isolated=isolated))
        await guest.ready(timeout_s=60.0)

    async def _come_to_rest(self, job: _SnapshotBuild, template: Template) -> None:
        """Wait until nothing happens any more: each clone would go on with whatever still does.

        Nobody may be connected, since a connection that breaks is something that happens.
        """
        self._enter(job, "rest")
        if job.has_our_agent:
            await warm_code_paths(template.address, job.token)
            if await forget_token(template.address, job.token):
                job.frozen_token = None
            else:
                self._progress.note(
                    "its guest agent is too old to change its token: all clones share one token"
                )
        if not await wait_for_rest(template.machine.pid):
            self._progress.note(f"the machine did not come to rest within {REST_TIMEOUT_S:.0f} s")
        elif job.has_our_agent and not await wait_for_idle(template.machine.pid):
            self._progress.note(f"a program in the machine still wakes up after {IDLE_TIMEOUT_S:.0f} s")

    async def _try(self, job: _SnapshotBuild) -> None:
        """Wake one clone; it must take an identity and show the desktop."""
        self._enter(job, "try")
        try:
            async with (
                _deadline(TRIAL_TIMEOUT_S, lambda: "a clone does not answer"),
                trial_clone(
                    job.launcher,
                    job.shape,
                    job.folder,
                    image_format=job.request.disk.manifest.format,
                    screen_server=not job.has_our_agent,
                    uefi=job.uefi,
                    qemu=job.request.qemu,
                ) as (machine, address, screen_socket),
            ):
                if job.has_our_agent:
                    await try_clone(address, job.frozen_token)
                else:
                    async with job.guest(address, screen_socket, machine.pid, TRIAL_QUIET_S) as guest:
                        await guest.ready(timeout_s=TRIAL_TIMEOUT_S / 2)
                        await guest.observe()
        except _FAILURES as exc:
            raise SnapshotFailed(job.stage, str(exc)) from exc

    def _enter(self, job: _SnapshotBuild, stage: str, what: str = "") -> None:
        job.stage = stage
        self._progress.stage(stage, what)


_FAILURES = (OsgymHostError, OSError)


@contextlib.asynccontextmanager
async def _deadline(timeout_s: float, what: Callable[[], str]) -> AsyncIterator[None]:
    """Raise `TemplateFailed`, saying what, when the block takes longer."""
    try:
        async with asyncio.timeout(timeout_s):
            yield
    except TimeoutError as exc:
        raise TemplateFailed(f"{what()} within {timeout_s:.0f} s") from exc


def _manifest(job: _SnapshotBuild, frozen: FrozenTemplate, build_s: float) -> SnapshotManifest:
    disk, request = job.request.disk, job.request
    shape = shape_fields(job.shape)
    parts = [frozen.ram_sha256, frozen.state_sha256, frozen.disk_sha256, disk.digest]
    content = json.dumps([parts, shape], sort_keys=True)
    kernel = disk.kernel
    return SnapshotManifest(
        digest=hashlib.sha256(content.encode()).hexdigest(),
        reference=request.reference,
        disk_digest=disk.digest,
        disk_format=disk.manifest.format,
        image_digest=disk.manifest.image_digest,
        guest=disk.manifest.guest,
        guest_version=job.guest_version,
        hardware=disk.manifest.hardware,
        screen=job.screen,
        qemu_version=job.facts.version_text,
        shape=shape,
        argv=frozen.argv,
        definition_key=job.key,
        kernel_digest=None if kernel is None else hashlib.sha256(kernel.read_bytes()).hexdigest(),
        warmup=request.preparation.name,
        warm_apps=request.preparation.warm_apps,
        ram_mib=request.ram_mib,
        ram_data_bytes=frozen.ram_data_bytes,
        state_bytes=frozen.state_bytes,
        disk_bytes=frozen.disk_bytes,
        ram_sha256=frozen.ram_sha256,
        state_sha256=frozen.state_sha256,
        disk_sha256=frozen.disk_sha256,
        boot_s=round(job.boot_s, 2),
        build_s=round(build_s, 2),
        session_isolated=disk.manifest.session_isolated,
    )
