"""Hundreds of addresses behind real sshds, each with files of its own: what `fleet_up` brings up.

A host here is this machine's own Debian, copied on write in memory: own files and processes, own host key, an
sshd on a loopback address of its own. It shares kernel, CPU, memory and network with all the others. The
bootstrap that is run on it (`BOOTSTRAP`) stands in for `infra/bootstrap/bootstrap.sh`: the same steps, calls
and answers, but where the real one installs and starts things this one waits. So transport, uploads, secrets,
certificates, look and state are real; the work that hosts do for themselves is not.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import signal
import socket
import subprocess
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric import ed25519

PORT = 22022
START_S = 120.0

# $1: the host's folder. Its root is this machine's, copied on write.
INIT = """
set -e
cd "$1"
mkdir -p upper work root
mount --make-rprivate /
mount -t overlay overlay -o "lowerdir=/,upperdir=$1/upper,workdir=$1/work" root
cd root
mount -t proc proc proc
mount --rbind /dev dev
mount -t tmpfs -o mode=755 tmpfs run
mkdir -p old run/sshd
cp "$1/sshd_config" "$1/key" "$1/authorized_keys" run/
pivot_root . old
umount -l /old
exec env -i PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin HOME=/root \
  /usr/sbin/sshd -D -f /run/sshd_config -E /run/sshd.log
"""

SSHD = """
ListenAddress {address}
Port {port}
HostKey /run/key
PidFile none
AuthorizedKeysFile /run/authorized_keys
StrictModes no
UsePAM no
PasswordAuthentication no
PermitRootLogin yes
UseDNS no
"""

BOOTSTRAP = r"""#!/bin/bash
# Stands in for bootstrap.sh: waits where that one works; checks what was sent, puts secrets in place.
set -eu
. "${OSGYM_BOOTSTRAP_ENV:-/etc/osgym/bootstrap.env}"
etc=/etc/osgym opt=/opt/osgym data=/var/lib/osgym-many
name=${OSGYM_AGENT_SHA256:0:16} image=$data/images/${OSGYM_IMAGE_DIGEST#sha256:}
die() { echo "osgym: $step failed: $*" >&2; exit 1; }
sent() { [ "$(sha256sum < "${1#file://}")" = "$2  -" ] || die "$1 is not what was sent"; }
# once MARK SECONDS: a host's own work.
once() { sleep "$2"; mkdir -p "${1%/*}"; touch "$1"; did=changed; }
there() { readlink $opt/current 2>/dev/null || true; }
up() {
  did=ok
  [ ! -e "/run/broken-$step" ] || die "No space left on device"
  case $step in
    packages) [ -e $opt/.packages ] || once $opt/.packages @PACKAGES_S@ ;;
    agent)
      if [ "$(there)" != "$name" ]; then
        sent "$OSGYM_AGENT_URI" "$OSGYM_AGENT_SHA256"
        once "$opt/$name" @AGENT_S@
        ln -sfn "$name" $opt/current
      fi ;;
    secret) (umask 077; printf 'OSGYM_TOKEN=%s\n' "$(cat $etc/token)" > $etc/secret.env) ;;
    image) [ -e "$image" ] || { sent "$OSGYM_IMAGE_URI" "$OSGYM_IMAGE_SHA256"; once "$image" @IMAGE_S@; } ;;
    health) [ -e $opt/.serves ] || once $opt/.serves @HEALTH_S@ ;;
  esac
  echo "osgym: $step $did"
}
case $1 in
  up) for step in "${@:2}"; do up; done ;;
  status)
    digest= serves=false
    [ ! -e "$image" ] || digest=$OSGYM_IMAGE_DIGEST
    [ ! -e $opt/.serves ] || serves=true
    printf '{"agent": "%s", "image_digest": "%s", "active": %s, "serving": %s}\n' \
      "$(there)" "$digest" $serves $serves ;;
  pending) ;;
  down) rm -rf $opt $data $etc ;;
esac
"""
WORK = {"PACKAGES_S": 0.4, "AGENT_S": 0.3, "IMAGE_S": 0.2, "HEALTH_S": 0.1}
"""Distribution of a host's work over its steps."""
LEFT = ("etc/osgym", "opt/osgym", "var/lib/osgym-many", "var/cache/osgym", "usr/local/lib/osgym-bootstrap")


def bootstrap(work_s: float) -> str:
    """Return a fake bootstrap for hosts that would work for so long."""
    text = BOOTSTRAP
    for name, share in WORK.items():
        text = text.replace(f"@{name}@", f"{share * work_s:g}")
    return text


