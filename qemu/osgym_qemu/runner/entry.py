"""First process of a runner container: receives descriptors and arguments, becomes QEMU.

Runs on Debian's python3-minimal with nothing but its standard modules (no json), on none of ours: this
file is copied into the runner image. It connects to `launch.sock` in its working directory, the
machine's own folder, reads one message (see `handover.py`) with descriptors beside it, puts them at
the numbers the message names and executes QEMU, so that QEMU is process 1 of the container and its end
is the container's end.

The container has no network. Where the message names a port, a child stays behind that accepts
connections on a listening unix socket of the host, which it was given, and passes their bytes on to
that port here: the guest is reached without a network between container and host, and a QEMU that
was taken over can only answer whom the host connects, never call anybody.
"""

import array
import contextlib
import os
import select
import socket
import struct

SOCKET_NAME = "launch.sock"
HEADER = struct.Struct("!IIi")  # bytes of the text, number of descriptors, port to pass on to or -1
MAX_TEXT = 1 << 20
MAX_FDS = 32
TIMEOUT_S = 60.0
CONNECT_TIMEOUT_S = 5.0
MAX_CONNECTIONS = 64
BUFFER = 256 * 1024


def receive(channel: socket.socket) -> "tuple[list[str], dict[str, str], list[int], list[int], int]":
    """Read the message: argument vector, environment, descriptor numbers, descriptors, port."""
    space = socket.CMSG_SPACE(MAX_FDS * array.array("i").itemsize)
    head, ancillary, flags, _ = channel.recvmsg(HEADER.size, space)
    fds = array.array("i")
    for level, kind, data in ancillary:
        if level == socket.SOL_SOCKET and kind == socket.SCM_RIGHTS:
            fds.frombytes(data[: len(data) - len(data) % fds.itemsize])
    if len(head) != HEADER.size or flags & socket.MSG_CTRUNC:
        raise ValueError("the hand-over was cut")
    size, count, port = HEADER.unpack(head)
    if size > MAX_TEXT or count != len(fds):
        raise ValueError("a malformed hand-over")
    text = b""
    while len(text) < size:
        more = channel.recv(size - len(text))
        if not more:
            raise ValueError("the hand-over was cut")
        text += more
    numbers, variables, argv = (part.split(b"\0") if part else [] for part in text.split(b"\0\0", 2))
    env = dict(os.fsdecode(entry).split("=", 1) for entry in variables)
    return [os.fsdecode(word) for word in argv], env, [int(number) for number in numbers], list(fds), port


def place(numbers: "list[int]", fds: "list[int]", channel: int) -> int:
    """Move descriptors to their numbers, inheritable; close all others above 2 but the channel.

    Returns:
        New number of the channel, which is closed when QEMU is executed.
    """
    floor = max([2, channel, *numbers, *fds]) + 1
    os.dup2(channel, floor, inheritable=False)
    for step, fd in enumerate(fds, start=1):
        os.dup2(fd, floor + step, inheritable=False)
    for step, number in enumerate(numbers, start=1):
        os.dup2(floor + step, number, inheritable=True)
    kept = {floor, *numbers}
    for name in os.listdir("/proc/self/fd"):  # noqa: PTH208  # pathlib costs memory
        if int(name) > 2 and int(name) not in kept:
            with contextlib.suppress(OSError):  # the descriptor of the listing itself
                os.close(int(name))
    return floor


class Direction:
    """Buffered bytes from one socket to the other."""

    def __init__(self, source: socket.socket, target: socket.socket) -> None:
        self.source = source
        self.target = target
        self.waiting = b""
        self.ended = False
        self.closed = False

    def pump(self) -> bool:
        """Move bytes without waiting; False when the connection is broken."""
        try:
            if not self.waiting and not self.ended:
                self.waiting = self.source.recv(BUFFER)
                self.ended = not self.waiting
            if self.waiting:
                self.waiting = self.waiting[self.target.send(self.waiting) :]
            if self.ended and not self.waiting and not self.closed:
                self.target.shutdown(socket.SHUT_WR)
                self.closed = True
        except BlockingIOError:
            return True
        except OSError:
            return False
        return True


class Forwarder:
    """Forwarder of connections, until it is killed with the container."""

    def __init__(self, listener: socket.socket, port: int) -> None:
        self.listener = listener
        self.port = port
        self.poll = select.epoll()
        self.watched: dict[int, int] = {}
        self.by_fd: dict[int, tuple[Direction, Direction]] = {}
        listener.setblocking(False)

    def watch(self, fd: int, wanted: int) -> None:
        """Wait for `wanted` from now on; for 0 not even for errors, which would come without end."""
        if wanted and fd not in self.watched:
            self.poll.register(fd, wanted)
        elif wanted and self.watched[fd] != wanted:
            self.poll.modify(fd, wanted)
        elif not wanted and fd in self.watched:
            self.poll.unregister(fd)
        if wanted:
            self.watched[fd] = wanted
        else:
            self.watched.pop(fd, None)

    def run(self) -> None:
        while True:
            full = len(self.by_fd) >= 2 * MAX_CONNECTIONS
            self.watch(self.listener.fileno(), 0 if full else select.EPOLLIN)
            for fd, _ in self.poll.poll():
                if fd == self.listener.fileno():
                    self.accept()
                elif fd in self.by_fd:
                    self.move(self.by_fd[fd])

    def accept(self) -> None:
        """Accept a connection of the host and connect its other half to QEMU."""
        try:
            outer, _ = self.listener.accept()
        except OSError:
            return
        try:
            inner = socket.create_connection(("127.0.0.1", self.port), timeout=CONNECT_TIMEOUT_S)
        except OSError:
            outer.close()
            return
        inner.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        for end in (outer, inner):
            end.setblocking(False)
        pair = (Direction(outer, inner), Direction(inner, outer))
        for end in (outer, inner):
            self.by_fd[end.fileno()] = pair
        self.move(pair)

    def move(self, pair: "tuple[Direction, Direction]") -> None:
        """Move bytes both ways, then wait for the next event of each way."""
        good = pair[0].pump() and pair[1].pump()
        if not good or (pair[0].closed and pair[1].closed):
            for end in (pair[0].source, pair[1].source):
                self.watch(end.fileno(), 0)
                del self.by_fd[end.fileno()]
                end.close()
            return
        for there, back in (pair, pair[::-1]):
            wanted = select.EPOLLOUT if back.waiting else 0
            if not there.waiting and not there.ended:
                wanted |= select.EPOLLIN
            self.watch(there.source.fileno(), wanted)


def serve(channel: socket.socket, fds: "list[int]", port: int) -> None:
    """Fork a child that forwards connections of the listening socket, which is the last descriptor."""
    if os.fork() != 0:
        return
    try:
        os.setsid()
        channel.close()
        for fd in fds[:-1]:
            os.close(fd)
        Forwarder(socket.socket(fileno=fds[-1]), port).run()
    finally:
        os._exit(1)


def main() -> None:
    """Receive the message and become QEMU. The channel ends when QEMU runs, or with an error."""
    channel = socket.socket(socket.AF_UNIX)
    channel.settimeout(TIMEOUT_S)
    channel.connect(SOCKET_NAME)
    answer = channel.fileno()
    try:
        argv, env, numbers, fds, port = receive(channel)
        if port >= 0:
            serve(channel, fds, port)
            os.close(fds.pop())
        answer = place(numbers, fds, answer)
        os.execvpe(argv[0], argv, env)  # noqa: S606  # that is its purpose
    except (OSError, ValueError) as exc:
        os.write(answer, str(exc).encode())
        os._exit(1)


if __name__ == "__main__":
    main()
