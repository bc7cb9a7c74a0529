"""Tokens with a scope: the file, what it refuses, how it is changed, and how often a token may call."""

from __future__ import annotations

import os
import stat
import threading
from pathlib import Path

import pytest
from click.testing import CliRunner
from hypothesis import given
from hypothesis import strategies as st

from osgym_cli.main import main
from osgym_host.core.rate_limit import RateLimit
from osgym_host.http.scopes import ROUTES, needed_scope
from osgym_host.http.tokens import (
    LOOK_S,
    ScopedToken,
    TokenFile,
    TokensError,
    add_token,
    digest_of,
    find_token,
    parse_tokens,
    read_tokens,
    remove_token,
)
from osgym_protocol.codes import TokenScope

GOOD = "0" * 64


class Clock:
    """Time that a test moves."""

    now_s = 0.0

    def __call__(self) -> float:
        return self.now_s


def test_a_scope_has_those_before_it() -> None:
    """And none after it."""
    observe, run, admin = TokenScope
    assert [observe.includes(one) for one in TokenScope] == [True, False, False]
    assert [run.includes(one) for one in TokenScope] == [True, True, False]
    assert [admin.includes(one) for one in TokenScope] == [True, True, True]


@pytest.mark.parametrize(
    ("method", "path", "scope"),
    [
        ("GET", "/v1/replicas/r1/screenshot", "observe"),
        ("HEAD", "/metrics", "observe"),
        ("POST", "/v1/episodes/e/step", "run"),
        ("POST", "/v1/episodes/e/tunnel", "run"),
        ("GET", "/v1/checkpoints/c/export", "run"),
        ("POST", "/v1/drain", "admin"),
        ("POST", "/v1/replicas/r1/intervene", "admin"),
        ("GET", "/v1/drain", "admin"),
        ("GET", "/v1/episodes/e/step", "admin"),
        ("POST", "/v1/host", "admin"),
        ("get", "/v1/host", "admin"),
        ("GET", "/v1/host/", "admin"),
        ("GET", "//v1/host", "admin"),
        ("GET", "/v1/../v1/host", "admin"),
        ("GET", "/new", "admin"),
    ],
)
def test_what_a_call_needs(method: str, path: str, scope: str) -> None:
    """By its route; what no route is for needs the most."""
    assert needed_scope(method, path) == scope


def test_looking_changes_nothing() -> None:
    """No call of `observe` is anything but a GET."""
    assert {route.split()[0] for route, scope in ROUTES.items() if scope is TokenScope.OBSERVE} == {"GET"}


@given(st.binary(max_size=300))
def test_no_file_breaks_the_parser(data: bytes) -> None:
    """Each line gives a token, a problem or nothing."""
    tokens, problems = parse_tokens(data)
    assert len(tokens) + len(problems) <= len(data.decode("utf-8", "replace").splitlines())


@given(
    st.sampled_from(TokenScope), st.from_regex(r"[A-Za-z0-9][A-Za-z0-9._-]{0,63}", fullmatch=True), st.text()
)
def test_a_line_says_what_was_written(scope: TokenScope, name: str, token: str) -> None:
    """There and back."""
    one = ScopedToken(scope, name, digest_of(token))
    assert parse_tokens(b"# head\n" + one.to_line()) == ([one], [])
    assert find_token([one], token) == one
    assert find_token([one], token + "x") is None


@pytest.mark.parametrize(
    ("line", "word"),
    [
        ("run a", "scope name sha256"),
        (f"root a {GOOD}", "observe, run, admin"),
        (f"run ../a {GOOD}", "letters, digits"),
        ("run a osgym_secret", "never write the token itself"),
        (f"run a {GOOD}\nadmin a {GOOD}", "the name a occurs twice"),
    ],
)
def test_a_wrong_line_is_named_and_gives_no_token(line: str, word: str) -> None:
    """The others count; a token that somebody wrote down is not repeated."""
    tokens, (problem,) = parse_tokens(f"{line}\nobserve last {GOOD}".encode())
    assert word in problem and problem.startswith("line ")
    assert "osgym_secret" not in problem
    assert tokens[-1].name == "last"


def test_a_token_is_made_used_and_revoked(tmp_path: Path) -> None:
    """The file holds its digest only; the agent sees changes of the file, once a second at most."""
    path, clock = tmp_path / "tokens", Clock()
    first = add_token(path, TokenScope.RUN, "trainer-1")
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert first.encode() not in path.read_bytes()
    file = TokenFile(path, clock)
    found = file.find(first)
    assert found is not None and (found.scope, found.name) == (TokenScope.RUN, "trainer-1")
    second = add_token(path, TokenScope.ADMIN, "boss")
    remove_token(path, "trainer-1")
    assert file.find(second) is None and file.find(first) is found, "it looked within the second"
    clock.now_s += LOOK_S
    assert file.find(first) is None
    assert file.find(second) is not None
    path.unlink()
    clock.now_s += LOOK_S
    assert file.find(second) is None, "no file lets nobody in"