@dataclass
class Host:
    """One host. `public_key` has the form of a configuration."""

    folder: Path
    number: int
    public_key: str
    process: subprocess.Popen[bytes]

    @property
    def address(self) -> str:
        return address(self.number)

    def inside(self, path: str) -> Path:
        """Return a file of its own, seen from here; a file that it never wrote does not exist."""
        return self.folder / "upper" / path

    def hold(self, stopped: bool) -> None:
        """Make its sshd accept connections without an answer, or undo that."""
        os.kill(self._sshd(), signal.SIGSTOP if stopped else signal.SIGCONT)

    def breaks(self, step: str, broken: bool) -> None:
        """Make a step fail there, or undo that."""
        path = Path(f"/proc/{self._sshd()}/root/run/broken-{step}")
        path.touch() if broken else path.unlink()

    def read(self, path: str) -> str:
        """Return a text that it wrote; empty for none."""
        found = self.inside(path)
        return found.read_text() if found.exists() else ""

    def without_agent(self) -> None:
        Path(f"/proc/{self._sshd()}/root/run/without-agent").touch()

    def agent_status(self) -> str:
        """Return the kernel's account of the agent that its bootstrap started."""
        root = Path(f"/proc/{self._sshd()}/root")
        pid = (root / "run/osgym.pid").read_text().strip()
        return (root / "proc" / pid / "status").read_text()

    def left(self) -> list[str]:
        return [path for path in LEFT if self.inside(path).is_dir()]

    def _sshd(self) -> int:
        return int(Path(f"/proc/{self.process.pid}/task/{self.process.pid}/children").read_text().split()[0])


def missing() -> str:
    """Return what this machine lacks for them; empty: nothing."""
    if os.geteuid() != 0:
        return "root"
    lacking = [name for name in ("unshare", "sshd", "pivot_root", "pulumi") if shutil.which(name) is None]
    return f"{', '.join(lacking)} on PATH" if lacking else ""


def address(number: int) -> str:
    return f"127.1.{number // 250}.{number % 250 + 1}"


def key_pair() -> tuple[str, str]:
    """Return a private key as sshd reads it, and its public line."""
    key = ed25519.Ed25519PrivateKey.generate()
    private = key.private_bytes(
        serialization.Encoding.PEM, serialization.PrivateFormat.OpenSSH, serialization.NoEncryption()
    )
    public = key.public_key().public_bytes(serialization.Encoding.OpenSSH, serialization.PublicFormat.OpenSSH)
    return private.decode(), public.decode()


@contextlib.contextmanager
def hosts(folder: Path, count: int) -> Iterator[tuple[list[Host], Path]]:
    """Run hosts, and yield them with the private key that all of them accept; all are removed afterwards."""
    subprocess.run(["mount", "-t", "tmpfs", "-o", "size=60%", "tmpfs", str(folder)], check=True)
    made: list[Host] = []
    try:
        private, public = key_pair()
        login = folder / "login"
        login.touch(0o600)
        login.write_text(private)
        for number in range(count):
            made.append(_start(folder / f"host-{number}", number, public))
        end = time.monotonic() + START_S
        for host in made:
            _wait_for(host, end)
        yield made, login
    finally:
        for host in made:
            host.process.kill()  # and with it, all that runs there
        for host in made:
            host.process.wait(30)
        subprocess.run(["umount", "-l", str(folder)], check=True)


def _start(folder: Path, number: int, public: str) -> Host:
    folder.mkdir()
    private, shown = key_pair()
    (folder / "key").touch(0o600)
    (folder / "key").write_text(private)
    (folder / "authorized_keys").write_text(f"{public}\n")
    (folder / "sshd_config").write_text(SSHD.format(address=address(number), port=PORT))
    argv = ["unshare", "-m", "-p", "-f", "--kill-child", "bash", "-c", INIT, "host", str(folder)]
    with (folder / "log").open("wb") as log:
        process = subprocess.Popen(
            argv, stdin=subprocess.DEVNULL, stdout=log, stderr=log, start_new_session=True
        )
    return Host(folder, number, shown, process)


def _wait_for(host: Host, end: float) -> None:
    while True:
        try:
            with socket.create_connection((host.address, PORT), timeout=5) as probe:
                assert probe.recv(4) == b"SSH-"
                return
        except OSError:
            if host.process.poll() is not None or time.monotonic() > end:
                raise RuntimeError(f"host {host.number}: {(host.folder / 'log').read_text()}") from None
            time.sleep(0.05)
