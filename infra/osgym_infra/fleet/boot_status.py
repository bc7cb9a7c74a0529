"""Boot status of a cloud's host, as `boot.py` writes it on the host. Pure.

The same record is an object of the fleet's bucket (`status/<host>.json`), a line of the host's console, and
/run/osgym-boot.json there.
"""

from __future__ import annotations

import json
import re
from dataclasses import dataclass
from datetime import UTC, datetime
from enum import StrEnum
from typing import Any

from osgym_infra.errors import OsgymInfraError

CONSOLE_PREFIX = "osgym-boot: "
"""What a record's line on the console begins with (`infra/bootstrap/boot.py`)."""
VERSION = 1
MOST_CHARS = 10_000
CONTROL = re.compile(r"[\x00-\x1f\x7f-\x9f]+")


class NoBootStatus(OsgymInfraError):
    """A text is no boot record; the message says why."""


class BootState(StrEnum):
    """State of a host's current boot step."""

    RUNNING = "running"
    """The step is being done."""
    RETRYING = "retrying"
    """It failed, and is tried again soon."""
    FAILED = "failed"
    """It fails for long or cannot mend itself: it is tried again slowly, and somebody should look."""
    SERVING = "serving"
    """All steps are done."""


@dataclass(frozen=True, slots=True)
class BootStatus:
    """Boot record of a host. It is text to be shown, and nothing to act on.

    Attributes:
        host: Name at its provider: the instance's id at AWS, its name at Google Cloud.
        addresses: Addresses, by which it is found in fleet.json.
        step: Step of the bootstrap; `bootstrap` fetches it.
        error: Error of the last attempt; empty while a step runs.
        next_s: Time until the next attempt.
    """

    host: str
    addresses: tuple[str, ...]
    state: BootState
    step: str
    attempt: int
    error: str
    next_s: int | None
    at: datetime

    def line(self) -> str:
        """Return the record in words, for a table."""
        match self.state:
            case BootState.SERVING:
                return "serving"
            case BootState.RUNNING:
                return f"{self.step} (attempt {self.attempt})"
            case BootState.RETRYING | BootState.FAILED:
                again = "" if self.next_s is None else f", again in {self.next_s} s"
                return f"{self.step} {self.state} (attempt {self.attempt}{again}): {self.error}"


def parse(text: str) -> BootStatus:
    """Parse a boot record.

    Raises:
        NoBootStatus: It is not one, or of another version.
    """
    try:
        data = json.loads(text[:MOST_CHARS])
        if data["version"] != VERSION:
            raise NoBootStatus(
                f"a record of version {short(data['version'])}; version {VERSION} is supported"
            )
        next_s = data.get("next_s")
        return BootStatus(
            host=short(data["host"]),
            addresses=tuple(short(address) for address in list(data["addresses"])[:8]),
            state=BootState(data["state"]),
            step=short(data["step"]),
            attempt=int(data["attempt"]),
            error=short(data["error"], 500),
            next_s=None if next_s is None else int(next_s),
            at=datetime.strptime(data["at"], "%Y-%m-%dT%H:%M:%SZ").replace(tzinfo=UTC),
        )
    except (ValueError, TypeError, KeyError, AttributeError, RecursionError, OverflowError) as error:
        raise NoBootStatus(f"not a record of a boot: {type(error).__name__}: {error}") from error


def last_on_console(text: str) -> BootStatus | None:
    """Return the newest record in a console's text; None: there is none."""
    for line in reversed(text.splitlines()):
        _, prefix, record = line.partition(CONSOLE_PREFIX)
        if prefix:
            try:
                return parse(record.strip())
            except NoBootStatus:  # cut off, or another line came in between
                continue
    return None


def short(value: Any, most: int = 100) -> str:
    """Return a host's text as one bounded line without control characters."""
    return CONTROL.sub(" ", str(value))[:most]
