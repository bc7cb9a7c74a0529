"""All targets, and what they need of the machine."""

from __future__ import annotations

from tests.fuzz.connections import CONNECTIONS
from tests.fuzz.engine import Target
from tests.fuzz.files import FILES
from tests.fuzz.guests import GUESTS
from tests.fuzz.parsers import PARSERS
from tests.support import guest_kits

TARGETS = [*PARSERS, *FILES, *CONNECTIONS, *GUESTS]


def missing(target: Target) -> str:
    """What this machine lacks for a target; empty when nothing."""
    return guest_kits.missing(target.name.removesuffix("_protocol")) if target in GUESTS else ""
