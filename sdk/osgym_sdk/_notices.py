"""Host API v1: the word that a host will be taken away. Standard library only."""

from __future__ import annotations

from dataclasses import dataclass

from osgym_sdk._codec import Message


@dataclass(frozen=True, slots=True)
class Notice(Message):
    """A host will be taken away: it gives out no replicas, and running episodes should come to their end.

    Some seconds before ``deadline`` (the host's ``drain_margin_s``) episodes that are still open end as
    lost, with the cause ``host_going``.
    """

    kind: str
    """``terminate``, ``stop``, ``hibernate`` (AWS), ``preempted``, ``maintenance`` (Google Cloud), or
    ``operator``. Open: a client must accept others."""
    deadline: float | None = None
    """When the host goes, in Unix time (s); None: when no episode is open any more."""
