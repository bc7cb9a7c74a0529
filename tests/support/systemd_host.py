"""A plain Debian in a folder whose first process is a real systemd: what the bootstrap's units run under.

Only root can make it. It has processes, network, host name and control groups of its own, and can be switched
off and on again. The kernel is this machine's: its settings cannot be changed from in there.
"""

from __future__ import annotations

import contextlib
import ctypes
import os
import shutil
import signal
import subprocess
import time
from dataclasses import dataclass, field
from pathlib import Path

from tests.support.ssh_hosts import base_archive, memory_will_do, tool

GROUPS = Path("/sys/fs/cgroup")
SETTINGS = "srv/sysctl"
"""Folder below the root, of files that stand for settings of the kernel in there: as in /proc/sys."""
START_S = 60.0
INSTANCES = 16
"""Of inotify, that systemd and what it starts here need at least."""

# pivot_root, not chroot: a process in a chroot may not make user namespaces, and replicas need them.
# $1: the root; then groups of control, as `where kind options`.
INIT = """
set -e
root=$1; shift
mount --make-rprivate /
mount --bind "$root" "$root"
cd "$root"
mount -t proc proc proc
mount -t sysfs -o ro sysfs sys
mount -t tmpfs -o mode=755 tmpfs run
mount -t tmpfs -o mode=1777 tmpfs tmp
mount -t tmpfs -o mode=755 tmpfs dev
mkdir dev/pts dev/shm dev/net
mount -t devpts -o newinstance,ptmxmode=0666,mode=620,gid=5 devpts dev/pts
mount -t tmpfs -o mode=1777 tmpfs dev/shm
ln -s pts/ptmx dev/ptmx
for path in $SHARED; do
  mkdir -p ".$path"
  mount --bind "$path" ".$path"
  mount -o remount,bind,ro ".$path"
done
ln -s /proc/self/fd dev/fd
for name in null zero full random urandom tty fuse net/tun; do
  [ ! -e "/dev/$name" ] || { touch "dev/$name"; mount --bind "/dev/$name" "dev/$name"; }
done
# Settings of the kernel are this machine's: read only, but for those of a network and those that fakes
# are there for.
mkdir -p srv/proc
# Stays: replicas may have a /proc of their own only where one is that nothing hides parts of.
mount -t proc proc srv/proc
mount --bind proc/sys proc/sys
mount -o remount,bind,ro proc/sys
mount --bind srv/proc/sys/net proc/sys/net
cd srv/sysctl
for name in $(find . -type f); do mount --bind "$name" "../../proc/sys/$name"; done
cd ../..
[ "$1" = ". cgroup2 rw" ] || mount -t tmpfs -o mode=755 tmpfs sys/fs/cgroup
for group in "$@"; do
  read -r where kind options <<< "$group"
  mkdir -p "sys/fs/cgroup/$where"
  mount -t "$kind" -o "$options" cgroup "sys/fs/cgroup/$where"
done
ip link set lo up
ip address add 169.254.169.254/32 dev lo
mkdir -p old
pivot_root . old
umount -l /old
exec env -i container=test PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin \\
  /lib/systemd/systemd --system --show-status=0
"""

# Takes its groups ($1 of them) before it makes them the top of what it sees.
OUTER = """
set -e
count=$1; shift
for ((i = 0; i < count; i++)); do echo $$ > "$1/cgroup.procs"; shift; done
exec unshare -C -m -p -n -u -i -f --kill-child bash -c "$@"
"""


@dataclass(frozen=True, slots=True)
class Hierarchy:
    """A hierarchy of control groups: where it is mounted, how, and the group of this process in it."""

    mount: Path
    kind: str
    options: str
    own: Path

    @property
    def wanted(self) -> str:
        """As `INIT` takes it."""
        return f"{self.mount.relative_to(GROUPS)} {self.kind} {self.options}"


def hierarchies() -> list[Hierarchy]:
    """Those below /sys/fs/cgroup; not version 1's `cpuset`, whose new groups take no process."""
    groups: dict[str, str] = {}
    for line in Path("/proc/self/cgroup").read_text().splitlines():
        _, names, path = line.split(":", 2)
        groups |= dict.fromkeys(names.split(","), path)
    found = []
    for line in Path("/proc/self/mountinfo").read_text().splitlines():
        fields, (kind, _, options) = line.split(" - ")[0].split(), line.split(" - ")[1].split()[:3]
        mount = Path(fields[4])
        if kind not in ("cgroup", "cgroup2") or not mount.is_relative_to(GROUPS):
            continue
        given = [] if kind == "cgroup2" else [o for o in options.split(",") if o in groups]
        if kind == "cgroup" and (not given or "cpuset" in given):
            continue
        own = mount / os.path.relpath(groups[given[0] if given else ""], fields[3])
        options = ",".join(f"none,{o}" if o.startswith("name=") else o for o in given) or "rw"
        found.append(Hierarchy(mount, kind, options, own))
    return found


def missing() -> str:
    """What this machine lacks for it; empty when nothing."""
    if os.geteuid() != 0:
        return "root"
    tools = ("mmdebstrap", "unshare", "nsenter", "ip")
    if lacking := next((name for name in tools if shutil.which(name) is None), ""):
        return lacking
    if not any(h.kind == "cgroup2" or "name=systemd" in h.options for h in hierarchies()):
        return "control groups of version 2, or systemd's of version 1"
    return "" if _watches_left() else "instances of inotify (fs.inotify.max_user_instances: all are in use)"


def _watches_left() -> bool:
    """Whether root may have more instances of inotify: without, systemd ends at once and says nothing."""
    libc = ctypes.CDLL(None)
    found = [libc.inotify_init1(os.O_CLOEXEC) for _ in range(INSTANCES)]
    for fd in found:
        if fd >= 0:
            os.close(fd)
    return all(fd >= 0 for fd in found)


