"""The client of the guest agent.

`client` makes calls, `answers` parses answers, `http` transports both, `errors` defines the exceptions.
"""

from osgym_host.guest_client.answers import CommandResult, GuestRefused
from osgym_host.guest_client.client import GuestClient
from osgym_host.guest_client.errors import (
    GuestAnswerTooLarge,
    GuestError,
    GuestProtocolError,
    GuestTimeout,
    GuestUnreachable,
    HostSocketError,
)

__all__ = [
    "CommandResult",
    "GuestAnswerTooLarge",
    "GuestClient",
    "GuestError",
    "GuestProtocolError",
    "GuestRefused",
    "GuestTimeout",
    "GuestUnreachable",
    "HostSocketError",
]
