"""docs/fleet.md followed word by word: from a plain Debian to a step over TLS and back.

By a user whose sudo asks for a password. The commands are those of the page, in its order; what is typed is
what a person would answer. Nothing of OSGym is there before. With the real engine that takes minutes; without
it, what needs none is run.
"""

from __future__ import annotations

import json
import re
import shutil
import sys
from pathlib import Path

import pytest
from tests.support import ROOT
from tests.support.fresh_machine import HOME, USER, FreshMachine, fresh_machine
from tests.support.page import Block, sections
from tests.support.ssh_hosts import missing as missing_link
from tests.support.systemd_host import missing

pytestmark = [pytest.mark.desktop, pytest.mark.timeout(3000)]

WALK_S = 2700
MADE = "/opt/osgym /etc/osgym /usr/local/lib/osgym /var/lib/osgym /var/lib/osgym-fleet"


@pytest.fixture
def _possible() -> None:
    if lacking := missing() or missing_link():
        pytest.skip(f"missing: {lacking}")


def answers(machine: FreshMachine) -> dict[str, str]:
    """What a person types."""
    return {
        r"password for \w+: ": f"{machine.password}\n",
        r"install them now\? \[y/N\] ": "y\n",
        # A list to choose from; `no` is chosen, and `yes` stands above it.
        r"Do you want to perform this (update|destroy)\?(?s:.*?)details": "\x1b[A\r",
        r"Please confirm that this is what you'd like to do by typing": "laptop\n",
        r"trajectories and caches\? \[y/N\]: ": "y\n",
    }


def walk() -> list[Block]:
    """The page's commands for this machine, in the order in which it sends its reader through them."""
    page = sections((ROOT / "docs" / "fleet.md").read_text("utf-8"))
    once, here, step = (page[name] for name in ("Once: tools and state", "This machine", "The first step"))
    shell = [block for block in here if block.kind == "bash"]
    assert "pulumi up" in shell[-2].text
    assert "pulumi destroy" in shell[-1].text
    return [*once, *shell[:-1], *(b for b in step if b.kind in ("bash", "python")), shell[-1]]


def script(blocks: list[Block]) -> str:
    """As one goes through them in one terminal; a failed command ends it."""
    lines = ["set -e", "cd ~/osgym", "export PULUMI_SKIP_UPDATE_CHECK=1"]
    for number, block in enumerate(blocks):
        lines.append(f'echo "@@ {number} $EPOCHREALTIME"')
        if block.kind == "python":
            lines.append(f"cat > first.py <<'PYTHON'\n{block.text}PYTHON\npython first.py")
        else:
            lines.append(block.text)
    return "\n".join([*lines, 'echo "@@ end $EPOCHREALTIME"', ""])


def test_the_page_has_what_is_walked() -> None:
    """The commands from setting up to taking down stand on it, each once."""
    text = script(walk())
    order = ["make setup", "pulumi login", "cp Pulumi.example-ssh.yaml", "pulumi stack init laptop",
             "osgym fleet sudo", "pulumi preview", "pulumi up", "osgym fleet export", "osgym fleet wait",
             "Client.from_fleet", "pulumi destroy", "pulumi stack rm laptop", "clean --all"]  # fmt: skip
    at = [text.index(command) for command in order]
    assert at == sorted(at)


@pytest.mark.skipif(shutil.which("pulumi") is None, reason="missing: the pulumi CLI")
@pytest.mark.usefixtures("_possible")
def test_the_page_leads_from_nothing_to_a_step_and_back(tmp_path: Path) -> None:
    """First try: every command succeeds, a task is stepped over TLS and scored, and nothing is left."""
    with fresh_machine(tmp_path) as machine:
        follow(machine, tmp_path)


