"""Machines behind a real sshd: plain Debians in folders, each with processes and a network of its own.

Only root can make them. A machine can be cut off, made short of disk, given another host key and rebooted.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import secrets
import shutil
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

from osgym_host.images.apt import apt_options, apt_sources
from osgym_host.images.store import default_data_dir
from tests.support import ROOT

PACKAGES = (
    "openssh-server,sudo,iproute2,"
    "python3-venv,uidmap,ca-certificates,curl,tar,xz-utils,zstd,nftables,xfsprogs,procps,"
    "systemd,systemd-sysv,dbus"
)
"""sshd, what the bootstrap would install (`test_infra_bootstrap` installs that from Debian), and systemd,
which does not run here (see `systemd_host`)."""

SUITE = "bookworm"
START_S = 30.0

# pivot_root, not chroot: a process in a chroot may not make user namespaces, and replicas need them.
INIT = """
set -e
mount --bind "$1" "$1"
cd "$1"
mount -t proc proc proc
mount -t sysfs -o ro sysfs sys
mount -t tmpfs tmpfs run
mount -t tmpfs tmpfs tmp
mount --rbind /dev dev
ip link set lo up
mkdir -p old
pivot_root . old
umount -l /old
mkdir -p /run/sshd
exec env -i PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin HOME=/root container=test \
  /usr/sbin/sshd -D -e
