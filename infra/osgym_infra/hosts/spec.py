"""Specification of a host, findings of a look at it, and their differences. Pure."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime
from enum import StrEnum
from pathlib import Path
from typing import Any
from urllib.parse import unquote, urlsplit

from osgym_infra.cost.model import boots_machines
from osgym_infra.hosts import tls
from osgym_infra.links.access import LOCAL, SshAccess

TOKEN_FILE = "/etc/osgym/token"  # noqa: S105 - a path
STEP_TIMEOUTS_S: Mapping[str, float] = {
    "packages": 1800,
    "account": 60,
    "kernel": 60,
    "storage": 300,
    "agent": 900,
    "image": 7200,
    "secret": 60,
    "firewall": 60,
    "service": 180,
    "health": 900,
}
"""Steps of the bootstrap in their order, and how long each may take."""
FIRST_LIVE_STEP = "secret"
"""From here on the running agent is concerned; what comes before is put beside it."""
DRAIN_TIMEOUT_S = 1800.0
"""How long episodes may go on on a host that is to be updated, where nobody says it."""

KNOWN_SYSTEMS = ("debian", "ubuntu")
MACHINE = "x86_64"


@dataclass(frozen=True, slots=True)
class HostSpec:
    """Specification of a host.

    Attributes:
        at: Access to the host; its address may be `local`.
        settings: The bootstrap's, none of them secret.
        ca: Signs the host's certificate.
        drain_timeout_s: Time that its episodes get when its agent has to be restarted.
        max_unavailable: Number of the fleet's hosts that may be away at a time.
    """

    at: SshAccess
    settings: Mapping[str, str]
    token: str = field(repr=False)
    ca: tls.Credential
    drain_timeout_s: float = DRAIN_TIMEOUT_S
    max_unavailable: int = 1

    @property
    def is_local(self) -> bool:
        return self.at.address == LOCAL

    @property
    def addresses(self) -> tuple[str, ...]:
        """Names that its certificate must hold, besides the loopback names."""
        return () if self.is_local else (self.at.address,)

    @property
    def agent(self) -> str:
        """Name under which the agent is installed (bootstrap.sh, step agent)."""
        return self.settings["OSGYM_AGENT_SHA256"].removeprefix("sha256:")[:16]

    @property
    def image_digest(self) -> str:
        return self.settings["OSGYM_IMAGE_DIGEST"].removeprefix("sha256:")

    @property
    def image_archive(self) -> str:
        """SHA-256 of the image's archive."""
        return self.settings["OSGYM_IMAGE_SHA256"].removeprefix("sha256:")

    @property
    def most_replicas(self) -> int:
        """Number of replicas that its agent may admit at most."""
        return int(self.settings.get("OSGYM_MAX", 0))

    @property
    def has_machines(self) -> bool:
        """Whether that archive holds disks and snapshots beside the image, which change without it."""
        return boots_machines(self.settings.get("OSGYM_HOST_RUNTIME", ""))


@dataclass(frozen=True, slots=True)
class ObservedHost:
    """Findings of one look at a host. None of them is secret, and none is trusted.

    Attributes:
        agent: Name of the installed agent; empty: none.
        image_digest: Digest of the golden image, when it is the wanted one; empty otherwise.
        token_digest: Digest of the agent's token, `digest_of`.
        certificate: PEM, empty: none.
        image_archive: SHA-256 of the archive that the image came in.
        agents: Names of agents that lie there ready, used or not.
        images: Digests of golden images that lie there, used or not.
        admits: Number of replicas that the agent admits; 0: unknown.
    """

    user_id: int
    system: str
    version: str
    machine: str
    agent: str = ""
    image_digest: str = ""
    token_digest: str = ""
    certificate: str = ""
    active: bool = False
    serving: bool = False
    image_archive: str = ""
    agents: tuple[str, ...] = ()
    images: tuple[str, ...] = ()
    admits: int = 0

    @property
    def unfit(self) -> str:
        """Reason why the bootstrap cannot run there; empty: it can."""
        if self.system not in KNOWN_SYSTEMS:
            return (
                f"it runs {self.system or 'an unknown system'} {self.version}; Debian "
                "and Ubuntu are supported"
            )
        if self.machine != MACHINE:
            return f"its processor is {self.machine or 'unknown'}; {MACHINE} is required"
        return ""


