"""Tokens with a scope: their file, what it may look like, and how often each may call."""

from __future__ import annotations

import os
import time
from pathlib import Path

import pytest
from click.testing import CliRunner, Result
from hypothesis import given
from hypothesis import strategies as st

from osgym_host.api import tokens
from osgym_host.api.tokens import Grant, TokenFile, TokenFileError, TokenLine, digest_of, read_lines
from osgym_host.cli.main import main
from osgym_host.core.scopes import AccessScope

DIGEST = digest_of("x")


def run(*args: str | Path) -> Result:
    """The command in this process."""
    return CliRunner().invoke(main, ["token", *map(str, args)])


def test_given_listed_and_taken_back(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A token is printed once and is not in the file; a running host agent sees each change."""
    monkeypatch.setattr(tokens, "LOOK_S", 0.0)
    path = tmp_path / "deep" / "tokens"
    watched = TokenFile(path)
    made = run("new", "--file", path, "--scope", "observe", "wall")
    assert made.exit_code == 0, made.output
    token = made.output.strip()
    assert token.startswith("osgym_") and len(token) > 40
    assert token not in path.read_text()
    assert path.stat().st_mode & 0o777 == 0o600
    grant = watched.find(token)
    assert grant is not None
    assert (grant.line.scope, grant.line.name, grant.line.rate) == (AccessScope.OBSERVE, "wall", 100)
    assert watched.find(token + "x") is None
    assert run("new", "--file", path, "trainer").exit_code == 0
    listed = run("list", "--file", path).output
    assert "wall" in listed and "observe" in listed and "trainer" in listed and token not in listed
    assert watched.find(token) is grant, "its calls are counted on"
    twice = run("new", "--file", path, "wall")
    assert (twice.exit_code, "another token named wall" in twice.output) == (1, True)
    assert run("revoke", "--file", path, "wall").exit_code == 0
    assert watched.find(token) is None
    assert (run("revoke", "--file", path, "wall").exit_code, len(list(path.parent.iterdir()))) == (1, 1)


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("run trainer", "line 1: it is not"),
        (f"root trainer {DIGEST}", "observe, run, admin"),
        (f"run ../x {DIGEST}", "letters"),
        ("# of ours\nrun trainer my-secret-token", "line 2: the third word"),
        (f"run trainer {DIGEST} rate=-1", "rate="),
        (f"run trainer {DIGEST} rate=nan", "rate="),
        (f"run trainer {DIGEST}\nadmin trainer {DIGEST}", "another token named trainer"),
    ],
)
def test_a_line_that_is_none_is_named(tmp_path: Path, text: str, why: str) -> None:
    """And no host agent starts with it."""
    path = tmp_path / "tokens"
    path.write_text(text)
    path.chmod(0o600)
    with pytest.raises(TokenFileError, match="tokens: ") as refused:
        TokenFile(path)
    assert why in str(refused.value)


def test_a_file_that_others_may_write_to_is_refused(tmp_path: Path) -> None:
    """With what helps."""
    path = tmp_path / "tokens"
    path.write_text("")
    path.chmod(0o620)
    with pytest.raises(TokenFileError, match="chmod 600"):
        TokenFile(path)


def test_a_file_that_breaks_later_changes_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """An editor's half-written file locks nobody out; one that is removed takes all tokens back."""
    monkeypatch.setattr(tokens, "LOOK_S", 0.0)
    path = tmp_path / "tokens"
    token = tokens.add(path, "one", AccessScope.RUN, 0)
    watched = TokenFile(path)
    path.write_text("run one")
    assert watched.find(token) is not None
    os.unlink(path)
    assert watched.find(token) is None


def test_a_rate_lets_a_burst_through_and_then_its_rate() -> None:
    """Whoever waits as long as it was told is let through."""
    grant = Grant(TokenLine(AccessScope.OBSERVE, "wall", DIGEST, rate=10))
    now = time.monotonic()
    grant.at = now
    assert [grant.wait_s(now) for _ in range(50)] == [0.0] * 50
    wait_s = grant.wait_s(now)
    assert 0.05 < wait_s <= 0.1
    assert grant.wait_s(now + wait_s + 1e-6) == 0.0
    assert grant.wait_s(now + wait_s + 1e-6) > 0
    assert all(Grant(TokenLine(AccessScope.RUN, "t", DIGEST)).wait_s(now) == 0 for _ in range(1000))


@given(st.text(max_size=300))
def test_no_text_breaks_the_reader(text: str) -> None:
    """It is a file of tokens, or refused by one error."""
    try:
        lines = read_lines(text)
    except ValueError:
        return
    assert read_lines("".join(f"{line.text()}\n" for line in lines)) == lines
