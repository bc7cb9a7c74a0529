"""Login to hosts behind ssh, also through a jump host; host keys are always checked. Blocking."""

from __future__ import annotations

import base64
import hashlib
import threading
from pathlib import Path

import paramiko

from osgym_infra.links.access import SshAccess
from osgym_infra.links.errors import FleetHostError, FleetHostUnreachable, HostKeyMismatch, LoginRefused

CONNECT_S = 20.0
_SILENT = ("No existing session", "Error reading SSH protocol banner")
"""What paramiko 5.1 says where no banner of an ssh server came in time."""
KEEPALIVE_S = 15
"""A connection whose other end is gone without a word is noticed after about this long."""


def logged_in(
    at: SshAccess,
    known_hosts: Path,
    way: paramiko.Channel | None = None,
    key: str = "osgym:hosts",
    connect_s: float = CONNECT_S,
) -> paramiko.SSHClient:
    """Connect and log in.

    Args:
        way: A channel to the host, where it is not reached directly.
        key: Configuration key that names the host, for messages.
        connect_s: Deadline of each part of the login.

    Raises:
        HostUnreachable: There is no ssh server at that address.
        HostKeyMismatch: The host shows another key than the known one, or none is known.
        LoginRefused: None of our keys is let in.
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
            timeout=connect_s,
            banner_timeout=connect_s,
            auth_timeout=connect_s,
            channel_timeout=connect_s,
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
            "The connection may be intercepted, or the machine was reinstalled; nothing was sent to it"
        )
        remedy = f"If that is right, {_how_to_know(at, error.key, known_hosts, key)}"
        raise HostKeyMismatch(at.name, problem, remedy=remedy) from error
    except _UnknownKey as error:
        client.close()
        problem = f"its host key is not known; it shows {shown_key(error.key)}. Nothing was sent to it"
        remedy = f"If that is right, {_how_to_know(at, error.key, known_hosts, key)}"
        raise HostKeyMismatch(at.name, problem, remedy=remedy) from error
    except (paramiko.AuthenticationException, paramiko.PasswordRequiredException) as error:
        client.close()
        keys = at.key_file or "the ssh agent's and the default keys"
        raise LoginRefused(at.name, f"it refuses the login with {keys}: {error}") from error
    except (OSError, EOFError, paramiko.SSHException) as error:
        client.close()
        raise FleetHostUnreachable(at.name, f"cannot be reached: {reason(error)}") from error


class SharedJump:
    """One connection to a jump host, for all hosts behind it: hundreds of its own a server would refuse
    (sshd: `MaxStartups`)."""

    def __init__(self, at: SshAccess) -> None:
        self._at = at
        self._lock = threading.Lock()
        self._client: paramiko.SSHClient | None = None
        self._users = 0

    def enter(self, known_hosts: Path, connect_s: float = CONNECT_S) -> None:
        """Add a user; connect for the first one, and for the first after the connection broke."""
        with self._lock:
            transport = self._client.get_transport() if self._client is not None else None
            if transport is None or not transport.is_active():
                self._client = logged_in(self._at, known_hosts, key="osgym:jump", connect_s=connect_s)
            self._users += 1

    def to(self, at: SshAccess, connect_s: float = CONNECT_S) -> paramiko.Channel:
        """Open a channel to a host behind the jump host.

        Raises:
            HostUnreachable: From there it cannot be reached either, or nobody is let through.
        """
        client = self._client
        transport = client.get_transport() if client is not None else None
        try:
            if transport is None:
                raise EOFError("the connection is closed")
            return transport.open_channel(
                "direct-tcpip", (at.address, at.port), ("127.0.0.1", 0), timeout=connect_s
            )
        except paramiko.ChannelException as error:
            forbids = error.code == 1  # RFC 4254, 5.1: SSH_OPEN_ADMINISTRATIVELY_PROHIBITED
            why = (
                "does not forward connections: set AllowTcpForwarding in its sshd"
                if forbids
                else f"cannot reach it: {error.text}"
            )
            raise FleetHostUnreachable(at.name, f"its jump host {self._at.name} {why}") from error
        except (OSError, EOFError, paramiko.SSHException) as error:
            problem = f"the connection to its jump host {self._at.name} broke: {reason(error)}"
            raise FleetHostUnreachable(at.name, problem) from error

    def leave(self) -> None:
        """Remove a user; the last one closes the connection."""
        with self._lock:
            self._users -= 1
            if self._users == 0 and self._client is not None:
                self._client.close()
                self._client = None


class _Jumps:
    """Shared connections to jump hosts, by their access."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._known: dict[SshAccess, SharedJump] = {}

    def through(
        self, jump: SshAccess, known_hosts: Path, host: str, connect_s: float = CONNECT_S
    ) -> SharedJump:
        """Return the shared connection to a jump host, with one more user.

        Raises:
            HostError: It cannot be made; it names the host and the jump host.
        """
        with self._lock:
            found = self._known.setdefault(jump, SharedJump(jump))
        try:
            found.enter(known_hosts, connect_s)
        except FleetHostError as error:
            problem = f"its jump host {jump.name}: {error.problem}"
            raised = type(error)(host, problem, remedy=error.remedy)
            raised.at_jump = True
            raise raised from error
        return found


jumps = _Jumps()


class _UnknownKey(Exception):
    """The host shows a key, and none of it is known."""

    def __init__(self, key: paramiko.PKey) -> None:
        self.key = key
        super().__init__("unknown host key")


class _Refuse:
    """Policy that never accepts an unknown key."""

    def missing_host_key(self, client: paramiko.SSHClient, hostname: str, key: paramiko.PKey) -> None:
        raise _UnknownKey(key)


def _know(client: paramiko.SSHClient, at: SshAccess, known_hosts: Path) -> None:
    """Tell the client the only acceptable key."""
    client.set_missing_host_key_policy(_Refuse())
    if at.host_key:
        name = at.address if at.port == 22 else f"[{at.address}]:{at.port}"
        try:
            kind, data = at.host_key.split()[:2]
            key = paramiko.PKey.from_type_string(kind, base64.b64decode(data, validate=True))
        except (ValueError, paramiko.SSHException) as error:
            problem = f"its configured host key is malformed: {error}"
            raise HostKeyMismatch(at.name, problem, remedy="Set a line like ssh-ed25519 AAAA…") from error
        client.get_host_keys().add(name, kind, key)
    elif known_hosts.exists():
        client.load_system_host_keys(str(known_hosts))


def _how_to_know(at: SshAccess, shown: paramiko.PKey, known_hosts: Path, key: str) -> str:
    line = f"{shown.get_name()} {shown.get_base64()}"
    if at.host_key:
        return f"set its host_key in {key} to: {line}"
    return f"set its host_key in {key} to: {line} (or bring {known_hosts} up to date)"


def shown_key(key: paramiko.PKey) -> str:
    """Return a host key as `ssh-keygen -l` shows it."""
    digest = base64.b64encode(hashlib.sha256(key.asbytes()).digest()).decode().rstrip("=")
    return f"{key.get_name()} SHA256:{digest}"


def reason(error: Exception) -> str:
    """Return the cause of a failed connection in a few words, some of which may come from the other side."""
    if isinstance(error, TimeoutError) or any(words in str(error) for words in _SILENT):
        return "no answer in time"
    if isinstance(error, paramiko.ssh_exception.NoValidConnectionsError):
        return "; ".join(sorted({str(one.strerror or one) for one in error.errors.values()}))
    return str(error) or type(error).__name__
