"""Getting into a host behind ssh, also through another one; host keys are always checked. Blocking."""

from __future__ import annotations

import base64
import threading
from dataclasses import dataclass
from pathlib import Path

import paramiko

from osgym_infra.hosts.errors import FleetHostError, FleetHostUnreachable, HostKeyMismatch, LoginRefused
from osgym_infra.ssh_words import reason, shown_key

CONNECT_S = 20.0
KEEPALIVE_S = 15
"""A connection whose other end is gone without a word is noticed after about this long."""


@dataclass(frozen=True, slots=True)
class SshAddress:
    """How a host is reached.

    Attributes:
        host_key: `ssh-ed25519 AAAA…`; empty: the user's known_hosts must have it.
        key_file: private key; empty: the user's agent and default keys.
        jump: the machine through which it is reached; that one is reached directly.
    """

    address: str
    port: int = 22
    user: str = "root"
    host_key: str = ""
    key_file: str = ""
    jump: SshAddress | None = None

    @property
    def name(self) -> str:
        """As users know it."""
        return f"{self.user}@{self.address}" + ("" if self.port == 22 else f":{self.port}")


def logged_in(
    at: SshAddress, known_hosts: Path, way: paramiko.Channel | None = None, key: str = "osgym:hosts"
) -> paramiko.SSHClient:
    """Return a connection.

    Args:
        way: a channel to the host, where it is not reached directly.
        key: the configuration key that names the host, for messages.

    Raises:
        HostUnreachable: there is no ssh server at that address.
        HostKeyMismatch: the host shows another key than the known one, or none is known.
        LoginRefused: none of our keys is let in.
    """
    client = paramiko.SSHClient()
    _know(client, at, known_hosts)
    try:
        client.connect(
            at.address,
            at.port,
            at.user,
            key_filename=str(Path(at.key_file).expanduser()) if at.key_file else None,
            allow_agent=not at.key_file,
            look_for_keys=not at.key_file,
            timeout=CONNECT_S,
            banner_timeout=CONNECT_S,
            auth_timeout=CONNECT_S,
            channel_timeout=CONNECT_S,
            sock=way,
        )
        transport = client.get_transport()
        assert transport is not None
        transport.set_keepalive(KEEPALIVE_S)
        return client
    except paramiko.BadHostKeyException as error:
        client.close()
        problem = (
            f"it shows the host key {shown_key(error.key)}, but {shown_key(error.expected_key)} is known. "
            "Somebody may be in between, or the machine was installed anew; nothing was sent to it. "
            f"If that is right, {_how_to_know(at, error.key, known_hosts, key)}"
        )
        raise HostKeyMismatch(at.name, problem) from error
    except _UnknownKey as error:
        client.close()
        problem = (
            f"its host key is not known; it shows {shown_key(error.key)}. Nothing was sent to it. "
            f"If that is right, {_how_to_know(at, error.key, known_hosts, key)}"
        )
        raise HostKeyMismatch(at.name, problem) from error
    except (paramiko.AuthenticationException, paramiko.PasswordRequiredException) as error:
        client.close()
        keys = at.key_file or "the ssh agent's and the default keys"
        raise LoginRefused(at.name, f"it does not let us in with {keys}: {error}") from error
    except (OSError, EOFError, paramiko.SSHException) as error:
        client.close()
        raise FleetHostUnreachable(at.name, f"cannot be reached: {reason(error)}") from error


class SharedJump:
    """One connection to a jump host, for all hosts behind it: hundreds of its own a server would refuse
    (sshd: `MaxStartups`)."""

    def __init__(self, at: SshAddress) -> None:
        self._at = at
        self._lock = threading.Lock()
        self._client: paramiko.SSHClient | None = None
        self._users = 0

    def enter(self, known_hosts: Path) -> None:
        """Count one host more; the first one, and the first after it broke, connects."""
        with self._lock:
            transport = self._client.get_transport() if self._client is not None else None
            if transport is None or not transport.is_active():
                self._client = logged_in(self._at, known_hosts, key="osgym:jump")
            self._users += 1

    def to(self, at: SshAddress) -> paramiko.Channel:
        """Return a way to a host behind it.

        Raises:
            HostUnreachable: from there it cannot be reached either, or nobody is let through.
        """
        client = self._client
        transport = client.get_transport() if client is not None else None
        try:
            if transport is None:
                raise EOFError("the connection is closed")
            return transport.open_channel(
                "direct-tcpip", (at.address, at.port), ("127.0.0.1", 0), timeout=CONNECT_S
            )
        except paramiko.ChannelException as error:
            forbids = error.code == 1  # RFC 4254, 5.1: SSH_OPEN_ADMINISTRATIVELY_PROHIBITED
            why = (
                "lets nobody through: its sshd needs AllowTcpForwarding"
                if forbids
                else f"cannot reach it: {error.text}"
            )
            raise FleetHostUnreachable(at.name, f"its jump host {self._at.name} {why}") from error
        except (OSError, EOFError, paramiko.SSHException) as error:
            problem = f"the connection to its jump host {self._at.name} broke: {reason(error)}"
            raise FleetHostUnreachable(at.name, problem) from error

    def leave(self) -> None:
        """One host less; the last one closes it."""
        with self._lock:
            self._users -= 1
            if self._users == 0 and self._client is not None:
                self._client.close()
                self._client = None


class _Jumps:
    """The jump hosts in use, by how they are reached."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._known: dict[SshAddress, SharedJump] = {}

    def through(self, jump: SshAddress, known_hosts: Path, host: str) -> SharedJump:
        """Return the connection to a jump host, entered.

        Raises:
            HostError: it cannot be made; it names the host and the jump host.
        """
        with self._lock:
            found = self._known.setdefault(jump, SharedJump(jump))
        try:
            found.enter(known_hosts)
        except FleetHostError as error:
            raise type(error)(host, f"its jump host {jump.name}: {error.problem}") from error
        return found


jumps = _Jumps()


class _UnknownKey(Exception):
    """No key of that host is known."""

    def __init__(self, key: paramiko.PKey) -> None:
        self.key = key
        super().__init__("unknown host key")


class _Refuse:
    """Never takes a key it does not know, and says which one was shown."""

    def missing_host_key(self, client: paramiko.SSHClient, hostname: str, key: paramiko.PKey) -> None:
        raise _UnknownKey(key)


def _know(client: paramiko.SSHClient, at: SshAddress, known_hosts: Path) -> None:
    """Tell the client which key is right; nothing else is ever accepted."""
    client.set_missing_host_key_policy(_Refuse())
    if at.host_key:
        kind, data = at.host_key.split()[:2]
        name = at.address if at.port == 22 else f"[{at.address}]:{at.port}"
        key = paramiko.PKey.from_type_string(kind, base64.b64decode(data))
        client.get_host_keys().add(name, kind, key)
    elif known_hosts.exists():
        client.load_system_host_keys(str(known_hosts))


def _how_to_know(at: SshAddress, shown: paramiko.PKey, known_hosts: Path, key: str) -> str:
    line = f"{shown.get_name()} {shown.get_base64()}"
    if at.host_key:
        return f"set its host_key in {key} to: {line}"
    return f"set its host_key in {key} to: {line} (or bring {known_hosts} up to date)"
