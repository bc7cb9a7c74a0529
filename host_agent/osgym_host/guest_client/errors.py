"""Exceptions of calls to a guest."""

from __future__ import annotations

import errno

from osgym_host.errors import OsgymHostError


class GuestError(OsgymHostError):
    """Base class of the exceptions of calls to a guest."""


class GuestUnreachable(GuestError):
    """No connection, or it broke before the whole answer had come.

    Attributes:
        delivered: False when the request provably did not reach the guest as a whole, so that it
            may be sent again; True when the guest may have acted on it.
    """

    def __init__(self, message: str, *, delivered: bool) -> None:
        super().__init__(message)
        self.delivered = delivered


class HostSocketError(GuestUnreachable):
    """This host lacks a descriptor, memory, an address or the socket's path for the connection.

    A guest cannot cause that: it can only refuse, end or reset a connection.
    """


_ERRORS_OF_THIS_HOST = frozenset(
    {
        errno.EMFILE,
        errno.ENFILE,
        errno.ENOMEM,
        errno.ENOBUFS,
        errno.EADDRNOTAVAIL,
        errno.ENOENT,
        errno.EACCES,
        errno.EPERM,
    }
)


def unreachable(what: str, error: OSError, *, delivered: bool) -> GuestUnreachable:
    """Return `HostSocketError` if this host caused the error of a connection, else `GuestUnreachable`."""
    kind = HostSocketError if error.errno in _ERRORS_OF_THIS_HOST else GuestUnreachable
    return kind(f"{what}: {error}", delivered=delivered)


class GuestTimeout(GuestError):
    """The deadline of the call passed. `delivered` as in `GuestUnreachable`."""

    def __init__(self, message: str, *, delivered: bool, timeout_s: float) -> None:
        super().__init__(message)
        self.delivered = delivered
        self.timeout_s = timeout_s


class GuestProtocolError(GuestError):
    """The guest's answer is malformed or larger than allowed; the connection was closed."""


class GuestAnswerTooLarge(GuestProtocolError):
    """The guest's answer is larger than the caller takes; the connection was closed."""
