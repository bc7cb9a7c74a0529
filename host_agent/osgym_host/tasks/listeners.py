"""Who listens at a port of the desktop: a program of the golden image, or whoever took its place.

Any process of the desktop's user may listen where a check expects VLC. So the check's program first finds the
listener in ``/proc``, and asks it only if it is the expected one: its file, and all code that it has mapped,
belong to root, as the golden image's do. A process that shows none of this to its own user is not believed.
"""

from __future__ import annotations

FIND_LISTENER = """
import os, sys

def is_roots(path):
    info = os.stat(path)
    return info.st_uid == 0 and not info.st_mode & 0o022

def listening(port):
    found = set()
    for table in ("tcp", "tcp6"):
        with open("/proc/net/" + table) as lines:
            for fields in map(str.split, list(lines)[1:]):
                if fields[3] == "0A" and int(fields[1].rpartition(":")[2], 16) == port:
                    found.add("socket:[" + fields[9] + "]")
    return found

def holders(sockets):
    for pid in filter(str.isdigit, os.listdir("/proc")):
        try:
            for fd in os.listdir("/proc/" + pid + "/fd"):
                if os.readlink("/proc/" + pid + "/fd/" + fd) in sockets:
                    yield pid
                    break
        except OSError:
            continue

def fault(pid, names):
    program = os.readlink("/proc/" + pid + "/exe")
    if os.path.basename(program) not in names or not is_roots("/proc/" + pid + "/exe"):
        return program
    with open("/proc/" + pid + "/maps") as lines:
        for fields in (line.split(None, 5) for line in lines):
            if "x" in fields[1] and fields[4] != "0":
                path = fields[5].rstrip("\\n")
                if not os.path.exists(path) or not is_roots(path):
                    return program + " with " + path
    return ""

def check(port, names):
    sockets = listening(port)
    if not sockets:
        sys.exit("nobody listens at port %d" % port)
    pids = list(holders(sockets))
    if not pids:
        sys.exit("who listens at port %d cannot be seen" % port)
    for pid in pids:
        if bad := fault(pid, names):
            sys.exit("at port %d listens %s, not %s of the image" % (port, bad, " or ".join(sorted(names))))
"""
"""Python for the desktop: ``check(port, names)`` ends it with a reason unless such a program listens."""
