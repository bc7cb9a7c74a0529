"""A shell on a host in this terminal."""

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

import paramiko

from osgym_infra.links.errors import ConnectionLost

CHUNK = 1 << 15


def shell(client: paramiko.SSHClient, name: str) -> int:
    """Run a shell until its end; return its exit code.

    Raises:
        ConnectionLost: The connection broke.
    """
    source, sink = sys.stdin.fileno(), sys.stdout.fileno()
    try:
        channel = client.get_transport().open_session()
        size = os.get_terminal_size(sink)
        channel.get_pty(os.environ.get("TERM", "vt100"), size.columns, size.lines)
        channel.invoke_shell()
        with _raw(source), _resized(channel, sink):
            _pass_on(channel, source, sink)
        code = int(channel.recv_exit_status())
    except (OSError, EOFError, paramiko.SSHException) as error:
        raise ConnectionLost(name, f"the connection broke: {error}") from error
    if code < 0:
        raise ConnectionLost(name, "the connection broke: the host closed it")
    return code


def _pass_on(channel: paramiko.Channel, source: int, sink: int) -> None:
    """Copy between terminal and host until the shell ends."""
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
    """Switch the terminal to raw mode, so that Ctrl-C reaches the host too."""
    before = termios.tcgetattr(descriptor)
    try:
        tty.setraw(descriptor)
        yield
    finally:
        termios.tcsetattr(descriptor, termios.TCSADRAIN, before)


@contextlib.contextmanager
def _resized(channel: paramiko.Channel, sink: int) -> Iterator[None]:
    """Tell the host when the window's size changes."""

    def resize(number: int, frame: object) -> None:
        size = os.get_terminal_size(sink)
        channel.resize_pty(size.columns, size.lines)

    before = signal.signal(signal.SIGWINCH, resize)
    try:
        yield
    finally:
        signal.signal(signal.SIGWINCH, before)
