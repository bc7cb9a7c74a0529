"""The client of the guest agent: `client` calls, `answers` reads what came, `http` carries both,
`errors` has what a call raises."""

from osgym_host.guest_client.answers import (
    CommandResult,
    GuestRefused,
)
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
