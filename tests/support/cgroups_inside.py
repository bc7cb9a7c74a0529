"""Try the control groups of a replica on a kernel with version 2 only, and print what happened as JSON.

Standard library and the modules under test alone: the machine has no packages of ours.
"""

from __future__ import annotations

import json
import subprocess
import sys
import time
from collections.abc import Callable, Sequence

from osgym_host.runtimes.cgroups import open_tree
from osgym_host.runtimes.replica_cgroup import Caps

CAPS = Caps(ram_mib=400, cpus=1.0, pids=60)
HOARD = "held = []\nwhile True: held.append(bytearray(b'x' * (1 << 20)))"
WAIT = "import time; time.sleep(600)"
FORKS = """
import os, time
try:
    while True:
        if os.fork() == 0:
            time.sleep(600)
except OSError:
    time.sleep(600)
"""


def start(files: Sequence[str], code: str) -> subprocess.Popen[bytes]:
    """Start a program in groups."""
    moves = "".join(f"open({file!r}, 'w').write('0')\n" for file in files)
    return subprocess.Popen([sys.executable, "-c", moves + code], stderr=subprocess.DEVNULL)


def until(condition: Callable[[], bool]) -> None:
    """Wait until a condition holds."""
    end_s = time.monotonic() + 60
    while not condition():
        if time.monotonic() >= end_s:
            raise TimeoutError
        time.sleep(0.05)


def main() -> None:
    """Use up memory and processes in the session, then memory in the harness."""
    tree = open_tree("osgym-test")
    group = tree.make("r1", CAPS, CAPS.for_session())
    session = group.session
    assert session is not None
    harness, program = start(group.procs_files, WAIT), start(session.procs_files, WAIT)
    until(lambda: group.pids() == {harness.pid, program.pid})
    seen: dict[str, object] = {"enforces": sorted(tree.enforces)}
    seen["bomb"] = start(session.procs_files, HOARD).wait(120), harness.poll(), program.poll()
    seen["after the bomb"] = group.memory_end().name, session.memory_end().name
    start(session.procs_files, FORKS)
    most = CAPS.for_session().pids or 0
    until(lambda: len(session.pids()) == most)
    seen["harness forks"] = start(group.procs_files, "import os\nif os.fork(): os.wait()").wait(60)
    seen["whole"] = start(group.procs_files, HOARD).wait(120), harness.wait(60), program.wait(60)
    seen["after the end"] = group.memory_end().name
    group.remove()
    again = tree.make("r2", CAPS, CAPS.for_session())
    assert again.session is not None
    left = start(again.session.procs_files, WAIT)
    until(lambda: again.pids() == {left.pid})
    again.kill()
    seen["killed"] = left.wait(60)
    again.remove()
    tree.remove()
    print(json.dumps(seen))


if __name__ == "__main__":
    main()
