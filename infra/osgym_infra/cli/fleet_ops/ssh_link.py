"""A host behind ssh: a connection of Fabric's, whose host key is always checked."""

from __future__ import annotations

import base64
import logging
import shlex
import threading
from pathlib import Path

import fabric
import paramiko

from osgym_infra.cli.fleet_ops.link import POLL_S, Budget, LinkFailed, Output, RemoteJob
from osgym_infra.cli.fleet_ops.text import escaped
from osgym_infra.fleet.fleet_file import SshAccess
from osgym_infra.ssh_words import reason, shown_key

KEEPALIVE_S = 15
KNOWN_HOSTS = Path("~/.ssh/known_hosts")
CHUNK = 1 << 15

# paramiko writes tracebacks of its threads; what they say reaches us as exceptions too.
logging.getLogger("paramiko").setLevel(logging.CRITICAL)


class Jumps:
    """Connections to the machines in between, one for all hosts behind each: a server refuses hundreds that
    log in at once (sshd_config(5), MaxStartups). Used by many threads."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._locks: dict[SshAccess, threading.Lock] = {}
        self._open: dict[SshAccess, fabric.Connection] = {}

    def through(self, jump: SshAccess, to: SshAccess, timeout_s: float) -> paramiko.Channel:
        """A way to a host behind it.

        Raises:
            LinkFailed: the machine in between cannot be entered, or does not get there.
        """
        with self._lock:
            lock = self._locks.setdefault(jump, threading.Lock())
        with lock:
            connection = self._open.get(jump)
            if connection is None or not connection.is_connected:
                self._open[jump] = connection = make_connection(jump, timeout_s)
                _connect(connection, jump, "jump ")
                connection.transport.set_keepalive(KEEPALIVE_S)
        try:
            return connection.transport.open_channel(
                "direct-tcpip", (to.address, to.port), ("", 0), timeout=timeout_s
            )
        except (OSError, EOFError, paramiko.SSHException) as error:
            problem = f"{to.name} cannot be reached from {jump.name}: {escaped(reason(error))}"
            raise LinkFailed("connect", problem, "is it on, and may the jump host forward there?") from error

    def close(self) -> None:
        """Close them all; idempotent."""
        with self._lock:
            connections = list(self._open.values())
            self._open.clear()
        for connection in connections:
            connection.close()


class SshLink:
    """One connection, made when it is needed."""

    def __init__(self, access: SshAccess, jumps: Jumps) -> None:
        self._access, self._jumps = access, jumps
        self._connection: fabric.Connection | None = None

    def execute(self, job: RemoteJob, budget: Budget, output: Output) -> int:
        """See `HostLink.execute`."""
        connection = self.open(budget)
        budget.check("connect")
        try:
            channel = connection.create_session()
        except (OSError, EOFError, paramiko.SSHException) as error:
            raise _broken(error) from error
        try:
            channel.set_combine_stderr(True)
            channel.exec_command(shlex.join(job.guarded(sudo=self._access.user != "root")))
            return _receive(channel, budget, output)
        except (OSError, EOFError, paramiko.SSHException) as error:
            raise _broken(error) from error
        finally:
            output.end()
            channel.close()  # the guard on the host sees it, and stops what still runs

    def open(self, budget: Budget) -> fabric.Connection:
        """Make the connection, through the machine in between if there is one.

        Raises:
            LinkFailed: with the step that failed.
        """
        timeout_s = budget.connect_s()
        sock = None
        if self._access.jump is not None:
            sock = self._jumps.through(self._access.jump, self._access, timeout_s)
        self._connection = connection = make_connection(self._access, budget.connect_s(), sock)
        _connect(connection, self._access, "")
        connection.transport.set_keepalive(KEEPALIVE_S)
        return connection

    def close(self) -> None:
        """See `HostLink.close`."""
        connection, self._connection = self._connection, None
        if connection is not None:
            connection.close()


def make_connection(
    access: SshAccess, timeout_s: float, sock: paramiko.Channel | None = None
) -> fabric.Connection:
    """A connection that is not open yet, over `sock` if given. Fabric's own, and ssh's, configuration files
    are not read: what fleet.json says holds on every machine."""
    empty = paramiko.SSHConfig()
    config = fabric.Config(lazy=True, ssh_config=empty)
    key = str(Path(access.key_file).expanduser()) if access.key_file else None
    connection = fabric.Connection(
        access.address,
        user=access.user,
        port=access.port,
        config=config,
        gateway=False,
        forward_agent=False,
        connect_timeout=max(1, round(timeout_s)),
        connect_kwargs={
            "key_filename": key,
            "allow_agent": not key,
            "look_for_keys": not key,
            "banner_timeout": timeout_s,
            "auth_timeout": timeout_s,
            "channel_timeout": timeout_s,
            "sock": sock,
        },
    )
    _know(connection.client, access)
    return connection


class UnknownHostKey(Exception):
    """No key of that host is known."""

    def __init__(self, key: paramiko.PKey) -> None:
        self.key = key
        super().__init__("unknown host key")


class RefuseUnknown(paramiko.MissingHostKeyPolicy):  # type: ignore[misc]  # paramiko has no types
    """Never takes a key that it does not know. Fabric's own choice, AutoAddPolicy, takes any."""

    def missing_host_key(self, client: paramiko.SSHClient, hostname: str, key: paramiko.PKey) -> None:
        """Refuse it."""
        raise UnknownHostKey(key)


