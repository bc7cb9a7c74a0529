"""`osgym fleet run|logs|doctor|ssh` on machines behind real sshds, with fleet.json's host keys."""

from __future__ import annotations

import contextlib
import json
import os
import pty
import select
import signal
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result
from tests.support import ssh_hosts
from tests.support.fleet_files import write_fleet
from tests.support.host_process import osgym, wait_until
from tests.support.ssh_hosts import SshMachine, ssh_machine, tool

from osgym_infra.cli.fleet import fleet as command

pytestmark = [
    pytest.mark.skipif(bool(ssh_hosts.missing()), reason=f"missing: {ssh_hosts.missing()}"),
    pytest.mark.timeout(240),
]

MARK = "osgym-test-sleeps"
"""In the command lines of what must not outlive us."""


@pytest.fixture(scope="module")
def machines(tmp_path_factory: pytest.TempPathFactory) -> Iterator[list[SshMachine]]:
    """Two machines: the first lets in root, and `ops`, who may use sudo."""
    folder = tmp_path_factory.mktemp("machines")
    with contextlib.ExitStack() as stack:
        made = [stack.enter_context(ssh_machine(folder)) for _ in range(2)]
        made[0].inside(
            "useradd --create-home -s /bin/bash ops; cp -a /root/.ssh /home/ops/; chown -R ops: /home/ops;"
            "echo 'ops ALL=(ALL) NOPASSWD: ALL' > /etc/sudoers.d/ops; passwd -d ops"
        )
        yield made


@pytest.fixture(autouse=True)
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """No known_hosts, keys or ssh agent of whoever runs the tests."""
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.delenv("SSH_AUTH_SOCK", raising=False)


def row(machine: SshMachine, name: str, **ssh: Any) -> dict[str, Any]:
    """A machine as it stands in fleet.json."""
    access = {"address": machine.address, "host_key": machine.host_key, "key_file": str(machine.key_file)}
    return {"id": name, "url": f"https://{machine.address}:20000", "ssh": {**access, **ssh}}


def run(path: Path, *arguments: str) -> Result:
    name, *rest = arguments
    return CliRunner().invoke(command, [name, "--fleet", str(path), *rest])


def failures(done: Result) -> dict[str, dict[str, str] | None]:
    """By host."""
    return {one["host"]: one["failure"] for one in json.loads(done.stdout)["hosts"]}


def test_a_command_runs_on_all_and_its_lines_name_their_host(
    machines: list[SshMachine], tmp_path: Path
) -> None:
    """As it is, in parallel; as one line for a shell; as another account with sudo."""
    rows = [row(machines[0], "a"), row(machines[1], "b"), row(machines[0], "c", user="ops")]
    path = write_fleet(
        tmp_path / "fleet.json", [*rows, {**row(machines[0], "d"), "ssh": {"address": "local"}}]
    )
    done = run(path, "run", "--", "echo", "it's", "a  b", "$HOME")
    assert done.exit_code == 0, done.output
    assert sorted(done.stdout.splitlines()) == [f"{name} | it's a  b $HOME" for name in "abcd"]
    shell = run(path, "run", "--host", "[abc]", "--", "id -un; echo $((40 + 2)) >&2")
    assert sorted(shell.stdout.splitlines()) == [
        "a | 42",
        "a | root",
        "b | 42",
        "b | root",
        "c | 42",
        "c | ops",
    ]
    assert "c | root" in run(path, "run", "--host", "c", "--sudo", "--", "id", "-un").stdout
    began = time.monotonic()
    assert run(path, "run", "--host", "[ab]", "--", "sleep", "2").exit_code == 0
    assert time.monotonic() - began < 3.8
    one_at_a_time = time.monotonic()
    assert run(path, "run", "--host", "[ab]", "--parallel", "1", "--", "sleep", "1").exit_code == 0
    assert time.monotonic() - one_at_a_time > 2


