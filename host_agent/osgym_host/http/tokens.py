"""File of tokens with a scope: each line has scope, name and SHA-256 of a token, never the token."""

from __future__ import annotations

import fcntl
import hashlib
import hmac
import logging
import os
import re
import secrets
import stat
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from osgym_host.errors import OsgymHostError
from osgym_host.whole_file import write_whole
from osgym_protocol.codes import TokenScope

log = logging.getLogger(__name__)

MAX_TOKENS = 1000
MAX_FILE_BYTES = 1 << 20
LOOK_S = 1.0
"""Longest time for which a revoked token still works."""
LOCK_S = 10.0
LOCK_POLL_S = 0.05
HEAD = b"# Tokens of OSGym: scope, name, SHA-256. `osgym token` writes this file.\n"
_PREFIX = "osgym_"
"""Prefix by which scanners for secrets recognize a token."""
_TOKEN_BYTES = 32
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,63}")
_DIGEST = re.compile(r"[0-9a-f]{64}")
_FOREIGN_WRITERS = stat.S_IWGRP | stat.S_IWOTH


class TokensError(OsgymHostError):
    """The file cannot be used; the message names the wrong line or mode, and the remedy."""


@dataclass(frozen=True, slots=True)
class ScopedToken:
    """One token of the file, without its secret.

    Attributes:
        digest: SHA-256 of the token, 32 bytes.
    """

    scope: TokenScope
    name: str
    digest: bytes

    def to_line(self) -> bytes:
        return f"{self.scope} {self.name} {self.digest.hex()}\n".encode()


def digest_of(token: str) -> bytes:
    """Return the SHA-256 of a token, without salt, since tokens are random."""
    return hashlib.sha256(token.encode("utf-8", "surrogatepass")).digest()


def find_token(tokens: Sequence[ScopedToken], token: str) -> ScopedToken | None:
    """Return the given token, in a time that tells nothing about the others."""
    digest, found = digest_of(token), None
    for one in tokens:
        if hmac.compare_digest(one.digest, digest):
            found = one
    return found


def parse_tokens(data: bytes) -> tuple[list[ScopedToken], list[str]]:
    """Return the tokens of a file, and the problems of its other lines."""
    tokens: list[ScopedToken] = []
    problems: list[str] = []
    for number, line in enumerate(data.decode("utf-8", "replace").splitlines(), 1):
        words = line.split("#", 1)[0].split()
        if not words:
            continue
        why = _problem(words, tokens)
        if why is None:
            tokens.append(ScopedToken(TokenScope(words[0]), words[1], bytes.fromhex(words[2])))
        else:
            problems.append(f"line {number}: {why}")
    return tokens, problems


def _problem(words: list[str], before: Sequence[ScopedToken]) -> str | None:
    """Return why a line has no token, without a word that could be one."""
    if len(words) != 3:
        return "not `scope name sha256`; `osgym token new` writes such lines"
    scope, name, digest = words
    if scope not in {str(one) for one in TokenScope}:
        return f"the scope must be one of {', '.join(TokenScope)}"
    if _NAME.fullmatch(name) is None:
        return "the name is not 1 to 64 letters, digits, dots, dashes and underscores"
    if _DIGEST.fullmatch(digest) is None:
        return f"the hash of {name} is not a SHA-256 (64 hexadecimal digits); never write the token itself"
    if any(one.name == name for one in before):
        return f"the name {name} occurs twice"
    if len(before) >= MAX_TOKENS:
        return f"more than {MAX_TOKENS} tokens"
    return None


def read_tokens(path: Path, *, trusted: bool = True) -> tuple[list[ScopedToken], list[str]]:
    """Read the file; a wrong line is a problem, not a token.

    Args:
        trusted: whether it has to be root's or this user's own, as for who lets callers in by it.

    Raises:
        TokensError: it cannot be read, or others than its owner may write it.
    """
    try:
        with path.open("rb") as file:
            found = os.fstat(file.fileno())
            if not stat.S_ISREG(found.st_mode):
                raise TokensError(f"{path} is not a file")
            if stat.S_IMODE(found.st_mode) & _FOREIGN_WRITERS:
                raise TokensError(f"other users than its owner can write {path}: chmod go-w {path}")
            if trusted and found.st_uid not in (0, os.geteuid()):
                raise TokensError(f"{path} belongs to another user: chown it to root or to this user")
            data = file.read(MAX_FILE_BYTES + 1)
    except OSError as error:
        raise TokensError(f"{path} cannot be read: {error.strerror} (`osgym token new` makes it)") from error
    if len(data) > MAX_FILE_BYTES:
        raise TokensError(f"{path} has more than {MAX_FILE_BYTES} bytes")
    return parse_tokens(data)


