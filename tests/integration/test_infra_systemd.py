"""The bootstrap under a real systemd: its units run, are bounded, come back by themselves, and go again.

What the test changes of the units, by drop-ins and by hand: intervals, so that it takes seconds. Settings of
the kernel are this machine's: those that the bootstrap makes are files there.
"""

from __future__ import annotations

import json
import re
import resource
import secrets
import shutil
import signal
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from tests.support import cloud_boot, host_fixtures
from tests.support.systemd_host import SystemdHost, missing, remove

from osgym_host.images.store import Image
from osgym_infra.fleet.boot import TARGET
from osgym_infra.fleet.boot_status import BootState, last_on_console

pytestmark = [pytest.mark.desktop, pytest.mark.timeout(600)]

BOOTSTRAP = Path(__file__).resolve().parents[2] / "infra" / "bootstrap"
TOKEN = secrets.token_hex(24)
URL = "http://127.0.0.1:20072"
UNITS = (
    "osgym.service",
    "osgym-firewall.service",
    "osgym-watchdog.timer",
    "osgym-notices.service",
    "osgym-metrics.service",
)
SHORT = {
    # An empty setting forgets the former ones of its kind.
    "osgym-watchdog.timer": "[Timer]\nOnActiveSec=\nOnActiveSec=1\nOnUnitActiveSec=1\nAccuracySec=100ms\n",
    "osgym-watchdog.service": "[Unit]\nStartLimitIntervalSec=0\n",
    "osgym.service": "[Service]\nTimeoutStopSec=30\n",
}


def settings_of_kernel() -> dict[str, str]:
    """Those that the bootstrap makes, with the values that it wants."""
    text = (BOOTSTRAP / "system.sh").read_text().split("<<'CONF'\n")[1].split("\nCONF")[0]
    return dict(re.findall(r"^([a-z][\w.-]+) = (\d+)$", text, re.MULTILINE))