def test_each_failure_is_named_with_step_and_remedy(machines: list[SshMachine], tmp_path: Path) -> None:
    """Another exit code, another key, an unknown one, a login that is refused, nobody there."""
    other = tmp_path / "other"
    tool("ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", str(other))
    rows = [
        row(machines[0], "good"),
        row(machines[0], "bad-exit", user="ops"),
        row(machines[0], "changed", host_key=machines[1].host_key),
        row(machines[0], "unknown", host_key=""),
        row(machines[0], "refused", key_file=str(other)),
        row(machines[0], "closed", port=2),
        {"id": "nameless", "url": "https://10.0.0.1:20000"},
    ]
    path = write_fleet(tmp_path / "fleet.json", rows)
    machines[0].inside("rm -f /tmp/ran-*")
    done = run(path, "run", "--json", "--", 'touch /tmp/ran-$(id -un); [ "$(id -un)" = root ] || exit 7')
    assert done.exit_code == 1
    found = failures(done)
    assert found.pop("good") is None
    assert {name: failure and failure["step"] for name, failure in found.items()} == {
        "bad-exit": "run", "changed": "host key", "unknown": "host key", "refused": "login",
        "closed": "connect", "nameless": "connect",
    }  # fmt: skip
    bad = found.pop("bad-exit")
    assert bad is not None
    assert "exit code 7" in bad["problem"]
    assert all(failure and failure["remedy"] for failure in found.values())
    unknown = found["unknown"]
    assert unknown is not None
    assert "SHA256:" in unknown["problem"]
    assert machines[0].inside("ls /tmp | grep ran-").split() == ["ran-ops", "ran-root"]
    assert not (tmp_path / ".ssh" / "known_hosts").exists()
    text = run(path, "run", "--", "true")
    assert "host changed: host key: " in text.stderr
    assert "5 of 7 hosts failed" in text.stderr


def test_known_hosts_are_trusted_where_fleet_json_names_no_key(
    machines: list[SshMachine], tmp_path: Path
) -> None:
    """As with any ssh."""
    known = tmp_path / ".ssh" / "known_hosts"
    known.parent.mkdir()
    known.write_text(f"{machines[0].address} {machines[0].host_key}\n")
    path = write_fleet(tmp_path / "fleet.json", [row(machines[0], "a", host_key="")])
    assert run(path, "run", "--", "true").exit_code == 0


def test_a_host_behind_another_is_entered_through_it(machines: list[SshMachine], tmp_path: Path) -> None:
    """Both host keys are checked; the way in that fails is named as that."""
    inner = {"address": "127.0.0.1"}  # of the first machine: nobody else gets there
    jump = row(machines[0], "")["ssh"]
    rows = [
        row(machines[0], "behind", **inner, jump=jump),
        row(machines[0], "stranger", **inner, jump={**jump, "host_key": machines[1].host_key}),
        row(machines[0], "inner-stranger", **inner, host_key=machines[1].host_key, jump=jump),
    ]
    path = write_fleet(tmp_path / "fleet.json", rows)
    done = run(path, "run", "--json", "--", "ip", "-o", "-4", "address", "show", "eth0")
    found = failures(done)
    assert found["behind"] is None
    assert machines[0].address in json.loads(done.stdout)["hosts"][0]["output"]
    steps = [failure and failure["step"] for failure in (found["stranger"], found["inner-stranger"])]
    assert steps == ["jump host key", "host key"]


def test_the_deadline_stops_it_on_the_host_too(machines: list[SshMachine], tmp_path: Path) -> None:
    """With all that it started."""
    path = write_fleet(tmp_path / "fleet.json", [row(machine, f"m{n}") for n, machine in enumerate(machines)])
    began = time.monotonic()
    done = run(path, "run", "--json", "--deadline-s", "2", "--", sleeping())
    assert time.monotonic() - began < 10
    assert done.exit_code == 1
    assert all(failure and "not end within 2 s" in failure["problem"] for failure in failures(done).values())
    wait_until(lambda: not still_there(machines), 15, "the command to be gone from the hosts")


