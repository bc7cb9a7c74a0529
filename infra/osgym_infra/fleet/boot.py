"""Settings and start script of a host, and what it fetches at its first start."""

from __future__ import annotations

import base64
import gzip
import hashlib
import io
import json
import shlex
import tarfile
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from osgym_infra.config.keys import FleetConfig
from osgym_infra.config.readers import TrajectoryDetail
from osgym_infra.cost.model import boots_machines
from osgym_infra.errors import BadInput
from osgym_infra.fleet.blueprint import HostGroup

MOST_USER_DATA_BYTES = 16384
"""What EC2 takes as user data, before base64 (EC2 user guide, "Run commands at launch")."""

TARGET = "/usr/local/lib/osgym-bootstrap"
BOOT = "/usr/local/lib/osgym-boot"
"""Where a cloud's host has what user data holds: the files that fetch and run the bootstrap."""
STUB = ("boot.py", "fetch.py")
UNIT = "osgym-boot.service"
STATUS = "status/"
"""Below the fleet's folder in its bucket: an object of each host, which that host may write."""
DATA = "/var/lib/osgym"
"""Where hosts keep images and what replicas write (bootstrap.sh, `OSGYM_DATA`)."""
LOCAL_DATA = "/var/lib/osgym-fleet"
"""The same on this machine, apart from what somebody uses here to develop."""


@dataclass(frozen=True, slots=True)
class FetchedArchives:
    """Two archives; empty texts stand for one that the stack makes and does not know yet.

    Attributes:
        image_digest: Digest of the golden image; the other two digests are of archives.
    """

    image_uri: str
    image_sha256: str
    image_digest: str
    agent_uri: str
    agent_sha256: str

    @classmethod
    def named_in(cls, config: FleetConfig) -> FetchedArchives:
        """Return the archives that the configuration names."""
        return cls(**{name: getattr(config, name) for name in cls.__slots__})


def environment(
    config: FleetConfig, group: HostGroup, token_source: str, fetched: FetchedArchives
) -> dict[str, str]:
    """Return the settings in /etc/osgym/bootstrap.env; none of them is a secret.

    Args:
        token_source: Place of the token: `aws:ARN`, `gcp:projects/…` or `file:PATH`.
    """
    return {
        "OSGYM_PORT": str(config.agent_port),
        "OSGYM_HOST_RUNTIME": config.runtime,
        "OSGYM_MAX": str(group.replicas),
        "OSGYM_FLAVOR": config.image_name,
        "OSGYM_POLICY": config.egress.value,
        "OSGYM_POLICY_ALLOW": ", ".join(config.egress_allowlist),
        "OSGYM_ALLOWED_CIDRS": " ".join(config.allowed_cidrs),
        "OSGYM_DEVICES": "auto" if group.nvme or group.volume_gib else "none",
        "OSGYM_TOKEN_SOURCE": token_source,
        # Of every market: machines on demand are maintained and stopped too.
        "OSGYM_NOTICES": config.provider.facts.notices or "off",
        "OSGYM_AGENT_URI": fetched.agent_uri,
        "OSGYM_AGENT_SHA256": fetched.agent_sha256,
        "OSGYM_IMAGE_URI": fetched.image_uri,
        "OSGYM_IMAGE_SHA256": fetched.image_sha256,
        "OSGYM_IMAGE_DIGEST": fetched.image_digest,
        **_of_the_agent(config),
    }


def _of_the_agent(config: FleetConfig) -> dict[str, str]:
    """Return settings of replicas and of the agent that the configuration sets; others keep their default."""
    named = {
        # What was frozen without KVM would be emulated on a host that is paid for having it.
        "OSGYM_NEEDS_KVM": "yes" if boots_machines(config.runtime) and config.provider.rents else None,
        "OSGYM_KEEP_WARM": config.warm,
        "OSGYM_KEEP_TRAJECTORY": None if config.trajectory is TrajectoryDetail.STEPS else config.trajectory,
        "OSGYM_KEEP_TRAJECTORY_MIB": config.trajectory_mib,
    }
    return {name: str(value) for name, value in named.items() if value is not None}


def scaling(config: FleetConfig, groups: Iterable[HostGroup], fleet: str) -> dict[str, str]:
    """Return the settings by which hosts publish their lease pressure, if any group of the fleet grows.

    Args:
        fleet: The name that the scaling looks the metric up by.
    """
    where = config.provider.facts.metrics_to.format(region=config.region)
    if not where or not any(group.grows for group in groups):
        return {}
    return {"OSGYM_METRICS_TO": where, "OSGYM_METRICS_FLEET": fleet}


