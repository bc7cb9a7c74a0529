"""Check of images and snapshots for what later ones have."""

from __future__ import annotations

import asyncio
from pathlib import Path

from osgym_host.doctor.result import DoctorContext, Finding, Status
from osgym_host.images.disks.manifest import GuestKind
from osgym_host.images.errors import ImageError
from osgym_host.images.snapshots import SnapshotStore
from osgym_host.images.store import ImageStore

_NAME = "session isolation"


async def check_session_isolation(context: DoctorContext) -> list[Finding]:
    """Return a finding for each image and snapshot whose programs can reach their guest agent."""
    return await asyncio.to_thread(_findings, context.data_dir)


def _findings(data_dir: Path) -> list[Finding]:
    try:
        store, frozen = ImageStore(data_dir), SnapshotStore(data_dir)
        images = {name: store.resolve(name).manifest.session_isolated for name in store.tagged()}
        manifests = [frozen.resolve(name).manifest for name in frozen.tagged()]
    except ImageError as exc:
        return [Finding(_NAME, Status.WARN, f"The images cannot be read: {exc}.")]
    snapshots = {one.reference: one.session_isolated for one in manifests if one.guest is GuestKind.OSGYM}
    facts = {**images, **snapshots}
    open_ones = sorted(name for name, isolated in facts.items() if not isolated)
    if not facts:
        return []
    if not open_ones:
        found = "Programs of all images and snapshots, root by sudo included, run below their guest agent."
        return [Finding(_NAME, Status.OK, found, facts=facts)]
    names = ", ".join(open_ones)
    found = f"Made before sessions were isolated, so that root in the desktop can forge its score: {names}."
    remedy = "Make them anew: osgym image build, and for virtual machines osgym image snapshot after it."
    return [Finding(_NAME, Status.WARN, found, remedy, facts=facts)]