def drift(found: ObservedHost, spec: HostSpec, now: datetime) -> list[str]:
    """Return the differences between a host and its specification, as short sentences."""
    wrong = []
    if found.agent != spec.agent:
        wrong.append(f"agent {found.agent} instead of {spec.agent}" if found.agent else "no agent")
    if found.image_digest != spec.image_digest:
        wrong.append(f"image {spec.image_digest[:12]} is missing")
    if found.token_digest != digest_of(spec.token):
        wrong.append("another token")
    if not tls.is_still_valid(found.certificate, spec.ca.certificate, spec.addresses, now):
        wrong.append("certificate is missing, has another authority, or expires soon")
    if not found.serving:
        wrong.append("does not answer" if found.active else "agent is not running")
    return wrong


class ArchiveSource(StrEnum):
    """Archive that the host fetches, with the settings that name it."""

    AGENT = "AGENT"
    IMAGE = "IMAGE"

    @property
    def uri(self) -> str:
        return f"OSGYM_{self}_URI"

    @property
    def remote(self) -> str:
        """Return where a file of this machine waits on a host behind ssh until it is installed."""
        return f"/var/cache/osgym/{self.lower()}.tar"


def uploads(spec: HostSpec, found: ObservedHost) -> dict[ArchiveSource, Path]:
    """Return files of this machine that the host needs and lacks; `file://` means this machine."""
    needed = {
        ArchiveSource.AGENT: spec.agent not in (found.agent, *found.agents),
        ArchiveSource.IMAGE: spec.image_digest not in (found.image_digest, *found.images)
        or (spec.has_machines and found.image_archive != spec.image_archive),
    }
    files = {source: local_file(spec.settings[source.uri]) for source in ArchiveSource}
    return {
        source: path
        for source, path in files.items()
        if path is not None and needed[source] and not spec.is_local
    }


def local_file(uri: str) -> Path | None:
    """Return the path of a `file://` URI; None for other URIs."""
    parts = urlsplit(uri)
    return Path(unquote(parts.path)) if parts.scheme == "file" else None


def host_settings(spec: HostSpec) -> dict[str, str]:
    """Return the bootstrap's settings for the host."""
    settings = {**spec.settings, "OSGYM_TOKEN_SOURCE": f"file:{TOKEN_FILE}"}
    if not spec.is_local:
        for source in ArchiveSource:
            if local_file(settings[source.uri]) is not None:
                settings[source.uri] = f"file://{source.remote}"
    return settings


def digest_of(secret: str) -> str:
    """Return a digest that tells two tokens apart; their 256 random bits cannot be recovered from it."""
    return hashlib.sha256(f"OSGYM_TOKEN={secret}\n".encode()).hexdigest()


def bootstrap_digest(files: Mapping[str, bytes]) -> str:
    """Return one digest of all bootstrap files."""
    lines = [f"{name} {hashlib.sha256(data).hexdigest()}\n" for name, data in sorted(files.items())]
    return hashlib.sha256("".join(lines).encode()).hexdigest()


def read_state(output: str) -> ObservedHost:
    """Parse the output of the inspection script.

    Raises:
        ValueError: The text is not of the form that the script prints.
    """
    start = output.rindex("{")  # before it may stand what the host greets everybody with
    data = json.loads(output[start:])

    def text(name: str, most: int = 200) -> str:
        return str(data.get(name, ""))[:most]

    def flag(name: str) -> bool:
        return bool(data.get(name) == "true")

    return ObservedHost(
        user_id=int(data["uid"]),
        system=text("system"),
        version=text("version"),
        machine=text("machine"),
        agent=text("agent"),
        image_digest=text("image_digest").removeprefix("sha256:"),
        image_archive=text("image_archive"),
        token_digest=text("token_digest"),
        certificate=text("certificate", 20_000).replace("|", "\n"),
        active=flag("active"),
        serving=flag("serving"),
        agents=tuple(text("agents", 20_000).split()),
        images=tuple(text("images", 20_000).split()),
        admits=int(text("admits", 9) or 0),
    )


def as_outputs(found: ObservedHost | None, problem: str) -> dict[str, Any]:
    """Return the outputs of a look at a host for a stack's state; None: the look failed."""
    end = tls.expires(found.certificate) if found else None
    return {
        "agent": found.agent if found else "",
        "image": found.image_digest if found else "",
        "serving": bool(found and found.serving),
        "certificateEnds": end.date().isoformat() if end else "",
        "problem": problem,
        "admits": found.admits if found else 0,
    }