def env_file(values: Mapping[str, str]) -> str:
    """Return the settings as a file that a shell reads, with all values quoted."""
    return "".join(f"{name}={shlex.quote(value)}\n" for name, value in sorted(values.items()))


@dataclass(frozen=True, slots=True)
class BootPlace:
    """Place where a cloud's hosts fetch the bootstrap and write their boot status.

    Attributes:
        sha256: SHA-256 of the bootstrap as one file (`package`).
    """

    uri: str
    sha256: str
    status_uri: str

    def settings(self) -> dict[str, str]:
        """Return the place as settings of `boot.py`."""
        return {
            "OSGYM_BOOTSTRAP_URI": self.uri,
            "OSGYM_BOOTSTRAP_SHA256": self.sha256,
            "OSGYM_STATUS_URI": self.status_uri,
        }


def package(files: Mapping[str, bytes]) -> str:
    """Return the bootstrap's files, all texts, as one JSON object by name."""
    return json.dumps({name: data.decode() for name, data in sorted(files.items())})


def package_sha256(text: str) -> str:
    """Return the digest by which hosts check the package."""
    return hashlib.sha256(text.encode()).hexdigest()


def user_data(files: Mapping[str, bytes], values: Mapping[str, str]) -> str:
    """Return a script that starts the boot and its retries, now and at every start of the host.

    It needs no network. The same for the same input; run again, it changes nothing.

    Args:
        files: The bootstrap's, of which it holds `STUB`.
        values: Settings of the host, with those of `BootPlace`.
    """
    packed = base64.encodebytes(archive({name: files[name] for name in STUB})).decode()
    return (
        "#!/bin/bash\n"
        "# Written by osgym-infra. Holds no secret: user data can be read from inside the host.\n"
        "set -eu\n"
        f"install -d -m 755 /etc/osgym {BOOT}\n"
        f"base64 -d <<'PACKED' | tar -xz -C {BOOT}\n{packed}PACKED\n"
        f"cat > /etc/osgym/bootstrap.env <<'SETTINGS'\n{env_file(values)}SETTINGS\n"
        f"cat > /etc/systemd/system/{UNIT} <<'UNIT'\n{unit()}UNIT\n"
        "systemctl daemon-reload\n"
        f"systemctl enable -q {UNIT}\n"
        f"systemctl start --no-block {UNIT}\n"
    )


def unit() -> str:
    """Return the unit that runs `boot.py` at every start of the host until the host serves."""
    return f"""[Unit]
Description=Brings this host to serve OSGym's replicas, however often that takes
Wants=network-online.target
# After a restart of the host the agent comes first: what is right already is left alone.
After=network-online.target osgym.service
StartLimitIntervalSec=0
[Service]
Type=exec
# Debian's and Ubuntu's images have both; a minimal one may not.
ExecStartPre=/bin/sh -c 'command -v python3 >/dev/null && [ -e /etc/ssl/certs/ca-certificates.crt ] || {{ \
  apt-get -o DPkg::Lock::Timeout=300 update -q && \
  DEBIAN_FRONTEND=noninteractive apt-get -o DPkg::Lock::Timeout=300 install -q -y python3 ca-certificates; }}'
ExecStart=/usr/bin/env python3 {BOOT}/boot.py
TimeoutStartSec=900
Restart=on-failure
RestartSec=5
[Install]
WantedBy=multi-user.target
"""


def ec2_user_data(script: str) -> str:
    """Return the script in EC2's form: compressed, which cloud-init undoes, and in base64.

    Raises:
        BadInput: It is larger than what EC2 takes.
    """
    packed = gzip.compress(script.encode(), 9, mtime=0)
    if len(packed) > MOST_USER_DATA_BYTES:
        raise BadInput(
            "osgym:egress_allowlist",
            f"the hosts' start script has {len(packed)} bytes, EC2 takes {MOST_USER_DATA_BYTES}",
            "Shorten the list, or name a domain with its subdomains (*.example.org)",
        )
    return base64.b64encode(packed).decode()


def archive(files: Mapping[str, bytes]) -> bytes:
    """Return a tar.gz of executable files without dates or owners: it changes only with its content."""
    raw = io.BytesIO()
    with tarfile.open(fileobj=raw, mode="w", format=tarfile.USTAR_FORMAT) as tar:
        for name, data in sorted(files.items()):
            entry = tarfile.TarInfo(name)
            entry.size, entry.mode = len(data), 0o755
            tar.addfile(entry, io.BytesIO(data))
    return gzip.compress(raw.getvalue(), 9, mtime=0)
