"""A shell on a host in this terminal, over a connection of Fabric's.

Not `Connection.shell`: that keeps all that is printed in memory, and in the tests' terminal its reader of
stdin ended at once and it waited for ever (Fabric 3.2.3, invoke 2.2.1).
"""

from __future__ import annotations

import contextlib
import os
import select
import signal
import sys
import termios
import tty
from collections.abc import Iterator
from typing import Any

import fabric
import paramiko

from osgym_infra.cli.fleet_ops.link import LinkFailed

CHUNK = 1 << 15


def shell(connection: fabric.Connection) -> int:
    """Run one until its end; return its exit code.

    Raises:
        LinkFailed: the connection broke.
    """
    source, sink = sys.stdin.fileno(), sys.stdout.fileno()
    try:
        channel = connection.create_session()
        size = os.get_terminal_size(sink)
        channel.get_pty(os.environ.get("TERM", "vt100"), size.columns, size.lines)
        channel.invoke_shell()
        with _raw(source), _resized(channel, sink):
            _pass_on(channel, source, sink)
        code = int(channel.recv_exit_status())
    except (OSError, EOFError, paramiko.SSHException) as error:
        raise LinkFailed("shell", f"the connection broke: {error}") from error
    if code < 0:
        raise LinkFailed("shell", "the connection broke: the host closed it")
    return code


def _pass_on(channel: paramiko.Channel, source: int, sink: int) -> None:
    """What is typed there, what is printed here, until the shell ends."""
    watched: list[Any] = [channel, source]
    while True:
        ready = select.select(watched, [], [])[0]
        if channel in ready:
            data = channel.recv(CHUNK)
            if not data:
                return
            view = memoryview(data)
            while view:
                view = view[os.write(sink, view) :]
        if source in ready:
            typed = os.read(source, CHUNK)
            if typed:
                channel.sendall(typed)
            else:
                channel.shutdown_write()
                watched.remove(source)


@contextlib.contextmanager
def _raw(descriptor: int) -> Iterator[None]:
    """The terminal passes every key on, also Ctrl-C."""
    before = termios.tcgetattr(descriptor)
    try:
        tty.setraw(descriptor)
        yield
    finally:
        termios.tcsetattr(descriptor, termios.TCSADRAIN, before)


@contextlib.contextmanager
def _resized(channel: paramiko.Channel, sink: int) -> Iterator[None]:
    """The host learns of a window's new size."""

    def resize(number: int, frame: object) -> None:
        size = os.get_terminal_size(sink)
        channel.resize_pty(size.columns, size.lines)

    before = signal.signal(signal.SIGWINCH, resize)
    try:
        yield
    finally:
        signal.signal(signal.SIGWINCH, before)