def _know(client: paramiko.SSHClient, access: SshAccess) -> None:
    client.set_missing_host_key_policy(RefuseUnknown())
    if access.host_key:
        try:
            kind, data = access.host_key.split()[:2]
            key = paramiko.PKey.from_type_string(kind, base64.b64decode(data, validate=True))
        except (ValueError, paramiko.SSHException) as error:
            raise LinkFailed("host key", f"the host_key of {access.name} in fleet.json is no key: {error}",
                             "a line like ssh-ed25519 AAAA…") from error  # fmt: skip
        name = access.address if access.port == 22 else f"[{access.address}]:{access.port}"
        client.get_host_keys().add(name, kind, key)
        return
    known = KNOWN_HOSTS.expanduser()
    if known.exists():
        client.load_system_host_keys(str(known))


def _connect(connection: fabric.Connection, access: SshAccess, which: str) -> None:
    """Open one connection. Raises: LinkFailed: nothing is left open then."""
    try:
        _open(connection, access, which)
    except LinkFailed:
        connection.client.close()  # Fabric's own `close` leaves one open that was refused half-way
        raise


def _open(connection: fabric.Connection, access: SshAccess, which: str) -> None:
    try:
        connection.open()
    except paramiko.BadHostKeyException as error:
        problem = (
            f"{access.name} shows the host key {shown_key(error.key)}, but "
            f"{shown_key(error.expected_key)} is known; nothing was sent to it"
        )
        remedy = (
            "somebody may be in between, or the machine was installed anew; if that is right, change its "
            "host_key and run `osgym fleet export` again"
        )
        raise LinkFailed(f"{which}host key", problem, remedy) from error
    except UnknownHostKey as error:
        problem = (
            f"no host key of {access.name} is known; it shows {shown_key(error.key)}, nothing was sent to it"
        )
        remedy = f"if that is right, add it to {KNOWN_HOSTS}, or set host_key in osgym:hosts and export again"
        raise LinkFailed(f"{which}host key", problem, remedy) from error
    except (paramiko.AuthenticationException, paramiko.PasswordRequiredException) as error:
        keys = access.key_file or "the ssh agent's and the default keys"
        problem = f"{access.name} does not let us in with {keys}: {escaped(str(error))}"
        raise LinkFailed(f"{which}login", problem, "--ssh-user and --ssh-key take others") from error
    except (OSError, EOFError, paramiko.SSHException) as error:
        problem = f"{access.name} cannot be reached: {escaped(reason(error))}"
        raise LinkFailed(f"{which}connect", problem, "is it on, and sshd listening on that port?") from error


def _receive(channel: paramiko.Channel, budget: Budget, output: Output) -> int:
    channel.settimeout(POLL_S)
    while True:
        budget.check("run")
        try:
            data = channel.recv(CHUNK)
        except TimeoutError:
            continue
        if not data:
            break
        output.feed(data)
    while not channel.exit_status_ready() and channel.transport.is_active():
        budget.check("run")
        channel.status_event.wait(POLL_S)
    code = int(channel.exit_status)
    if code < 0:  # none was sent: the host, or its sshd, ended first
        raise _broken(EOFError("the host closed it"))
    return code


def _broken(error: Exception) -> LinkFailed:
    problem = f"the connection broke: {escaped(reason(error))}"
    return LinkFailed("run", problem, "nobody knows how far the command came; look before it is run again")