def test_a_host_that_says_nothing_does_not_hold_up_the_others(
    machines: list[SshMachine], tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """Its sshd is stopped in the middle."""
    path = write_fleet(tmp_path / "fleet.json", [row(machine, f"m{n}") for n, machine in enumerate(machines)])
    os.kill(int(machines[1]._first_process()), signal.SIGSTOP)
    try:
        began = time.monotonic()
        done = run(path, "run", "--json", "--deadline-s", "3", "--", "true")
        assert time.monotonic() - began < 15
    finally:
        os.kill(int(machines[1]._first_process()), signal.SIGCONT)
    found = failures(done)
    assert (found["m0"], found["m1"] and found["m1"]["step"]) == (None, "connect")
    assert "no answer in time" in str(found["m1"])
    assert "Traceback" not in caplog.text


def test_ctrl_c_stops_it_on_the_hosts_too(machines: list[SshMachine], tmp_path: Path) -> None:
    """At once, with the exit code that shells give it and no traceback."""
    path = write_fleet(tmp_path / "fleet.json", [row(machine, f"m{n}") for n, machine in enumerate(machines)])
    argv = [sys.executable, "-m", "osgym_infra", "fleet", "run", "--fleet", str(path), "--", sleeping()]
    process = subprocess.Popen(argv, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    wait_until(lambda: len(still_there(machines)) == 2, 30, "the command to run on both")
    process.send_signal(signal.SIGINT)
    _, said = process.communicate(timeout=10)
    assert (process.returncode, said.strip()) == (130, "interrupted")
    wait_until(lambda: not still_there(machines), 15, "the command to be gone from the hosts")


def test_what_a_host_prints_steers_no_terminal_and_ends(machines: list[SshMachine], tmp_path: Path) -> None:
    """Escape sequences are shown, lines are cut, and there are only so many of them."""
    path = write_fleet(tmp_path / "fleet.json", [row(machines[0], "a")])
    evil = run(
        path,
        "run",
        "--",
        r"printf '\033]0;owned\007\n\342\200\256back\n'; head -c 1000000 /dev/zero | tr '\0' x",
    )
    assert evil.exit_code == 0
    first, second, third = evil.stdout.splitlines()
    assert (first, second) == (r"a | \x1b]0;owned\x07", r"a | \u202eback")
    assert len(third) < 5000
    many = run(path, "run", "--", "seq 100000")
    assert len(many.stdout.splitlines()) == 2001
    assert many.stdout.splitlines()[-1] == "a | … 98000 more lines are not shown"
    assert len(run(path, "run", "--json", "--", "seq 2000000").stdout) < 3 * 1024 * 1024


def test_a_table_has_a_row_for_each_host(machines: list[SshMachine], tmp_path: Path) -> None:
    """In a terminal it is drawn again and again in the same place."""
    path = write_fleet(tmp_path / "fleet.json", [row(machine, f"m{n}") for n, machine in enumerate(machines)])
    plain = run(path, "run", "--table", "--", "echo one; echo two")
    assert plain.exit_code == 0
    lines = {line.split()[0]: line.split()[1:] for line in plain.stdout.splitlines()}
    assert [lines["m0"][0], lines["m0"][1], lines["m0"][-1]] == ["well", "0", "two"]
    shown, code = in_terminal(["run", "--fleet", str(path), "--table", "--", "echo one; sleep 1; echo two"])
    assert code == 0
    assert "\x1b[" in shown  # the cursor goes back up
    assert "running" in shown
    assert shown.count("m1") > 2


def test_a_shell_is_opened_in_a_terminal_only(machines: list[SshMachine], tmp_path: Path) -> None:
    """Its exit code is ours; --print shows the same for OpenSSH's client."""
    path = write_fleet(tmp_path / "fleet.json", [row(machines[0], "a"), row(machines[1], "b", host_key="")])
    assert run(path, "ssh", "a").exit_code == 2
    printed = run(path, "ssh", "--print", "a").stdout
    assert printed.startswith("ssh -o StrictHostKeyChecking=yes -p 22 -i ")
    shown, code = in_terminal(["ssh", "--fleet", str(path), "a"], b"echo $((40+2))-there\nexit 7\n")
    assert "42-there" in shown
    assert code == 7
    shown, code = in_terminal(["ssh", "--fleet", str(path), "b"], b"exit 0\n")
    assert code == 1
    assert "host key is not known" in shown


def test_a_doctor_is_asked_on_each_host(machines: list[SshMachine], tmp_path: Path) -> None:
    """What it answers is the real command's; a host without an agent, and one whose agent babbles, fail."""
    answer = osgym("doctor", "--json", "--quick").stdout
    assert json.loads(answer)["checks"]
    for machine, text in ((machines[0], answer), (machines[1], '{\n"checks": 7}')):
        machine.inside("useradd --system osgym; mkdir -p /opt/osgym/current/bin /etc/osgym")
        agent = Path(f"/proc/{machine._first_process()}/root/opt/osgym/current/bin/osgym")
        agent.write_text(
            f"#!/bin/sh\necho Welcome\n[ $(id -un) = osgym ] || exit 9\ncat <<'J'\n{text}\nJ\necho $@ >&2\n"
        )
        agent.chmod(0o755)
    path = write_fleet(tmp_path / "fleet.json", [row(machines[0], "a", user="ops"), row(machines[1], "b")])
    done = run(path, "doctor", "--quick", "--json")
    assert done.exit_code == 1
    first, second = json.loads(done.stdout)["hosts"]
    assert [check["name"] for check in first["checks"]] == [c["name"] for c in json.loads(answer)["checks"]]
    assert second["failure"]["step"] == "doctor"
    assert run(path, "doctor", "--host", "a").exit_code == 0
    machines[1].inside("rm -r /opt/osgym")
    assert "no agent in /opt/osgym" in run(path, "doctor").stderr


def sleeping() -> str:
    """A line whose process can be found."""
    return f"bash -c 'exec -a {MARK} sleep 1000'"


def still_there(machines: Sequence[SshMachine]) -> list[str]:
    """Addresses of the machines on which it runs."""
    return [one.address for one in machines if one.inside(f"pgrep -f ^{MARK}").strip()]


def in_terminal(arguments: Sequence[str], typed: bytes = b"", timeout_s: float = 40) -> tuple[str, int]:
    """What `osgym fleet` shows in a terminal of its own, and its exit code."""
    ours, theirs = pty.openpty()
    argv = [sys.executable, "-m", "osgym_infra", "fleet", *arguments]
    process = subprocess.Popen(
        argv, stdin=theirs, stdout=theirs, stderr=theirs, env={**os.environ, "TERM": "xterm"},
        start_new_session=True,
    )  # fmt: skip
    os.close(theirs)
    shown = bytearray()
    end = time.monotonic() + timeout_s
    try:
        while time.monotonic() < end:
            if not select.select([ours], [], [], 0.5)[0]:
                if process.poll() is not None:
                    break
                continue
            try:
                shown += os.read(ours, 65536)
            except OSError:
                break
            if typed and b"# " in shown:  # the prompt
                os.write(ours, typed)
                typed = b""
        return shown.decode(errors="replace"), process.wait(10)
    finally:
        process.kill()
        process.wait(10)
        os.close(ours)


def test_hosts_behind_a_bastion_share_one_connection(machines: list[SshMachine], tmp_path: Path) -> None:
    """A server refuses hundreds that log in at once."""
    jump = row(machines[0], "")["ssh"]
    rows = [row(machines[0], f"h{n}", address="127.0.0.1", jump=jump) for n in range(6)]
    path = write_fleet(tmp_path / "fleet.json", rows)
    count = f"sleep 2; ss -Htn state established 'sport = :22' | grep -c ' {machines[0].gateway}:'"
    done = run(path, "run", "--", count)
    assert done.exit_code == 0, done.output
    assert [line.split()[-1] for line in done.stdout.splitlines()] == ["1"] * 6