def test_a_wrong_file_is_refused_at_the_start_and_lets_nobody_in_later(tmp_path: Path) -> None:
    """Not there, writable by others, wrong lines: each says what to do. A later line spares the rest."""
    path, clock = tmp_path / "tokens", Clock()
    with pytest.raises(TokensError, match="osgym token new"):
        TokenFile(path)
    token = add_token(path, TokenScope.OBSERVE, "me")
    path.chmod(0o620)
    with pytest.raises(TokensError, match="chmod go-w"):
        TokenFile(path)
    path.chmod(0o640)
    file = TokenFile(path, clock)
    with path.open("a") as opened:
        opened.write("nonsense\n")
    with pytest.raises(TokensError, match="line 3"):
        TokenFile(path)
    clock.now_s += LOOK_S
    assert file.find(token) is not None
    path.chmod(0o666)
    clock.now_s += LOOK_S
    assert file.find(token) is None


@pytest.mark.skipif(os.geteuid() != 0, reason="missing: root, to give a file to another user")
def test_another_users_file_lets_nobody_in_and_stays_theirs(tmp_path: Path) -> None:
    """Root changes a service's file without taking it away."""
    path = tmp_path / "tokens"
    add_token(path, TokenScope.RUN, "a")
    os.chown(path, 4711, 4711)
    with pytest.raises(TokensError, match="another user"):
        TokenFile(path)
    add_token(path, TokenScope.RUN, "b")
    remove_token(path, "a")
    assert (path.stat().st_uid, path.stat().st_gid) == (4711, 4711)
    assert [one.name for one in read_tokens(path, trusted=False)[0]] == ["b"]


def test_changes_at_once_lose_nothing(tmp_path: Path) -> None:
    """Each waits for the one before; comments stay."""
    path = tmp_path / "tokens"
    path.write_bytes(b"# mine\n")
    names = [f"t{number}" for number in range(8)]
    threads = [threading.Thread(target=add_token, args=(path, TokenScope.RUN, name)) for name in names]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(20)
    assert sorted(one.name for one in read_tokens(path)[0]) == names
    assert path.read_bytes().startswith(b"# mine\n")


def test_a_rate_has_a_burst_and_says_how_long_to_wait() -> None:
    """Each name its own; whoever waits as long as it was told may call."""
    limit = RateLimit(per_s=10, burst=2)
    assert [limit.wait_s("a", 0.0) for _ in range(2)] == [0, 0]
    assert limit.wait_s("a", 0.0) == pytest.approx(0.1)
    assert limit.wait_s("b", 0.0) == 0
    assert limit.wait_s("a", 0.1) == 0
    assert limit.wait_s("a", 0.1) > 0
    assert [limit.wait_s("a", 1000.0) for _ in range(3)][:2] == [0, 0]
    assert RateLimit(0, 1).wait_s("a", 0.0) == 0


@given(st.lists(st.floats(0, 2, allow_nan=False), min_size=1, max_size=60))
def test_no_one_gets_more_than_the_rate_and_the_burst(gaps_s: list[float]) -> None:
    """Whatever the times of the calls, and if time goes backwards for once."""
    limit, now_s, taken = RateLimit(per_s=5, burst=3), 0.0, 0
    for gap_s in gaps_s:
        now_s += gap_s
        taken += limit.wait_s("a", now_s) == 0
    assert taken <= 3 + 5 * sum(gaps_s) + 1e-6


def test_the_command_prints_a_token_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """`new`, `list` and `revoke`, by the variable or by --file; refusals say what to do."""
    path, run = tmp_path / "tokens", CliRunner().invoke
    monkeypatch.delenv("OSGYM_TOKENS_FILE", raising=False)
    assert "--file" in run(main, ["token", "list"]).output
    monkeypatch.setenv("OSGYM_TOKENS_FILE", str(path))
    made = run(main, ["token", "new", "--scope", "observe", "--name", "wall"])
    assert made.exit_code == 0, made.output
    token = made.stdout.strip()
    found = TokenFile(path).find(token)
    assert found is not None and found.scope is TokenScope.OBSERVE
    again = run(main, ["token", "new", "--scope", "run", "--name", "wall", "--file", str(path)])
    assert again.exit_code == 1 and "osgym token revoke wall" in again.output
    listed = run(main, ["token", "list"]).output
    assert "observe" in listed and "wall" in listed and token not in listed
    assert run(main, ["token", "revoke", "wall"]).exit_code == 0
    gone = run(main, ["token", "revoke", "wall"])
    assert gone.exit_code == 1 and "no token wall" in gone.output
    assert run(main, ["token", "new", "--scope", "run", "--name", "a b"]).exit_code == 1
    nowhere = run(
        main, ["token", "new", "--scope", "run", "--name", "a", "--file", str(tmp_path / "no" / "f")]
    )
    assert nowhere.exit_code == 1 and "cannot be written" in nowhere.output
