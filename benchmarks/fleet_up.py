"""Hundreds of machines behind ssh at once: the real engine, the real provider, real sshds.

    PATH=$PATH:/path/to/pulumi python -m benchmarks.fleet_up              # 200 hosts
    python -m benchmarks.fleet_up --hosts 20 --work-s 2 --upload-mib 1   # a look

What a host is here, and what is not real about it, is said in `fleet_hosts` and in the result. The runs:
`up` with some hosts that cannot work (no server, a silent one, another host key, a full disk), `up` after
that was put right, `up` with nothing to do, `up` with another rotation of the secrets, `refresh`, `destroy`.
Twice a second is noted how many hosts are connected, and what the provider's process uses. As root, with
`pulumi` on PATH.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from hashlib import sha256
from pathlib import Path
from typing import Any

import yaml

from benchmarks import fleet_hosts
from benchmarks.common import ROOT, argument_parser, machine, save
from benchmarks.fleet_hosts import PORT, Host

EVERY_S = 0.5
RUN_S = 3600
STACK = "many"
NO_SERVER, SILENT, OTHER_KEY, NO_ROOM = 3, 1, 2, 2
"""Numbers of hosts that cannot work at first, by the reason."""
PROVIDER = """import sys
from pathlib import Path
from osgym_infra.resources import server

server.bootstrap_files = lambda: {{"bootstrap.sh": Path({path!r}).read_bytes(), "fetch.py": b""}}
server.main(sys.argv[1:])
"""
"""Real provider with a fake bootstrap."""
SAID = re.compile(r"(error: |\* )host root@")
"""Pattern of the engine's report about a failed host: missing, or half configured."""
ON = "--continue-on-error"


@dataclass
class Sampler:
    """Samples running processes in a thread of its own, for the time of the block."""

    provider: Path
    samples: list[dict[str, float]] = field(default_factory=list)
    _end: threading.Event = field(default_factory=threading.Event)

    def __enter__(self) -> Sampler:
        self._began = time.monotonic()
        self._thread = threading.Thread(target=self._run)
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._end.set()
        self._thread.join()

    def peak(self, name: str) -> float:
        return max((sample[name] for sample in self.samples), default=0.0)

    def _run(self) -> None:
        pid = None
        while not self._end.wait(EVERY_S):
            pid = pid if pid and Path(f"/proc/{pid}").exists() else provider_pid(self.provider)
            sample = {"t_s": round(time.monotonic() - self._began, 1), "connected": float(connected())}
            self.samples.append(sample | (used(pid) if pid else dict.fromkeys(used(os.getpid()), 0.0)))


def provider_pid(folder: Path) -> int | None:
    """Return the provider's process; the engine starts Python with its folder."""
    for entry in Path("/proc").glob("[0-9]*"):
        try:
            words = (entry / "cmdline").read_bytes().split(b"\0")
        except OSError:
            continue
        if b"python" in words[0] and any(str(folder).encode() in word for word in words):
            return int(entry.name)
    return None


def connected() -> int:
    """Return the number of hosts to which a connection is open."""
    found = set()
    for line in Path("/proc/net/tcp").read_text().splitlines()[1:]:
        remote, state = line.split()[2:4]
        where, _, port = remote.partition(":")
        if state == "01" and int(port, 16) == PORT:
            found.add(where)
    return len(found)


def used(pid: int) -> dict[str, float]:
    """Return threads, memory and CPU time of a process; zeros when it is gone."""
    try:
        status = Path(f"/proc/{pid}/status").read_text()
        times = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    except OSError:
        status, times = "", []
    rows = dict(line.split(":", 1) for line in status.splitlines())
    cpu = sum(map(int, times[11:13])) / os.sysconf("SC_CLK_TCK") if times else 0.0
    rss = int(rows["VmRSS"].split()[0]) / 1024 if "VmRSS" in rows else 0.0
    return {"threads": float(rows.get("Threads", 0)), "rss_mib": round(rss, 1), "cpu_s": cpu}


