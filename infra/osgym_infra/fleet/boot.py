"""What a host is told when it starts: the bootstrap's settings, and the script around them. Pure."""

from __future__ import annotations

import base64
import gzip
import io
import shlex
import tarfile
from collections.abc import Mapping

from osgym_infra.config.keys import FleetConfig
from osgym_infra.errors import BadInput
from osgym_infra.fleet.blueprint import HostGroup
from osgym_infra.fleet.fetched_archives import FetchedArchives

MOST_USER_DATA_BYTES = 16384
"""What EC2 takes as user data, before base64 (EC2 user guide, "Run commands at launch")."""

TARGET = "/usr/local/lib/osgym-bootstrap"
DATA = "/var/lib/osgym"
"""Where hosts keep images and what replicas write (bootstrap.sh, `OSGYM_DATA`)."""
LOCAL_DATA = "/var/lib/osgym-fleet"
"""The same on this machine, apart from what somebody uses here to develop."""


def environment(
    config: FleetConfig, group: HostGroup, token_source: str, fetched: FetchedArchives
) -> dict[str, str]:
    """The settings in /etc/osgym/bootstrap.env; none of them is a secret.

    Args:
        token_source: where the host reads the token: `aws:ARN`, `gcp:projects/…` or `file:PATH`.
    """
    return {
        "OSGYM_PORT": str(config.agent_port),
        "OSGYM_HOST_RUNTIME": config.runtime.value,
        "OSGYM_MAX": str(group.replicas),
        "OSGYM_FLAVOR": config.image_name,
        "OSGYM_POLICY": config.egress.value,
        "OSGYM_POLICY_ALLOW": ", ".join(config.egress_allowlist),
        "OSGYM_ALLOWED_CIDRS": " ".join(config.allowed_cidrs),
        "OSGYM_DEVICES": "auto" if group.nvme or group.volume_gib else "none",
        "OSGYM_TOKEN_SOURCE": token_source,
        # Of every market: machines on demand are maintained and stopped too.
        "OSGYM_NOTICES": config.provider.value if config.provider.facts.notices else "off",
        "OSGYM_AGENT_URI": fetched.agent_uri,
        "OSGYM_AGENT_SHA256": fetched.agent_sha256,
        "OSGYM_IMAGE_URI": fetched.image_uri,
        "OSGYM_IMAGE_SHA256": fetched.image_sha256,
        "OSGYM_IMAGE_DIGEST": fetched.image_digest,
    }


def env_file(values: Mapping[str, str]) -> str:
    """The settings as a file that a shell reads; everything is quoted."""
    return "".join(f"{name}={shlex.quote(value)}\n" for name, value in sorted(values.items()))


def user_data(files: Mapping[str, bytes], values: Mapping[str, str]) -> str:
    """A script that unpacks the bootstrap, writes its settings and runs it; the same for the same input."""
    packed = base64.encodebytes(archive(files)).decode()
    return (
        "#!/bin/bash\n"
        "# Written by osgym-infra. Holds no secret: user data can be read from inside the host.\n"
        "set -eu\n"
        f"install -d -m 755 /etc/osgym {TARGET}\n"
        f"base64 -d <<'PACKED' | tar -xz -C {TARGET}\n{packed}PACKED\n"
        f"cat > /etc/osgym/bootstrap.env <<'SETTINGS'\n{env_file(values)}SETTINGS\n"
        f"exec {TARGET}/bootstrap.sh up\n"
    )


def ec2_user_data(script: str) -> str:
    """The script as EC2 takes it: compressed, which cloud-init undoes, and in base64.

    Raises:
        BadInput: it is larger than what EC2 takes.
    """
    packed = gzip.compress(script.encode(), 9, mtime=0)
    if len(packed) > MOST_USER_DATA_BYTES:
        raise BadInput(
            "osgym:egress_allowlist",
            f"the hosts' start script has {len(packed)} bytes",
            f"at most {MOST_USER_DATA_BYTES}; shorten lists and URIs",
        )
    return base64.b64encode(packed).decode()


def archive(files: Mapping[str, bytes]) -> bytes:
    """A tar.gz of executable files without dates or owners, so that it changes only with its content."""
    raw = io.BytesIO()
    with tarfile.open(fileobj=raw, mode="w", format=tarfile.USTAR_FORMAT) as tar:
        for name, data in sorted(files.items()):
            entry = tarfile.TarInfo(name)
            entry.size, entry.mode = len(data), 0o755
            tar.addfile(entry, io.BytesIO(data))
    return gzip.compress(raw.getvalue(), 9, mtime=0)