def fake_settings(host: SystemdHost) -> None:
    """They have half of what the bootstrap wants, from the next start on."""
    for name, value in settings_of_kernel().items():
        host.fake_setting(name, str(int(value) // 2))


@pytest.fixture(scope="module")
def host(small_image: Image, tmp_path_factory: pytest.TempPathFactory) -> Iterator[SystemdHost]:
    """A machine that the bootstrap has brought up, as a service of its boot does."""
    if lacking := missing():
        pytest.skip(f"missing: {lacking}")
    made = SystemdHost(tmp_path_factory.mktemp("systemd") / "machine")
    try:
        made.install()
        prepare(made, small_image)
        fake_settings(made)
        assert made.boot() in ("running", "degraded")
        bring_up(made)
        up = f"systemd-run -q --wait --pipe -p Type=oneshot {TARGET}/bootstrap.sh up"
        assert "changed" not in made.inside(up, 60), "the second time nothing is to be done"
        for name, text in SHORT.items():
            folder = made.root / "etc/systemd/system" / f"{name}.d"
            folder.mkdir()
            (folder / "test.conf").write_text(text)
        made.inside("sed -i 's/curl -fsS -m 10/curl -fsS -m 1/' /usr/local/lib/osgym/watchdog")
        made.inside("sed -i 's/--deadline-s 20/--deadline-s 6/' /usr/local/lib/osgym/going-down")
        made.inside("systemctl daemon-reload && systemctl restart osgym-watchdog.timer")
        yield made
    finally:
        remove(made)


def prepare(made: SystemdHost, image: Image) -> None:
    """What a cloud gives a machine: user data, archives in a bucket, a metadata service."""
    agent, packed = host_fixtures.archives(image.digest)
    (made.root / "etc/osgym").mkdir()
    (made.root / "etc/osgym/token").touch(0o600)
    (made.root / "etc/osgym/token").write_text(TOKEN + "\n")
    cloud_boot.prepare(
        made.root,
        {"agent.tar": agent.path, "image.tar": packed.path},
        host_fixtures.settings(image)
        | {
            "OSGYM_AGENT_URI": "s3://bucket/agent.tar",
            "OSGYM_IMAGE_URI": "s3://bucket/image.tar",
            "OSGYM_PORT": "20072",
            "OSGYM_NOTICES": "aws",
            "OSGYM_METRICS_TO": "cloudwatch:us-east-1",
            "OSGYM_METRICS_FLEET": "prod",
        },
    )


def bring_up(host: SystemdHost) -> None:
    """By its user data, and against all that may happen: no name server, a role that is not known yet, a
    `kill -9` and a restart of the machine while it downloads, another archive than was promised."""

    def comes(state: BootState, step: str, says: str = "", attempt: int = 0, timeout_s: float = 120) -> None:
        def there() -> bool:
            found = cloud_boot.record(host)
            return found is not None and (found.state, found.step) == (state, step) and (
                says in found.error and found.attempt >= attempt
            )  # fmt: skip

        until(there, timeout_s, f"{state} {step} {says}; {cloud_boot.record(host)}")

    # The cloud's own names, which nobody resolves here.
    host.inside("bash /srv/user-data", 20)
    comes(BootState.RETRYING, "bootstrap", "cannot be reached")
    cloud_boot.point_to_loopback(host.root)
    (host.root / "srv/deny").touch()
    (host.root / "srv/stall").write_text("image.tar")
    host.inside("systemctl daemon-reload && systemctl restart osgym-boot")
    comes(BootState.RETRYING, "bootstrap", "403 Forbidden (AccessDenied)", 3)
    assert cloud_boot.in_bucket(host.root) is None
    (host.root / "srv/deny").unlink()
    comes(BootState.RUNNING, "image")
    began = cloud_boot.record(host)
    assert began is not None
    until(lambda: cloud_boot.in_bucket(host.root), 20, "the bucket has a record")
    pid = main_pid(host, cloud_boot.UNIT)
    host.inside(f"kill -9 {pid}")
    comes(BootState.RUNNING, "image", attempt=began.attempt + 1)
    assert main_pid(host, cloud_boot.UNIT) not in ("0", pid)
    host.inside("systemctl reboot")
    assert host.ended(60) == signal.SIGHUP
    (host.root / "srv/image.tar").rename(host.root / "srv/right.tar")
    (host.root / "srv/image.tar").write_bytes(b"another")
    (host.root / "srv/stall").unlink()
    fake_settings(host)
    assert host.boot() in ("running", "degraded")
    comes(BootState.FAILED, "image", "has SHA-256")
    (host.root / "srv/right.tar").rename(host.root / "srv/image.tar")
    host.inside("systemctl restart osgym-boot")
    comes(BootState.SERVING, "health", timeout_s=240)
    until(lambda: main_pid(host, cloud_boot.UNIT) == "0", 90, "it ends once the bucket knows")
    assert show(host, cloud_boot.UNIT, "Result")["Result"] == "success"
    told = cloud_boot.in_bucket(host.root)
    assert told is not None
    assert (told.host, told.addresses, told.line()) == (cloud_boot.INSTANCE, (cloud_boot.ADDRESS,), "serving")
    console = (host.root / "srv/console").read_text()
    assert "osgym: service changed" in console
    last = last_on_console(console)
    assert last is not None
    assert last.state is BootState.SERVING


def show(host: SystemdHost, unit: str, *names: str) -> dict[str, str]:
    """Properties of a unit."""
    text = host.inside(f"systemctl show {unit} " + " ".join(f"-p {name}" for name in names))
    return dict(line.split("=", 1) for line in text.splitlines())


def main_pid(host: SystemdHost, unit: str) -> str:
    """Of a service; `0` when none runs."""
    return show(host, unit, "MainPID")["MainPID"]


def health(host: SystemdHost) -> dict[str, object]:
    """What the agent says; empty when it does not answer."""
    done = host.run(f"curl -fsS -m 2 {URL}/v1/health", 30)
    return dict(json.loads(done.stdout)) if done.returncode == 0 else {}


def until(what: Callable[[], object], timeout_s: float, said: str) -> None:
    """Waits."""
    end = time.monotonic() + timeout_s
    while not what():
        assert time.monotonic() < end, f"not within {timeout_s:g} s: {said}"
        time.sleep(0.2)


def serves(host: SystemdHost) -> bool:
    """Whether it answers and is not about to leave."""
    return health(host).get("draining") is False


def may_raise_limits() -> bool:
    """Whether we have CAP_SYS_RESOURCE (number 24)."""
    mask = re.search(r"^CapEff:\s+(\w+)$", Path("/proc/self/status").read_text(), re.MULTILINE)
    return mask is not None and bool(int(mask[1], 16) >> 24 & 1)


def account_of(host: SystemdHost, pid: str) -> int:
    """The user id of a process."""
    return int(host.inside(f"stat -c %u /proc/{pid}"))


def test_units_serve_as_users_of_their_own_within_limits(host: SystemdHost) -> None:
    """Active and enabled; the agent as `osgym`, the other as a user made for it; the kernel keeps limits."""
    for state in ("is-active", "is-enabled"):
        said = host.run(f"systemctl {state} {' '.join(UNITS)}").stdout.split()
        assert said == [{"is-active": "active", "is-enabled": "enabled"}[state]] * len(UNITS)
    until(lambda: health(host).get("notices") == "watching", 5, "it is watched for notices")
    pid = main_pid(host, "osgym.service")
    assert account_of(host, pid) == int(host.inside("id -u osgym"))
    shown = show(host, "osgym.service", "TasksMax", "Delegate", "KillSignal", "LimitNOFILE", "OOMScoreAdjust")
    assert shown == {"TasksMax": "infinity", "Delegate": "yes", "KillSignal": "2", "LimitNOFILE": "1048576",
                     "OOMScoreAdjust": "-500"}  # fmt: skip
    limits = host.inside(f"cat /proc/{pid}/limits")
    # Without CAP_SYS_RESOURCE, as in some containers, not even systemd raises what it was started with.
    most = 1048576 if may_raise_limits() else resource.getrlimit(resource.RLIMIT_NOFILE)[1]
    assert re.search(rf"^Max open files +{most} +{most}", limits, re.MULTILINE)
    assert host.inside(f"cat /proc/{pid}/oom_score_adj") == ("-500" if may_raise_limits() else "0")
    assert host.inside("ls -A /root")
    assert host.inside(f"nsenter -t {pid} -m ls -A /root") == "", "it sees no home"
    assert host.run("journalctl -o cat | grep -cf /etc/osgym/token").stdout.strip() == "0"
    assert host.inside("stat -c '%a %U' /etc/osgym/secret.env") == "600 root"

    pid = main_pid(host, "osgym-notices.service")
    assert 61184 <= account_of(host, pid) <= 65519, "systemd's range for users that it makes"
    status = host.inside(f"cat /proc/{pid}/status")
    assert re.search(r"^CapEff:\s+0+$", status, re.MULTILINE)
    assert re.search(r"^NoNewPrivs:\s+1$", status, re.MULTILINE)
    assert host.run(f"nsenter -t {pid} -m -- touch /etc/x /var/x").returncode != 0, "read only, even for root"
    capped = (
        "find /sys/fs/cgroup -name memory.max -o -name memory.limit_in_bytes | grep osgym-notices || true"
    )
    for path in host.inside(capped).split():
        assert host.inside(f"cat {path}") == str(128 << 20)
    assert host.run("systemctl --failed --plain --no-legend 'osgym*'").stdout == ""
    for name, value in settings_of_kernel().items():
        assert host.inside(f"cat /proc/sys/{name.replace('.', '/')}") == value


def test_only_the_watcher_reaches_the_metadata_service_and_nothing_else(host: SystemdHost) -> None:
    """The agent's account does not; the watcher's unit reaches it, and not even the agent."""
    metadata = "curl -sS -m 1 -o /dev/null http://169.254.169.254/"
    host.inside(metadata)
    assert host.run(f"setpriv --reuid osgym --clear-groups {metadata}").returncode == 28, "a timeout"
    group = host.inside("find /sys/fs/cgroup -path '*/osgym-notices.service/cgroup.procs'").split()
    inside = "".join(f"echo $$ > {path}; " for path in group)
    host.inside(f"{inside} {metadata}")
    assert host.run(f"{inside} curl -sS -m 1 -o /dev/null {URL}/v1/health").returncode == 28


def test_what_the_fleet_is_scaled_by_is_published_from_beside_the_agent(host: SystemdHost) -> None:
    """The agent writes the number; a process of a user made for it, with what it needs of the archive, sends
    it: here it gets nowhere, and says so."""
    pressure = json.loads(host.inside("cat /run/osgym/lease-pressure"))
    assert 0 <= pressure["lease_pressure_percent"] <= 100
    assert host.inside("stat -c '%a %U' /run/osgym/lease-pressure") == "644 osgym"
    host.inside("systemctl restart osgym-metrics.service")
    pid = main_pid(host, "osgym-metrics.service")
    assert 61184 <= account_of(host, pid) <= 65519, "systemd's range for users that it makes"
    journal = "journalctl -u osgym-metrics.service -o cat --since -40s"
    until(lambda: "could not be published to CloudWatch" in host.inside(journal), 30, "it says what it lacks")


def test_a_notice_outlives_the_process_that_brought_it(host: SystemdHost) -> None:
    """It drains the agent, also while the watcher is killed and starts anew; taken back, the agent serves."""
    notice = host.root / "srv/notice"
    at = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(time.time() + 3600))
    notice.write_text(json.dumps({"action": "terminate", "time": at}))
    try:
        host.inside("systemctl restart osgym-notices.service")  # it asks at once, and then every 5 s
        until(lambda: health(host).get("draining"), 10, "the agent drains")
        pid = main_pid(host, "osgym-notices.service")
        host.inside(f"kill -9 {pid}")
        for wait_s in (10.0, 1.5):
            end = time.monotonic() + wait_s
            while time.monotonic() < end and (
                wait_s < 10 or main_pid(host, "osgym-notices.service") in ("0", pid)
            ):
                assert health(host).get("draining") is True
                time.sleep(0.05)
        assert main_pid(host, "osgym-notices.service") not in ("0", pid)
    finally:
        notice.unlink()
    host.inside("systemctl restart osgym-notices.service")
    until(lambda: serves(host), 15, "the agent serves")
    host.inside("systemctl stop osgym-notices.service")
    until(lambda: health(host).get("notices") == "failing", 10, "nobody watches, and the agent knows")
    host.inside("systemctl start osgym-notices.service")
    until(lambda: health(host).get("notices") == "watching", 10, "watched again")


def test_an_agent_that_is_killed_or_hangs_is_started_anew(host: SystemdHost) -> None:
    """Nothing of the former one's desktops is left; a stopped process is noticed by the watchdog."""
    first = main_pid(host, "osgym.service")
    until(lambda: desktops(host), 30, "desktops run")
    former = desktops(host)
    host.inside(f"kill -9 {first}")
    until(lambda: serves(host), 20, "another one serves")
    second = main_pid(host, "osgym.service")
    assert second not in ("0", first)
    assert not former & desktops(host), "orphans"
    host.inside(f"kill -STOP {second}")
    until(lambda: main_pid(host, "osgym.service") not in ("0", second), 60, "the watchdog")
    until(lambda: serves(host), 20, "it serves")
    until(lambda: desktops(host), 30, "desktops run")


def desktops(host: SystemdHost) -> set[str]:
    """Processes of replicas, told from others of the same id by when they began."""
    return set(host.inside("ps -eo uid=,pid=,lstart= | awk '$1 >= 1000000000'").splitlines())


def test_a_reboot_ends_episodes_in_order_and_the_agent_comes_back(host: SystemdHost) -> None:
    """An open episode is ended and said to be; after the boot everything is as before."""
    body = json.dumps({"request_id": "r", "lease_ttl_s": 120})
    auth = f"-H 'Authorization: Bearer {TOKEN}' -H 'Content-Type: application/json'"
    host.inside(f"curl -fsS -m 60 {auth} -d '{body}' -o /dev/null {URL}/v1/episodes")
    fake_settings(host)
    host.inside("systemctl reboot")
    assert host.ended(60) == signal.SIGHUP
    assert host.boot() == "running"
    said = host.inside("journalctl -o cat -u osgym.service")
    assert "the host will be taken away: 1 open episodes were ended" in said
    ended = {"SubState": "dead", "Result": "success"}
    until(lambda: show(host, cloud_boot.UNIT, *ended) == ended, 90, "the boot's service has looked at it all")
    until(lambda: serves(host), 30, "the agent serves again")
    until(lambda: desktops(host), 30, "desktops run")

    def active() -> bool:
        return host.run(f"systemctl is-active {' '.join(UNITS)}").stdout.split() == ["active"] * len(UNITS)

    until(active, 30, "every unit is active")
    assert "skuid" in host.inside("nft list table inet osgym")
    for name, value in settings_of_kernel().items():
        assert host.inside(f"cat /proc/sys/{name.replace('.', '/')}") == value


def test_what_is_taken_down_leaves_nothing(host: SystemdHost) -> None:
    """Stopped: no process, and the watchdog lets it be; removed: no unit, user, file, rule."""
    host.inside("systemctl stop osgym.service", 60)
    host.inside("echo 2 > /run/osgym-watchdog; /usr/local/lib/osgym/watchdog")
    assert show(host, "osgym.service", "Result", "SubState") == {"Result": "success", "SubState": "dead"}
    assert not desktops(host)
    assert host.run("ps -u osgym -o args=").stdout == ""
    host.inside("systemctl start osgym.service")
    until(lambda: serves(host), 30, "it serves")
    for name in (*SHORT, cloud_boot.UNIT):
        shutil.rmtree(host.root / "etc/systemd/system" / f"{name}.d")
    down = host.inside(f"{TARGET}/bootstrap.sh down --purge", 60)
    assert "down ok" in down
    left = host.run(
        "systemctl list-units --all --plain --no-legend 'osgym*';"
        "systemctl list-unit-files --no-legend 'osgym*';"
        "find / -xdev -name '*osgym*' -not -path '/srv/*' -not -path '/var/log/*' -not -path '/proc/*';"
        "find /run -name '*osgym*'; getent passwd osgym; grep osgym /etc/subuid /etc/subgid /etc/fstab;"
        "nft list tables | grep osgym; ps -eo user,args | grep '[o]sgym' | grep -v 'bash -c'"
    )
    # What whoever set the machine up put there, and a lock that was held until just now.
    assert left.stdout.splitlines() == [TARGET, "/run/osgym-bootstrap.lock"]
