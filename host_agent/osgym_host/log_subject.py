"""Subject of log records, set where work on a replica or episode begins and read when a record is made.

Tasks that are started in between inherit it, and so do threads of `asyncio.to_thread`.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass
from typing import Protocol

FIELDS = ("replica", "generation", "episode", "run", "task")
"""Fields of a subject, in this order. `episode` is also the name of its lease; never its secret."""


class LogSubject(Protocol):
    def log_fields(self) -> Mapping[str, str | int | None]:
        """Return its known values of `FIELDS`; quick, and raises nothing."""


@dataclass(frozen=True, slots=True)
class Named:
    replica: str | None = None
    generation: int | None = None
    episode: str | None = None

    def log_fields(self) -> Mapping[str, str | int | None]:
        return {"replica": self.replica, "generation": self.generation, "episode": self.episode}


_SUBJECT: ContextVar[LogSubject | None] = ContextVar("osgym_log_subject", default=None)


@contextmanager
def about(subject: LogSubject) -> Iterator[None]:
    """Make `subject` the only subject of records inside, and in tasks that begin there."""
    before = _SUBJECT.set(subject)
    try:
        yield
    finally:
        _SUBJECT.reset(before)


def fields() -> dict[str, str | int]:
    subject = _SUBJECT.get()
    if subject is None:
        return {}
    known = subject.log_fields()
    return {name: value for name in FIELDS if (value := known.get(name)) not in (None, "")}
