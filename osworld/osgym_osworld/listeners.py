"""A check, run inside the desktop, that a program of the golden image listens at a port.

Any process of the desktop's user may listen where a metric expects VLC. The metric's program therefore finds
the listener in ``/proc`` first. It asks the listener only if that has the expected name and runs no code but
root's, as programs of the golden image do. A process that hides this from its own user is not trusted.
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
        sys.exit("no program listens at port %d" % port)
    pids = list(holders(sockets))
    if not pids:
        sys.exit("the program that listens at port %d cannot be determined" % port)
    for pid in pids:
        if bad := fault(pid, names):
            sys.exit("port %d belongs to %s, not %s of the image" % (port, bad, " or ".join(sorted(names))))
"""
"""Python source for the desktop: ``check(port, names)`` exits with a reason unless a program of the golden
image with one of the names listens at the port."""