"""


# This machine, copied on write: what is changed there is gone with it. $3…: folders that are the same there.
OWN = """
set -e
scratch=$1 bootstrap=$2; shift 2
mount --make-rprivate /
mount -t tmpfs -o size=5g,mode=755 tmpfs "$scratch"
mkdir "$scratch/upper" "$scratch/work" "$scratch/root"
mount -t overlay overlay -o "lowerdir=/,upperdir=$scratch/upper,workdir=$scratch/work" "$scratch/root"
cd "$scratch/root"
for path in "$@"; do mkdir -p ".$path"; mount --rbind "$path" ".$path"; done
mount -t proc proc proc
mount -t sysfs -o ro sysfs sys
mount -t tmpfs tmpfs run
mount --rbind /dev dev
cat /etc/resolv.conf > etc/resolv.conf
touch .dockerenv
printf '#!/bin/sh\\ncase $1 in *w*) exit 1;; esac\\nexec /usr/sbin/sysctl "$@"\\n' > usr/local/sbin/sysctl
chmod 755 usr/local/sbin/sysctl
mkdir -p var/lib/osgym-fleet old
# What replicas write to cannot be an overlay itself.
mount -t tmpfs tmpfs var/lib/osgym-fleet
pivot_root . old
umount -l /old
"$bootstrap" up packages
exec unshare -n bash -c 'ip link set lo up; touch /run/ready; while sleep 1000 & do wait; done'
"""


def missing() -> str:
    """What this machine lacks for them; empty when nothing."""
    if os.geteuid() != 0:
        return "root"
    tools = ("mmdebstrap", "unshare", "nsenter", "ip", "ssh-keygen")
    if lacking := next((tool for tool in tools if shutil.which(tool) is None), ""):
        return lacking
    try:
        tool("ip", "link", "add", "osgymprobe", "type", "veth", "peer", "name", "osgymprobe1")
    except subprocess.CalledProcessError:
        return "network interfaces of our own"
    tool("ip", "link", "delete", "osgymprobe")
    return ""


def tool(*argv: str, timeout_s: float = 60.0) -> str:
    """Runs a tool that must succeed."""
    done = subprocess.run(argv, capture_output=True, text=True, timeout=timeout_s, check=True)
    return done.stdout


def base_archive() -> Path:
    """A plain Debian as an archive; made when the store's cache has none of today's definition."""
    key = hashlib.sha256(f"{SUITE} {PACKAGES}".encode()).hexdigest()[:16]
    folder = default_data_dir() / "cache" / "test-hosts"
    archive = folder / f"{key}.tar"
    if archive.exists():
        return archive
    folder.mkdir(parents=True, exist_ok=True)
    unfinished = folder / f".{key}-{os.getpid()}.tar"
    argv = ["mmdebstrap", "--variant=minbase", f"--include={PACKAGES}", "--dpkgopt=force-unsafe-io"]
    argv += [f"--aptopt={option}" for option in (*apt_options(), 'APT::Install-Recommends "false"')]
    argv += [SUITE, str(unfinished), *apt_sources(SUITE, ["main"])]
    try:
        made = subprocess.run(argv, capture_output=True, text=True, timeout=600, check=False)
        assert made.returncode == 0, made.stderr[-3000:]
        unfinished.rename(archive)
    finally:
        unfinished.unlink(missing_ok=True)
    return archive


@dataclass
class SshMachine:
    """One machine. `address` is reached from here only.

    Attributes:
        key_file: the private key that it lets in, as root and as `ops`, who may use sudo.
    """

    root: Path
    number: int
    key_file: Path
    init: subprocess.Popen[bytes] | None = None
    log: Path = field(init=False)

    def __post_init__(self) -> None:
        self.log = self.root.parent / f"{self.root.name}.log"

    @property
    def address(self) -> str:
        return f"198.18.{self.number // 64}.{self.number % 64 * 4 + 2}"

    @property
    def gateway(self) -> str:
        """Our own end."""
        return f"198.18.{self.number // 64}.{self.number % 64 * 4 + 1}"

    @property
    def host_key(self) -> str:
        """As it stands in a configuration."""
        kind, data = (self.root / "etc/ssh/ssh_host_ed25519_key.pub").read_text().split()[:2]
        return f"{kind} {data}"

    @property
    def link(self) -> str:
        return f"osgym{self.number}"

    def install(self, archive: Path) -> None:
        """Unpacks Debian, with host keys of its own and one key that may log in."""
        self.root.mkdir(parents=True)
        if memory_will_do(self.root):
            tool("mount", "-t", "tmpfs", "-o", "size=4g,mode=755", "tmpfs", str(self.root))
        tool("tar", "-xf", str(archive), "-C", str(self.root), "--exclude=./dev/*", timeout_s=120)
        # A container: kernel settings that cannot be changed are passed over by the bootstrap.
        (self.root / ".dockerenv").touch()
        # The kernel's settings are this machine's, and stay as they are.
        sysctl = self.root / "usr/local/sbin/sysctl"
        sysctl.write_text('#!/bin/sh\ncase $1 in *w*) exit 1;; esac\nexec /usr/sbin/sysctl "$@"\n')
        sysctl.chmod(0o755)
        self.new_host_key()
        folder = self.root / "root" / ".ssh"
        folder.mkdir(mode=0o700, exist_ok=True)
        (folder / "authorized_keys").write_text(self.key_file.with_suffix(".pub").read_text())
        config = "PasswordAuthentication no\nUsePAM no\nHostKey /etc/ssh/ssh_host_ed25519_key\nUseDNS no\n"
        (self.root / "etc/ssh/sshd_config").write_text(config)

    def new_host_key(self) -> None:
        """As after an installation anew; sshd takes it with the next connection after a reboot."""
        for path in (self.root / "etc/ssh").glob("ssh_host_*"):
            path.unlink()
        path = self.root / "etc/ssh/ssh_host_ed25519_key"
        tool("ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", str(path))

    def reinstall(self) -> None:
        """Off, an empty disk with a plain Debian, on: the same address, and the host key that was kept."""
        kept = {path.name: path.read_bytes() for path in (self.root / "etc/ssh").glob("ssh_host_*")}
        self.off()
        if self.root.is_mount():
            tool("umount", str(self.root))
        shutil.rmtree(self.root, ignore_errors=True)
        self.install(base_archive())
        for name, data in kept.items():
            (self.root / "etc/ssh" / name).write_bytes(data)
        self.boot()

    def boot(self) -> None:
        """Starts it; returns when sshd answers."""
        assert self.init is None
        with self.log.open("ab") as log:
            self.init = subprocess.Popen(
                ["unshare", "-m", "-p", "-n", "-u", "-i", "-f", "--kill-child", "bash", "-c", INIT, "init",
                 str(self.root)],
                stdin=subprocess.DEVNULL, stdout=log, stderr=log, start_new_session=True,
            )  # fmt: skip
        pid = str(self.init.pid)
        end = time.monotonic() + START_S
        while os.readlink(f"/proc/{pid}/ns/net") == os.readlink("/proc/self/ns/net"):
            assert self.init.poll() is None and time.monotonic() < end, self.log.read_text()
            time.sleep(0.01)
        tool("ip", "link", "add", self.link, "type", "veth", "peer", "name", "eth0", "netns", pid)
        tool("ip", "address", "add", f"{self.gateway}/30", "dev", self.link)
        tool("ip", "link", "set", self.link, "up")
        self.in_network("ip", "address", "add", f"{self.address}/30", "dev", "eth0")
        self.in_network("ip", "link", "set", "eth0", "up")
        while True:
            try:
                with socket.create_connection((self.address, 22), timeout=1) as probe:
                    assert probe.recv(4) == b"SSH-"
                    return
            except OSError:
                assert self.init.poll() is None and time.monotonic() < end, self.log.read_text()
                time.sleep(0.05)

    def off(self) -> None:
        """Power off: all its processes are gone at once; connections are not closed in an orderly way."""
        if self.init is None:
            return
        with contextlib.suppress(subprocess.CalledProcessError):
            tool("ip", "link", "set", self.link, "down")
        os.killpg(self.init.pid, signal.SIGKILL)
        self.init.wait(30)
        self.init = None
        subprocess.run(["ip", "link", "delete", self.link], capture_output=True, check=False, timeout=30)

    def in_network(self, *argv: str) -> str:
        """Runs a tool of ours in its network."""
        assert self.init is not None
        return tool("nsenter", "-t", str(self.init.pid), "-n", *argv)

    def inside(self, script: str, timeout_s: float = 60.0) -> str:
        """What a script prints that runs on it as root, without ssh."""
        pid = self._first_process()
        argv = ["nsenter", "-t", pid, "-m", "-p", "-n", "-u", "-i", "-r", "-w"]
        argv += ["env", "-i", "PATH=/usr/sbin:/usr/bin:/sbin:/bin", "bash", "-c", script]
        done = subprocess.run(argv, capture_output=True, text=True, timeout=timeout_s, check=False)
        return done.stdout + done.stderr

    def _first_process(self) -> str:
        assert self.init is not None
        children = Path(f"/proc/{self.init.pid}/task/{self.init.pid}/children").read_text().split()
        return children[0]


@dataclass
class OwnMachine:
    """This machine, copied on write, with processes and a network of its own.

    Attributes:
        shared: a folder that is the same in there and here.
    """

    shared: Path
    init: subprocess.Popen[bytes]
    log: Path

    @property
    def enter(self) -> list[str]:
        """What commands are started by to run there, with the environment they get."""
        children = Path(f"/proc/{self.init.pid}/task/{self.init.pid}/children").read_text().split()
        return ["nsenter", "-t", children[0], "-m", "-p", "-n", "-u", "-i", "-r", "-w"]

    def inside(self, script: str, timeout_s: float = 60.0) -> str:
        """What a script prints."""
        argv = [*self.enter, "bash", "-c", script]
        done = subprocess.run(argv, capture_output=True, text=True, timeout=timeout_s, check=False)
        return done.stdout + done.stderr

    def python(self, script: str, *arguments: str, timeout_s: float = 60.0) -> str:
        """What a script of this environment's Python prints."""
        argv = [*self.enter, sys.executable, "-c", script, *arguments]
        done = subprocess.run(argv, capture_output=True, text=True, timeout=timeout_s, check=False)
        return done.stdout + done.stderr


