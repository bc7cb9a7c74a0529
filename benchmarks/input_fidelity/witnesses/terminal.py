"""Show a terminal and write down what its programs received: `terminal.py LOG [--mode raw|bash]`.

In the mode raw a program in the terminal writes down each byte that the terminal sent it: Enter is "\\r",
Backspace "\\x7f". In the mode bash the terminal runs a shell without start files in an empty folder, and
the witness writes down the file `out` there each time it changes: what `cat > out` or
`read x; echo "$x" > out` took.
"""

from __future__ import annotations

import argparse
import os
import signal
import subprocess
import sys
import tempfile
import termios
import time
import tty
from pathlib import Path

from recorder import Recorder
from xwindow import WindowFinder

TITLE = "witness-terminal"
POLL_S = 0.03
READS_IN_TERMINAL = "--reads-in-terminal"
TERMINALS = {
    "xterm": ["xterm", "-T", TITLE, "-geometry", "100x30+40+40", "-e"],
    "urxvt": ["urxvt", "-T", TITLE, "-geometry", "100x30+40+40", "-e"],
    "xfce4-terminal": [
        *("xfce4-terminal", "--disable-server", "--title", TITLE, "--dynamic-title-mode", "none"),
        *("--geometry", "100x30+40+40", "-x"),
    ],
}


def read_raw(log: str) -> None:
    """Write down all bytes that the terminal sends to its program, until it closes."""
    recorder = Recorder(log)
    received = b""
    before = termios.tcgetattr(0)
    tty.setraw(0)
    os.write(1, b"raw\r\n")
    try:
        while data := os.read(0, 65536):
            received += data
            recorder.write("text", target="keys", value=received.decode("utf-8", "backslashreplace"))
            os.write(1, data)
    finally:
        termios.tcsetattr(0, termios.TCSANOW, before)


def watch_file(path: Path, recorder: Recorder, process: subprocess.Popen[bytes]) -> None:
    """Write down what a file holds each time it is another, until the terminal ends."""
    last = None
    while process.poll() is None:
        try:
            value = path.read_text("utf-8", "backslashreplace")
        except FileNotFoundError:
            value = None
        if value is not None and value != last:
            last = value
            recorder.write("text", target="keys", value=value)
        time.sleep(POLL_S)


def main() -> None:
    """Show the terminal until its window manager closes it."""
    if sys.argv[1] == READS_IN_TERMINAL:
        read_raw(sys.argv[2])
        return
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("log", help="file that the events are appended to")
    parser.add_argument("--mode", choices=["raw", "bash"], default="raw", help="program in it (raw)")
    parser.add_argument("--terminal", choices=list(TERMINALS), default="xterm", help="which (xterm)")
    given = parser.parse_args()
    recorder = Recorder(given.log)
    with tempfile.TemporaryDirectory(prefix="witness-terminal-") as folder:
        reader = [sys.executable, __file__, READS_IN_TERMINAL, str(Path(given.log).resolve())]
        program = reader if given.mode == "raw" else ["bash", "--norc", "--noprofile"]
        # a prompt of its own: the user's would show the folder's random name
        environment = {**os.environ, "PS1": "$ "}
        process = subprocess.Popen([*TERMINALS[given.terminal], *program], cwd=folder, env=environment)
        signal.signal(signal.SIGTERM, lambda *_: process.terminate())
        recorder.write("ready", targets={"keys": WindowFinder().place(TITLE)})
        watch_file(Path(folder, "out"), recorder, process)
    recorder.write("exit")


if __name__ == "__main__":
    main()
