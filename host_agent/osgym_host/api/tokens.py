"""Tokens with a scope, in a file that has no token in it: one line each, `scope name sha256 [rate=N]`.

The file is read anew when it changes, so that a token can be given and taken back while the host agent runs.
"""

from __future__ import annotations

import hashlib
import logging
import os
import re
import secrets
import stat
import time
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from osgym_host.core.scopes import AccessScope
from osgym_host.errors import OsgymHostError

log = logging.getLogger(__name__)

LOOK_S = 1.0
"""Between two looks at the file."""
BURST_S = 5.0
"""For so long a token may call as fast as it likes, then at its rate."""
OBSERVE_RATE = 100.0
"""Calls per second of a new token that may look only: several open dashboards."""
PREFIX = "osgym_"
"""Of each new token: scanners for secrets find it."""
_NAME = re.compile(r"[A-Za-z0-9._@-]{1,64}", re.ASCII)
_DIGEST = re.compile(r"[0-9a-f]{64}", re.ASCII)
_WRITABLE_BY_OTHERS = stat.S_IWGRP | stat.S_IWOTH


class TokenFileError(OsgymHostError):
    """The file cannot be used; the message says why and what helps."""


@dataclass(frozen=True, slots=True)
class TokenLine:
    """One token.

    Attributes:
        rate: Calls per second in the long run; 0: any number.
    """

    scope: AccessScope
    name: str
    digest: str
    rate: float = 0.0

    def text(self) -> str:
        """Return it as it is written."""
        return f"{self.scope.word} {self.name} {self.digest}" + (f" rate={self.rate:g}" if self.rate else "")


@dataclass(slots=True)
class Grant:
    """A token in use: its line, and how often it may call at once (`left`, full again with time)."""

    line: TokenLine
    left: float = 0.0
    at: float = field(default_factory=time.monotonic)

    def __post_init__(self) -> None:
        """Begin with a whole burst."""
        self.left = self.line.rate * BURST_S

    def wait_s(self, now: float) -> float:
        """Count one call; return 0, or in how many seconds it may be made."""
        rate = self.line.rate
        if not rate:
            return 0.0
        self.left = min(rate * BURST_S, self.left + (now - self.at) * rate)
        self.at = now
        if self.left < 1:
            return (1 - self.left) / rate
        self.left -= 1
        return 0.0


def digest_of(token: str) -> str:
    """Return what the file has of a token: it has 256 random bits, so one round of SHA-256 hides it."""
    return hashlib.sha256(token.encode()).hexdigest()


def read_lines(text: str) -> list[TokenLine]:
    """Read a file.

    Raises:
        ValueError: A line is none, or two have one name; it says which.
    """
    found: dict[str, TokenLine] = {}
    for number, raw in enumerate(text.splitlines(), 1):
        words = raw.split()
        if not words or words[0].startswith("#"):
            continue
        try:
            line = _line(words)
        except ValueError as error:
            raise ValueError(f"line {number}: {error}") from None
        if line.name in found:
            raise ValueError(f"line {number}: there is another token named {line.name}")
        found[line.name] = line
    return list(found.values())


def _line(words: list[str]) -> TokenLine:
    if len(words) not in (3, 4):
        raise ValueError("it is not `scope name sha256 [rate=N]`")
    scope, name, digest = words[:3]
    if not _NAME.fullmatch(name):
        raise ValueError(f"name {name[:64]!r}: up to 64 letters, digits and . _ @ -")
    if not _DIGEST.fullmatch(digest):
        raise ValueError("the third word is not a SHA-256 in hexadecimal (`osgym token new` writes lines)")
    rate = 0.0
    if len(words) == 4:
        key, _, value = words[3].partition("=")
        rate = float(value) if key == "rate" and re.fullmatch(r"\d{1,9}(\.\d{1,3})?", value) else -1.0
        if rate < 0:
            raise ValueError(f"{words[3][:40]!r} is not rate=CALLS_PER_SECOND")
    return TokenLine(AccessScope.of(scope), name, digest, rate)


class TokenFile:
    """The tokens of a file, as it is now."""

    def __init__(self, path: Path) -> None:
        """Read it.

        Raises:
            TokenFileError: It cannot be read, or others may write to it.
        """
        self._path = path
        self._grants: Mapping[str, Grant] = {}
        self._stamp: tuple[int, ...] | None = None
        self._looked_at = time.monotonic()
        self._load()

    def find(self, token: str) -> Grant | None:
        """Return what a token may do, None for one that is not in the file (any more)."""
        now = time.monotonic()
        if now - self._looked_at >= LOOK_S:
            self._looked_at = now
            try:
                self._load()
            except TokenFileError as error:
                log.warning("%s; the tokens stay as they were", error)
        return self._grants.get(digest_of(token))

    def _load(self) -> None:
        lines, stamp = load(self._path, self._stamp)
        if lines is None:
            return
        known = {grant.line: grant for grant in self._grants.values()}
        self._grants = {line.digest: known.get(line) or Grant(line) for line in lines}
        self._stamp = stamp


def load(path: Path, unless: tuple[int, ...] | None = None) -> tuple[list[TokenLine] | None, tuple[int, ...]]:
    """Return the tokens of a file, None where it is still `unless`, and what tells this state from others.

    A file that is not there has no tokens.

    Raises:
        TokenFileError: It cannot be read, or others may write to it.
    """
    try:
        with path.open(encoding="utf-8") as file:
            found = os.fstat(file.fileno())
            stamp = (found.st_mtime_ns, found.st_ino, found.st_size)
            if stamp == unless:
                return None, stamp
            if found.st_mode & _WRITABLE_BY_OTHERS:
                raise TokenFileError(f"{path}: others may write to it; chmod 600 {path}")
            return read_lines(file.read()), stamp
    except FileNotFoundError:
        return [], ()
    except (OSError, ValueError) as error:
        raise TokenFileError(f"{path}: {error}") from error


def add(path: Path, name: str, scope: AccessScope, rate: float) -> str:
    """Make a token, add its line, return the token, which nobody can read again.

    Raises:
        TokenFileError: The file cannot be used, or has a token of that name.
    """
    lines, _ = load(path)
    token = PREFIX + secrets.token_urlsafe(32)
    line = TokenLine(scope, name, digest_of(token), rate)
    write(path, [*(lines or []), line])
    return token


def write(path: Path, lines: Iterable[TokenLine]) -> None:
    """Replace the file, at once and for its owner only.

    Raises:
        TokenFileError: It cannot be written, or a line makes no sense.
    """
    text = "".join(f"{line.text()}\n" for line in lines)
    beside = path.with_name(f".{path.name}.{os.getpid()}")
    try:
        read_lines(text)
        path.parent.mkdir(parents=True, exist_ok=True)
        beside.touch(mode=0o600, exist_ok=False)
        beside.write_text(text, encoding="utf-8")
        beside.replace(path)
    except (OSError, ValueError) as error:
        beside.unlink(missing_ok=True)
        raise TokenFileError(f"{path}: {error}") from error