def follow(machine: FreshMachine, tmp_path: Path) -> None:
    """The page, on a machine."""
    machine.give_engine()
    machine.give_tree()
    machine.connect()
    assert machine.run(f"ls -d {MADE} 2>/dev/null").stdout == ""
    machine.inside("apt-get update -q && apt-get install -y -q make", 120)
    blocks = walk()
    code, shown = machine.as_user(script(blocks), answers(machine), WALK_S)
    (tmp_path / "walk.log").write_text(shown)
    assert code == 0, shown[-6000:]
    assert re.search(r"settled: \w+ overhead ms: [\d.]+", shown), shown[-6000:]
    assert re.search(r"^reward: [01]\.0", shown, re.MULTILINE), shown[-6000:]
    assert "-- " not in shown
    times = {name: float(at) for name, at in re.findall(r"^@@ (\w+) ([\d.]+)", shown, re.MULTILINE)}
    step = next(number for number, block in enumerate(blocks) if block.kind == "python")
    to_step, whole = times[str(step + 1)] - times["0"], times["end"] - times["0"]
    print(f"README to first step: {to_step:.0f} s; with taking down: {whole:.0f} s")
    left = machine.run(f"ls -d {MADE} /etc/sudoers.d/zz-* 2>/dev/null; getent passwd osgym").stdout
    assert left == ""
    assert machine.run(f"find {HOME}/osgym ! -user {USER}").stdout == "", "what only root could remove"
    fleet = json.loads((machine.root / HOME[1:] / "osgym/fleet.json").read_text())
    assert fleet["hosts"][0]["url"].startswith("https://127.0.0.1:")


ROOTED = """
import asyncio
from osgym_infra.links.errors import LoginRefused
from osgym_infra.links.local import LocalLink

async def main():
    transport = LocalLink({"OSGYM_X": "1"})
    try:
        await transport.connect()
    except LoginRefused as error:
        return f"refused: {error}"
    return "root: " + (await transport.run(["sh", "-c", "id -u; echo $OSGYM_X"], timeout_s=20)).output

print(asyncio.run(main()))
"""


@pytest.mark.usefixtures("_possible")
def test_root_for_a_user_whose_sudo_asks(tmp_path: Path) -> None:
    """Refused with the line that would do, `sudo -v` or not; granted once in a terminal it works without one,
    as Pulumi's providers run, until its time is over or it is taken back."""
    with fresh_machine(tmp_path, ROOT, Path(sys.prefix), Path(sys.base_prefix)) as machine:
        become_root(machine)


def become_root(machine: FreshMachine) -> None:
    """All of it in one terminal."""
    osgym, python = (str(Path(sys.executable).with_name(name)) for name in ("osgym", "python"))
    (machine.root / HOME[1:] / "rooted.py").write_text(ROOTED)
    # As the engine starts them: a session of its own, without a terminal.
    rooted = f"setsid --wait {python} ~/rooted.py </dev/null 2>&1 | cat"
    typed = f"""
set -e
echo "@@ plain"; {rooted}
sudo -v
echo "@@ ticket"; {rooted}
{osgym} fleet sudo --hours 0.003
echo "@@ granted"; {rooted}
sudo stat -c '%a %U' /etc/sudoers.d/zz-osgym-fleet-1000
sleep 13
echo "@@ over"; {rooted}
sudo -k
{osgym} fleet sudo
echo "@@ again"; {rooted}
{osgym} fleet sudo --end
echo "@@ ended"; {rooted}
"""
    code, shown = machine.as_user(typed, {r"password for \w+: ": f"{machine.password}\n"}, 120)
    assert code == 0, shown
    parts = dict(re.findall(r"^@@ ([\w-]+)\r?\n(.*?)(?=^@@|\Z)", shown, re.DOTALL | re.MULTILINE))
    for name in ("plain", "ticket", "over", "ended"):
        assert parts[name].startswith("refused: host local: root is needed here"), shown
        assert "Run `osgym fleet sudo`" in parts[name]
        assert "alice ALL=(root) NOPASSWD: ALL" in parts[name]
    for name in ("granted", "again"):
        assert parts[name].startswith("root: 0\r\n1"), shown
    assert "440 root" in parts["granted"]
    assert machine.run("ls /etc/sudoers.d").stdout.split() == ["README"]
