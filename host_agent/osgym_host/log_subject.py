"""Whom a record of the log is about, set where work on a replica or episode begins, read when one is logged.

Tasks that are started in between have it too, and threads of `asyncio.to_thread`.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass
from typing import Protocol

FIELDS = ("replica", "generation", "episode", "run", "task")
"""All that is said of a subject, in this order. `episode` is also the name of its lease; never its secret."""


class LogSubject(Protocol):
    """Something that records are about."""

    def log_fields(self) -> Mapping[str, str | int | None]:
        """Return what is known of it now, of `FIELDS`; quick, and raises nothing."""


@dataclass(frozen=True, slots=True)
class Named:
    """A subject of which no more than names are known."""

    replica: str | None = None
    generation: int | None = None
    episode: str | None = None

    def log_fields(self) -> Mapping[str, str | int | None]:
        """Return the names."""
        return {"replica": self.replica, "generation": self.generation, "episode": self.episode}


_SUBJECT: ContextVar[LogSubject | None] = ContextVar("osgym_log_subject", default=None)


@contextmanager
def about(subject: LogSubject) -> Iterator[None]:
    """Make what is logged inside, also by tasks that begin there, be about `subject` and nobody else."""
    before = _SUBJECT.set(subject)
    try:
        yield
    finally:
        _SUBJECT.reset(before)


def fields() -> dict[str, str | int]:
    """Return what is known of that, without what is not."""
    subject = _SUBJECT.get()
    if subject is None:
        return {}
    known = subject.log_fields()
    return {name: value for name in FIELDS if (value := known.get(name)) not in (None, "")}