class TokenFile:
    """Tokens of the file, read again at most once a second if it changed. For one thread."""

    def __init__(self, path: Path, clock: Callable[[], float] = time.monotonic) -> None:
        """Read the file.

        Raises:
            TokensError: as `read_tokens`, and for every line that is wrong.
        """
        self.path = path
        self._clock = clock
        self._seen = self._mark()
        self._looked_s = clock()
        self._tokens, problems = read_tokens(path)
        if problems:
            raise TokensError(f"{path}: {'; '.join(problems[:5])}")

    def find(self, token: str) -> ScopedToken | None:
        """Return the file's entry of a token, or None."""
        now_s = self._clock()
        if now_s - self._looked_s >= LOOK_S:
            self._looked_s = now_s
            self._look()
        return find_token(self._tokens, token)

    def _look(self) -> None:
        """Read the file again if it changed. An unreadable file admits nobody; other lines stay valid."""
        mark = self._mark()
        if mark == self._seen:
            return
        self._seen = mark
        try:
            self._tokens, problems = read_tokens(self.path)
        except TokensError as error:
            self._tokens, problems = [], [str(error)]
        for problem in problems[:5]:
            log.error("tokens_file %s: %s", self.path, problem)
        log.info("tokens_file %s: %d tokens", self.path, len(self._tokens))

    def _mark(self) -> tuple[int, ...] | None:
        try:
            found = self.path.stat()
        except OSError:
            return None
        return (found.st_ino, found.st_mtime_ns, found.st_ctime_ns, found.st_size)


def add_token(path: Path, scope: TokenScope, name: str) -> str:
    """Make a token, write its line and return it; the token cannot be read again.

    Raises:
        TokensError: the name is taken or no name, or the file cannot be used or written.
    """
    if _NAME.fullmatch(name) is None:
        raise TokensError(
            f"{name!r} is not a valid name: use 1 to 64 letters, digits, dots, dashes and underscores"
        )
    token = _PREFIX + secrets.token_urlsafe(_TOKEN_BYTES)
    with _changing(path):
        known = read_tokens(path, trusted=False)[0] if path.exists() else []
        if any(one.name == name for one in known):
            raise TokensError(
                f"{path} already has a token {name}: use another name, or `osgym token revoke {name}`"
            )
        if len(known) >= MAX_TOKENS:
            raise TokensError(f"{path} has {MAX_TOKENS} tokens: revoke some")
        before = path.read_bytes() if path.exists() else HEAD
        if not before.endswith(b"\n"):
            before += b"\n"
        _replace(path, before + ScopedToken(scope, name, digest_of(token)).to_line())
    return token


def remove_token(path: Path, name: str) -> None:
    """Remove a token's line and keep all others.

    Raises:
        TokensError: there is none of that name, or the file cannot be used or written.
    """
    with _changing(path):
        known, _ = read_tokens(path, trusted=False)
        if all(one.name != name for one in known):
            names = ", ".join(one.name for one in known) or "none"
            raise TokensError(f"{path} has no token {name}; it has: {names}")
        lines = path.read_bytes().splitlines(keepends=True)
        gone = [name.encode()]
        _replace(path, b"".join(line for line in lines if line.split(b"#")[0].split()[1:2] != gone))


@contextmanager
def _changing(path: Path) -> Iterator[None]:
    """Hold the lock for changes of this folder's files.

    Raises:
        TokensError: the folder is not there, or what is done inside cannot be.
    """
    try:
        folder = os.open(path.parent, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        try:
            _lock(folder)
            yield
        finally:
            os.close(folder)
    except OSError as error:
        raise TokensError(f"{path} cannot be written: {error.strerror}") from error


def _lock(folder: int) -> None:
    end_s = time.monotonic() + LOCK_S
    while True:
        try:
            return fcntl.flock(folder, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            if time.monotonic() > end_s:
                raise
            time.sleep(LOCK_POLL_S)


def _replace(path: Path, data: bytes) -> None:
    """Write the file atomically and keep its owner and mode."""
    if not path.exists():
        write_whole(path, data)
        return
    was = path.stat()
    write_whole(path, data, stat.S_IMODE(was.st_mode), owner=(was.st_uid, was.st_gid))
