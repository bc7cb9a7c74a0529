"""What tests of a fleet's hosts need: archives made once a session, and calls of the resource provider."""

from __future__ import annotations

import atexit
import functools
import shutil
import tempfile
from collections.abc import Mapping
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from pulumi.provider.experimental import provider as api
from pulumi.provider.experimental.property_value import PropertyValue

from osgym_host.images.store import Image, default_data_dir
from osgym_infra.archives.pack import PackedArchive, pack_agent, pack_image
from osgym_infra.fleet.bootstrap import bootstrap_files
from osgym_infra.hosts import tls
from osgym_infra.resources.provider import HOST, OsgymProvider
from osgym_infra.resources.values import plain_all, wrapped
from tests.support import ROOT
from tests.support.ssh_hosts import SshMachine

TOKEN = "test-token-0123456789-abcdefghijklmnop"


@functools.cache
def archives(digest: str) -> tuple[PackedArchive, PackedArchive]:
    """Host agent of this tree, and the small image; made when first asked for, gone with this process."""
    folder = Path(tempfile.mkdtemp(prefix="osgym-test-archives-"))
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    image = pack_image(default_data_dir(), "small", folder / "image.tar")
    assert image.digest == digest
    return pack_agent(ROOT, folder / "agent.tar"), image


def settings(image: Image, **other: str) -> dict[str, str]:
    """The bootstrap's, for a host with two desktops of the small image."""
    agent, packed = archives(image.digest)
    return {
        "OSGYM_AGENT_URI": agent.path.as_uri(),
        "OSGYM_AGENT_SHA256": agent.sha256,
        "OSGYM_IMAGE_URI": packed.path.as_uri(),
        "OSGYM_IMAGE_SHA256": packed.sha256,
        "OSGYM_IMAGE_DIGEST": packed.digest,
        "OSGYM_FLAVOR": "small",
        "OSGYM_MAX": "2",
        "OSGYM_HOST_RUNTIME": "local",
        "OSGYM_HEALTH_TIMEOUT_S": "120",
        **other,
    }


class FakeEngine:
    """Calls the provider as the engine does, and keeps one host's state as it would."""

    def __init__(self, machine: SshMachine, given: Mapping[str, str], **other: Any) -> None:
        self.ca = tls.make_ca("test", datetime.now(UTC))
        self.lines: list[str] = []
        self.urn = f"urn:pulumi:t::osgym::osgym:ssh:ReplicaHosts${HOST}::machine-{machine.number}"
        self.state: dict[str, PropertyValue] = {}
        self.resource_id = ""
        self.provider = OsgymProvider(bootstrap_files(), self._say)
        self.given: dict[str, Any] = {
            "address": machine.address,
            "hostKey": machine.host_key,
            "sshKey": str(machine.key_file),
            "settings": dict(given),
            "token": TOKEN,
            "caCertificate": self.ca.certificate,
            "caKey": self.ca.key,
            **other,
        }

    async def _say(self, urn: str, line: str) -> None:
        assert urn == self.urn
        self.lines.append(line)

    @property
    def outputs(self) -> dict[str, Any]:
        """The state as Python values."""
        return plain_all(self.state)

    async def checked(self) -> dict[str, PropertyValue]:
        """The inputs, as `check` lets them through."""
        secret = ("token", "caKey")
        raw = {name: wrapped(value, secret=name in secret) for name, value in self.given.items()}
        answer = await self.provider.check(api.CheckRequest(self.urn, {}, raw, b""))
        assert not answer.failures, [(f.property, f.reason) for f in answer.failures]
        assert answer.inputs is not None
        return answer.inputs

    async def create(self) -> None:
        """Raises what the provider raises."""
        answer = await self.provider.create(api.CreateRequest(self.urn, await self.checked(), 0, False))
        assert answer.resource_id
        self.resource_id, self.state = answer.resource_id, answer.properties

    async def diff(self) -> api.DiffResponse:
        """Against the state."""
        news = await self.checked()
        return await self.provider.diff(api.DiffRequest(self.urn, self.resource_id, self.state, news, []))

    async def update(self) -> None:
        """To the inputs as they are now."""
        news = await self.checked()
        request = api.UpdateRequest(self.urn, self.resource_id, self.state, news, 0, [], False)
        self.state = (await self.provider.update(request)).properties

    async def refresh(self) -> None:
        """Looks."""
        request = api.ReadRequest(self.urn, self.resource_id, self.state, await self.checked())
        self.state = (await self.provider.read(request)).properties

    async def delete(self) -> None:
        """Takes it down."""
        await self.provider.delete(api.DeleteRequest(self.urn, self.resource_id, self.state, 0))