class Project:
    """The real `Pulumi.yaml` and program, with state and configuration in a folder."""

    def __init__(self, folder: Path, work_s: float) -> None:
        self.folder, self.provider = folder, folder / "provider"
        self.provider.mkdir(parents=True)
        bootstrap = folder / "bootstrap.sh"
        bootstrap.write_text(fleet_hosts.bootstrap(work_s))
        (self.provider / "__main__.py").write_text(PROVIDER.format(path=str(bootstrap)))
        python = {"name": "python", "options": {"toolchain": "pip", "virtualenv": sys.prefix}}
        (self.provider / "PulumiPlugin.yaml").write_text(yaml.safe_dump({"runtime": python}))
        project = yaml.safe_load((ROOT / "Pulumi.yaml").read_text())
        plugins = {"providers": [{"name": "osgym", "path": str(self.provider)}]}
        (folder / "Pulumi.yaml").write_text(
            yaml.safe_dump({**project, "runtime": python, "plugins": plugins})
        )
        (folder / "infra").symlink_to(ROOT / "infra")
        (folder / "state").mkdir()
        self.configure({})
        self.run("stack", "init", STACK)

    def configure(self, values: Mapping[str, object]) -> None:
        """Replace the configuration, but for what the CLI keeps there."""
        path = self.folder / f"Pulumi.{STACK}.yaml"
        kept = yaml.safe_load(path.read_text()) if path.exists() else {}
        path.write_text(yaml.safe_dump({**kept, "config": {f"osgym:{k}": v for k, v in values.items()}}))

    def run(self, *arguments: str) -> subprocess.CompletedProcess[str]:
        chosen = [] if arguments[:2] == ("stack", "init") else ["--stack", STACK]
        environment = {
            **os.environ,
            "PULUMI_HOME": str(self.folder / "home"),
            "PULUMI_BACKEND_URL": f"file://{self.folder / 'state'}",
            "PULUMI_CONFIG_PASSPHRASE": "only for this run",
            "PULUMI_SKIP_UPDATE_CHECK": "1",
            # The CLI asks for a keyring; where there is no session it would start a bus daemon, which stays.
            "DBUS_SESSION_BUS_ADDRESS": "disabled:",
        }
        return subprocess.run(
            ["pulumi", *arguments, *chosen, "--non-interactive", "--cwd", str(self.folder)],
            env=environment, stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=RUN_S,
            check=False,
        )  # fmt: skip

    def states(self) -> dict[str, int]:
        found = {"serving": 0, "half configured": 0, "other": 0}
        for one in json.loads(self.run("stack", "export").stdout)["deployment"].get("resources") or []:
            if one["type"] == "osgym:index:SshHost":
                serving = one["outputs"].get("serving") and not one.get("initErrors")
                found["serving" if serving else "half configured" if one.get("initErrors") else "other"] += 1
        return found


def measured(project: Project, name: str, *arguments: str) -> dict[str, Any]:
    """Run the engine once, with samples meanwhile."""
    with Sampler(project.provider) as noted:
        began = time.monotonic()
        done = project.run(*arguments, "--yes", "--suppress-progress", "--skip-preview", "-p", "256")
        wall_s = time.monotonic() - began
    text = done.stdout + done.stderr
    counts = re.findall(r"^    [-+~]*\s*(\d+) (\w+)$", text, re.MULTILINE)
    said = {line.strip(" \t*")[:160] for line in text.splitlines() if SAID.match(line.strip())}
    result = {
        "run": name,
        "exit_code": done.returncode,
        "wall_s": round(wall_s, 1),
        "resources": {what: int(number) for number, what in counts},
        "hosts": project.states(),
        "failures": sorted(said),
        "traceback": text[text.index("Traceback") :][:3000] if "Traceback" in text else "",
        "peak_connected": noted.peak("connected"),
        "provider": {key: noted.peak(key) for key in ("threads", "rss_mib", "cpu_s")},
        "samples": noted.samples,
    }
    shown = {key: value for key, value in result.items() if key != "samples"}
    print(json.dumps(shown, indent=1), flush=True)
    return result


