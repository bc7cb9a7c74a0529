"""The bootstrap, for real: from a plain Debian to desktops of an ordinary user's agent, and to nothing."""

from __future__ import annotations

import json
import re
import secrets
import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.support import host_fixtures
from tests.support.namespace_host import NamespaceHost, missing, namespace_host

from osgym_host.images.store import Image
from osgym_infra.fleet.boot import env_file

pytestmark = [pytest.mark.desktop, pytest.mark.timeout(900)]

BOOTSTRAP = Path(__file__).resolve().parents[2] / "infra" / "bootstrap"
TOKEN = secrets.token_hex(24)
# The kernel's settings are this machine's: that step is run by itself, with them sealed.
STEPS = "account storage agent secret image firewall service health"

LIFE = f"""
b=/opt/bootstrap/bootstrap.sh
section() {{ echo "=== $1"; }}
section broken
sed 's/^OSGYM_IMAGE_SHA256=.*/OSGYM_IMAGE_SHA256={"f" * 64}/' /etc/osgym/bootstrap.env > /tmp/bad.env
OSGYM_BOOTSTRAP_ENV=/tmp/bad.env $b up {STEPS} 2>&1; echo "exit $?"
section up; $b up {STEPS} 2>&1; echo "exit $?"
section again; $b up {STEPS} 2>&1; echo "exit $?"
section status; $b status
pool=http://127.0.0.1:20071/v1/pool
section pool; sed 's/^/Authorization: Bearer /' /etc/osgym/token | curl -s -H @- $pool; echo
section stranger; curl -s -o /dev/null -w '%{{http_code}}' $pool; echo
section drain; $b drain --wait 2>&1; $b drain --stop 2>&1; echo "exit $?"
section user; ps -o user= -p "$(cat /run/osgym.pid)"
section leaks
for p in /proc/[0-9]*; do tr '\\0' ' ' < $p/cmdline | grep -q "$(cat /etc/osgym/token)" && echo "$p"; done
data=/var/lib/osgym
grep -rl "$(cat /etc/osgym/token)" /etc /opt /usr/local /var/log $data/state $data/run 2>/dev/null
section modes; stat -c '%a %U %n' /etc/osgym/secret.env
section metadata; nft list table inet osgym | grep -c 'skuid.*169.254.0.0/16.*drop'
section down; $b down --purge 2>&1; echo "exit $?"
section left
ls -d /opt/osgym /etc/osgym /var/lib/osgym /usr/local/lib/osgym /run/osgym.pid 2>/dev/null
getent passwd osgym; grep osgym /etc/subuid /etc/subgid
nft list tables | grep osgym
ps -eo user,args | grep '[o]sgym' | grep -v 'bash -c'
section end
"""


def prepare(made: NamespaceHost, small_image: Image) -> None:
    """Lay the bootstrap, its settings and what it fetches on a plain host."""
    srv, etc = made.root / "srv", made.root / "etc" / "osgym"
    agent, image = host_fixtures.archives(small_image.digest)
    shutil.copy(agent.path, srv / "agent.tar")
    shutil.copy(image.path, srv / "image.tar")
    shutil.copytree(BOOTSTRAP, made.root / "opt" / "bootstrap")
    etc.mkdir()
    (etc / "token").touch(0o600)
    (etc / "token").write_text(TOKEN + "\n")
    settings = {
        "OSGYM_AGENT_URI": "file:///srv/agent.tar",
        "OSGYM_AGENT_SHA256": agent.sha256,
        "OSGYM_IMAGE_URI": "file:///srv/image.tar",
        "OSGYM_IMAGE_SHA256": image.sha256,
        "OSGYM_IMAGE_DIGEST": small_image.digest,
        "OSGYM_FLAVOR": "small",
        "OSGYM_MAX": "2",
        "OSGYM_PORT": "20071",
        "OSGYM_ALLOWED_CIDRS": "10.0.0.0/8",
        "OSGYM_HEALTH_TIMEOUT_S": "120",
    }
    (etc / "bootstrap.env").write_text(env_file(settings))


@pytest.fixture(scope="module")
def host(small_image: Image, tmp_path_factory: pytest.TempPathFactory) -> Iterator[NamespaceHost]:
    """A plain Debian with the bootstrap, its settings, and what it fetches beside it."""
    if lacking := missing():
        pytest.skip(f"missing: {lacking}")
    with namespace_host(tmp_path_factory.mktemp("plain")) as made:
        prepare(made, small_image)
        yield made


def test_a_plain_host_comes_to_serve_and_goes_again(host: NamespaceHost, small_image: Image) -> None:
    """Packages, then all steps: a broken download stops it by name, the next run goes on, a third changes
    nothing, desktops are ready, no secret shows, and taking it down leaves nothing."""
    packages = host.run("/opt/bootstrap/bootstrap.sh up packages", 400, network=True)
    assert packages.returncode == 0, packages.stderr
    assert "packages changed" in packages.stdout
    kernel = host.run("/opt/bootstrap/bootstrap.sh up account kernel", 60, sealed=True)
    assert kernel.returncode == 0, kernel.stderr
    assert "kernel" in kernel.stdout

    life = host.run(LIFE, 400)
    parts = dict(re.findall(r"^=== (\w+)\n(.*?)(?=^=== |\Z)", life.stdout, re.DOTALL | re.MULTILINE))
    assert "end" in parts, life.stdout + life.stderr

    assert "exit 3" in parts["broken"], "what another try does not mend"
    assert "image failed" in parts["broken"]
    assert "has SHA-256" in parts["broken"]
    assert "exit 0" in parts["up"], parts["up"]
    assert "image changed" in parts["up"]
    assert "agent ok" in parts["up"], "the step that had worked is not done twice"
    assert "exit 0" in parts["again"]
    assert "changed" not in parts["again"]
    status = json.loads(parts["status"])
    assert status["active"] is True
    assert status["serving"] is True
    assert (status["image_digest"], status["max_replicas"]) == (small_image.digest, 2)
    assert json.loads(parts["pool"])["ready"] >= 1
    assert parts["stranger"].strip() == "401"
    assert parts["drain"].splitlines()[0].startswith("draining (operator), 0 ")
    assert parts["drain"].splitlines()[1:] == ["serving, 0 replicas in use", "exit 0"]
    assert parts["user"].strip() == "osgym"
    assert sorted(parts["leaks"].split()) == ["/etc/osgym/secret.env", "/etc/osgym/token"]
    assert parts["modes"].split()[:2] == ["600", "root"]
    assert parts["metadata"].strip() == "1"
    assert "exit 0" in parts["down"], parts["down"]
    assert parts["left"].strip() == ""