@dataclass
class SystemdHost:
    """One such machine.

    Attributes:
        in_memory: whether its disk may be this machine's memory, which is faster and small.
        shared: folders of this machine that are there, too, at their places and read only.
    """

    root: Path
    init: subprocess.Popen[bytes] | None = None
    in_memory: bool = True
    shared: tuple[Path, ...] = ()
    log: Path = field(init=False)
    _groups: list[Path] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.log = self.root.parent / f"{self.root.name}.log"

    def install(self) -> None:
        """Unpacks Debian; nothing of it starts by itself but what systemd needs."""
        self.root.mkdir(parents=True)
        if self.in_memory and memory_will_do(self.root):
            tool("mount", "-t", "tmpfs", "-o", "size=5g,mode=755", "tmpfs", str(self.root))
        tool("tar", "-xf", str(base_archive()), "-C", str(self.root), "--exclude=./dev/*", timeout_s=120)
        (self.root / "etc/machine-id").write_text("0123456789abcdef" * 2 + "\n")
        (self.root / "var/log/journal").mkdir(parents=True, exist_ok=True)
        units = self.root / "etc/systemd/system"
        masked = ("ssh.service", "apt-daily.timer", "apt-daily-upgrade.timer", "dpkg-db-backup.timer",
                  "e2scrub_all.timer", "fstrim.timer", "getty.target", "systemd-logind.service",
                  "e2scrub_reap.service")  # fmt: skip
        for name in masked:
            (units / name).unlink(missing_ok=True)
            (units / name).symlink_to("/dev/null")
        (units / "default.target").symlink_to("/lib/systemd/system/multi-user.target")
        (self.root / SETTINGS).mkdir(parents=True)

    def fake_setting(self, setting: str, value: str) -> None:
        """Lets a setting of the kernel be a file from the next start on."""
        path = self.root / SETTINGS / setting.replace(".", "/")
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(f"{value}\n")

    def boot(self) -> str:
        """Starts it; returns what systemd says when all has been started: `running`, or `degraded`."""
        assert self.init is None
        self._make_groups()
        found = hierarchies()
        argv = ["bash", "-c", OUTER, "outer", str(len(self._groups)), *map(str, self._groups), INIT, "init"]
        with self.log.open("ab") as log:
            self.init = subprocess.Popen(
                [*argv, str(self.root), *(h.wanted for h in found)],
                stdin=subprocess.DEVNULL, stdout=log, stderr=log, start_new_session=True,
                env={**os.environ, "SHARED": " ".join(map(str, self.shared))},
            )  # fmt: skip
        end = time.monotonic() + START_S
        while not self._started():
            assert self.init.poll() is None and time.monotonic() < end, self.log.read_text()
            time.sleep(0.05)
        # What waits for its end is not in its groups.
        for group in self._groups:
            (group.parent / "cgroup.procs").write_text(str(self.init.pid))
        return self.run("systemctl is-system-running --wait", START_S).stdout.strip()

    def _started(self) -> bool:
        """Whether systemd can be asked."""
        with contextlib.suppress(OSError, IndexError):
            return Path(f"/proc/{self._first_process()}/root/run/systemd/private").exists()
        return False

    def _make_groups(self) -> None:
        name = f"{self.root.name}-{os.getpid()}"
        self._groups = [h.own / name for h in hierarchies()]
        for group in self._groups:
            group.mkdir(exist_ok=True)

    def ended(self, timeout_s: float) -> int:
        """Waits until it has switched itself off; returns the signal that the kernel ended its first
        process by: SIGINT for a power-off, SIGHUP for a reboot (pid_namespaces(7))."""
        assert self.init is not None
        code = self.init.wait(timeout_s)
        self.init = None
        return -code

    def off(self) -> None:
        """As if its plug was pulled; removes its control groups."""
        if self.init is not None:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(self.init.pid, signal.SIGKILL)
            self.init.wait(30)
            self.init = None
        for top in self._groups:
            for folder, _, _ in os.walk(top, topdown=False):
                end = time.monotonic() + 5
                while True:
                    try:
                        Path(folder).rmdir()
                    except FileNotFoundError:
                        pass
                    except OSError:  # processes are still dying
                        assert time.monotonic() < end, f"{folder} is busy"
                        time.sleep(0.02)
                        continue
                    break

    def run(self, script: str, timeout_s: float = 60.0) -> subprocess.CompletedProcess[str]:
        """Runs a script of bash in there, as root."""
        argv = ["nsenter", "-t", self._first_process(), "-m", "-p", "-n", "-u", "-i", "-C", "-r", "-w"]
        argv += ["env", "-i", "HOME=/root", "PATH=/usr/sbin:/usr/bin:/sbin:/bin", "bash", "-c", script]
        return subprocess.run(argv, capture_output=True, text=True, timeout=timeout_s, check=False)

    def inside(self, script: str, timeout_s: float = 60.0) -> str:
        """What a script prints that has to succeed."""
        done = self.run(script, timeout_s)
        assert done.returncode == 0, f"{script}: {done.returncode}\n{done.stdout}{done.stderr}"
        return done.stdout.strip()

    def _first_process(self) -> str:
        assert self.init is not None
        return Path(f"/proc/{self.init.pid}/task/{self.init.pid}/children").read_text().split()[0]


def remove(host: SystemdHost) -> None:
    """Switches it off and removes all of it."""
    host.off()
    if host.root.is_mount():
        tool("umount", str(host.root))
    shutil.rmtree(host.root, ignore_errors=True)