def configuration(folder: Path, made: list[Host], login: Path, upload_mib: float) -> dict[str, Any]:
    """Return a fleet of all hosts that exist, and of some that do not."""
    archives = {"agent": folder / "agent.tar", "image": folder / "image.tar"}
    for name, share in (("agent", 0.2), ("image", 0.8)):
        if not archives[name].exists():
            archives[name].write_bytes(os.urandom(int(share * upload_mib * 2**20)))
    digests = {name: sha256(path.read_bytes()).hexdigest() for name, path in archives.items()}
    hosts = [{**reached(host.number, login), "host_key": host.public_key} for host in made]
    hosts += [{**reached(len(made) + n, login), "host_key": made[0].public_key} for n in range(NO_SERVER)]
    return {
        "provider": "ssh", "owner": "lab", "runtime": "local", "replicas": len(hosts),
        "max_replicas_per_host": 1, "hosts": hosts, "allowed_cidrs": ["127.0.0.0/8"],
        "image_uri": archives["image"].as_uri(), "image_sha256": digests["image"],
        "image_digest": digests["image"], "agent_uri": archives["agent"].as_uri(),
        "agent_sha256": digests["agent"],
    }  # fmt: skip


def reached(number: int, login: Path) -> dict[str, Any]:
    """Return a host as it stands in a configuration."""
    return {"address": fleet_hosts.address(number), "port": PORT, "ssh_key": str(login)}


def life(folder: Path, made: list[Host], login: Path, options: argparse.Namespace) -> list[dict[str, Any]]:
    project = Project(folder / "project", options.work_s)
    right = configuration(folder, made, login, options.upload_mib)
    silent = made[:SILENT]
    strange = made[SILENT : SILENT + OTHER_KEY]
    full = made[SILENT + OTHER_KEY : SILENT + OTHER_KEY + NO_ROOM]
    wrong_keys = {host.address: fleet_hosts.key_pair()[1] for host in strange}
    wrong = [{**h, "host_key": wrong_keys.get(h["address"], h["host_key"])} for h in right["hosts"]]
    for host in silent:
        host.hold(True)
    for host in full:
        host.breaks("image", True)
    project.configure({**right, "hosts": wrong})
    runs = [measured(project, "up, some hosts cannot work", "up", ON)]
    for host in silent:
        host.hold(False)
    for host in full:
        host.breaks("image", False)
    right = {**right, "hosts": right["hosts"][: len(made)], "replicas": len(made)}
    project.configure(right)
    runs.append(measured(project, "up, put right", "up", ON))
    runs.append(measured(project, "up, nothing to do", "up", ON))
    project.configure({**right, "rotation": 1})
    runs.append(measured(project, "up, new token and certificates", "up", ON))
    runs.append(measured(project, "refresh", "refresh"))
    before = sum(bool(host.left()) for host in made)
    runs.append(measured(project, "destroy", "destroy", ON))
    after = {host.address: left for host in made if (left := host.left())}
    print(f"hosts with something of ours: {before} before destroy, {len(after)} after {after or ''}")
    runs[-1] |= {"hosts_before": before, "hosts_after": len(after)}
    return runs


def main() -> int:
    parser = argument_parser(__doc__)
    parser.add_argument("--hosts", type=int, default=200)
    parser.add_argument("--work-s", type=float, default=30.0, help="How long a host would work by itself.")
    parser.add_argument("--upload-mib", type=float, default=5.0, help="Sent to each host, both archives.")
    options = parser.parse_args()
    if lacking := fleet_hosts.missing():
        print(f"fleet_up: missing: {lacking}", file=sys.stderr)
        return 2
    if options.hosts <= SILENT + OTHER_KEY + NO_ROOM:
        parser.error("give more --hosts: some of them will not work")
    about = machine()
    folder = Path(tempfile.mkdtemp(prefix="osgym-many-"))
    try:
        (folder / "hosts").mkdir()
        with fleet_hosts.hosts(folder / "hosts", options.hosts) as (made, login):
            runs = life(folder, made, login, options)
    finally:
        shutil.rmtree(folder, ignore_errors=True)
    given = {"hosts": options.hosts, "work_s": options.work_s, "upload_mib": options.upload_mib}
    what = " ".join((fleet_hosts.__doc__ or "").split("\n\n", 1)[1].split())
    path = save(
        "fleet_up", {"machine": about, "given": given, "what_a_host_is": what, "runs": runs}, options.out
    )
    print(f"saved: {path}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
