"""Root for an ordinary user: the line that is granted, and what is said to who has none."""

from __future__ import annotations

import shutil
import subprocess
from datetime import UTC, datetime, timedelta, timezone
from pathlib import Path

import pytest

from osgym_infra.links.sudo import WRITE, grant, grant_file, refusal

END = datetime(2026, 12, 1, 12, 30, tzinfo=timezone(timedelta(hours=2)))


@pytest.mark.parametrize(
    ("user", "who"),
    [("alice", "alice"), ("a-b_c9", "a-b_c9"), ("ALIAS", "#1000"), ("%wheel", "#1000"), ("lab\\eve", "#1000"),
     ("eve.x", "#1000"), ("", "#1000")],
)  # fmt: skip
def test_a_grant_is_for_one_user_until_a_time(user: str, who: str) -> None:
    """In UTC; a name that sudoers would read otherwise is a number."""
    assert grant(user, 1000, END) == f"{who} ALL=(root) NOTAFTER=20261201103000Z NOPASSWD: ALL"


def test_a_refusal_says_what_to_do() -> None:
    """What sudo said, why `sudo -v` is none, the command, the file and the line."""
    text = refusal("alice", 1000, "sudo: a password is required")
    for part in ("sudo: a password is required", "`sudo -v` does not help", "osgym fleet sudo",
                 grant_file(1000), "alice ALL=(root) NOPASSWD: ALL"):  # fmt: skip
        assert part in text
    assert "." not in Path(grant_file(1000)).name, "sudo reads no file with a dot"


@pytest.mark.skipif(shutil.which("visudo") is None, reason="missing: visudo")
def test_sudo_takes_the_line_and_a_wrong_one_is_not_written(tmp_path: Path) -> None:
    """visudo judges before anything is in place."""
    path = tmp_path / "zz-osgym-fleet-1000"
    argv = ["sh", "-c", WRITE, "sudo", str(path)]
    subprocess.run([*argv, grant("alice", 1000, datetime.now(UTC))], check=True)
    first = path.read_text()
    assert path.stat().st_mode & 0o777 == 0o440
    assert subprocess.run([*argv, "alice ALL=("], capture_output=True, check=False).returncode != 0
    assert path.read_text() == first
    assert list(tmp_path.iterdir()) == [path]