@contextlib.contextmanager
def own_machine(folder: Path, *shared: Path) -> Iterator[OwnMachine]:
    """This machine, copied on write; all that is done there is gone afterwards.

    Args:
        shared: folders that are the same in there, besides this tree and this environment.
    """
    scratch, same, log = folder / "scratch", folder / "shared", folder / "log"
    scratch.mkdir(parents=True)
    same.mkdir()
    tools = [Path(found).parent for name in ("pulumi",) if (found := shutil.which(name))]
    folders = {ROOT, Path(sys.prefix), Path(sys.base_prefix), same, *tools, *shared}
    bootstrap = str(ROOT / "infra/bootstrap/bootstrap.sh")
    argv = ["unshare", "-m", "-p", "-u", "-i", "-f", "--kill-child", "bash", "-c", OWN, "own", str(scratch)]
    with log.open("wb") as out:
        init = subprocess.Popen(
            [*argv, bootstrap, *map(str, sorted(folders))],
            stdin=subprocess.DEVNULL, stdout=out, stderr=out, start_new_session=True,
        )  # fmt: skip
    machine = OwnMachine(same, init, log)
    try:
        end = time.monotonic() + 300
        children = Path(f"/proc/{init.pid}/task/{init.pid}/children")
        while not any(Path(f"/proc/{pid}/root/run/ready").exists() for pid in children.read_text().split()):
            assert init.poll() is None and time.monotonic() < end, log.read_text()
            time.sleep(0.1)
        yield machine
    finally:
        os.killpg(init.pid, signal.SIGKILL)
        init.wait(30)


def memory_will_do(folder: Path) -> bool:
    """Whether a machine may live in memory, which is many times faster: a replica's overlay on it needs
    extended attributes of users, which tmpfs has since Linux 6.6."""
    available_kib = int(Path("/proc/meminfo").read_text().split("MemAvailable:")[1].split()[0])
    release = tuple(int(part) for part in os.uname().release.split(".")[:2])
    return release >= (6, 6) and available_kib > 8 * 1024 * 1024 and os.access(folder, os.W_OK)


@contextlib.contextmanager
def ssh_machine(folder: Path, number: int | None = None) -> Iterator[SshMachine]:
    """A machine that runs; it and all of it is gone afterwards."""
    number = secrets.randbelow(4000) if number is None else number
    key = folder / "id_ed25519"
    if not key.exists():
        tool("ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", str(key))
    machine = SshMachine(folder / f"machine-{number}", number, key)
    try:
        machine.install(base_archive())
        machine.boot()
        yield machine
    finally:
        machine.off()
        if machine.root.is_mount():
            tool("umount", str(machine.root))
        shutil.rmtree(machine.root, ignore_errors=True)
