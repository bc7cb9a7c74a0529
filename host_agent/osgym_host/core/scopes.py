"""What a token may do: look, run desktops, or operate the host. Pure.

Each scope has those before it. Which one a call needs is said by its method and path, in one table; what is
not in it needs the last.
"""

from __future__ import annotations

import re
from enum import IntEnum


class AccessScope(IntEnum):
    """How far a token reaches, in order."""

    OBSERVE = 1
    """To look: desktops, episodes, events, figures, recorded frames. It changes nothing."""
    RUN = 2
    """What a training script needs: lease, step, evaluate, branch, reach into its own desktops."""
    ADMIN = 3
    """What an operator does: act on desktops that others lease, empty the host."""

    @property
    def word(self) -> str:
        """As it is written in files and messages."""
        return self.name.lower()

    @classmethod
    def of(cls, word: str) -> AccessScope:
        """Return the scope of a word.

        Raises:
            ValueError: There is none of that name.
        """
        try:
            return cls[word.upper()]
        except KeyError:
            raise ValueError(f"scope {word!r}: it is one of {', '.join(s.word for s in cls)}") from None


_ID = "[^/]+"
_TABLE: tuple[tuple[str, str, AccessScope], ...] = (
    (
        "GET",
        rf"/v1/(access|host|pool|replicas|events|history|runs|runs/episodes|episodes|checkpoints)|/metrics"
        rf"|/v1/replicas/{_ID}/screenshot|/v1/episodes/{_ID}(/trajectory|/lines|/frames/{_ID})?|/openapi\.json",
        AccessScope.OBSERVE,
    ),
    ("GET", rf"/v1/checkpoints/{_ID}/export|/screenshot", AccessScope.RUN),
    (
        "POST",
        rf"/v1/(steps|episodes|leases/renew|checkpoints/import)|/reset|/step|/shutdown"
        rf"|/v1/episodes/{_ID}/(step|observe|final|evaluate|fork|checkpoint|execute|file|a11y|windows|tunnel"
        r"|record/start|record/end)",
        AccessScope.RUN,
    ),
    ("PUT", rf"/v1/episodes/{_ID}/file", AccessScope.RUN),
    ("DELETE", rf"/v1/(episodes|requests|checkpoints)/{_ID}", AccessScope.RUN),
    ("POST", rf"/v1/drain|/v1/replicas/{_ID}/(intervene|fork|checkpoint)", AccessScope.ADMIN),
    ("DELETE", r"/v1/drain", AccessScope.ADMIN),
)
_RULES = tuple((method, re.compile(path), scope) for method, path, scope in _TABLE)


def rule_for(method: str, path: str) -> AccessScope | None:
    """Return the scope that the table says for a call; None: it says nothing.

    >>> rule_for("GET", "/v1/replicas/r1/screenshot")
    <AccessScope.OBSERVE: 1>
    """
    asked = "GET" if method == "HEAD" else method
    for of, pattern, scope in _RULES:
        if of == asked and pattern.fullmatch(path):
            return scope
    return None


def scope_for(method: str, path: str) -> AccessScope:
    """Return the scope that a call needs.

    >>> scope_for("POST", "/v1/something-new")
    <AccessScope.ADMIN: 3>
    """
    return rule_for(method, path) or AccessScope.ADMIN
