"""Locks of package versions and the machine's apt settings."""

from __future__ import annotations

from pathlib import Path

import pytest

from osgym_host.images.apt import apt_sources
from osgym_host.images.errors import DefinitionError
from osgym_host.images.lock import PackageLock

STATUS = """\
Package: bc
Status: install ok installed
Version: 1.07.1-3+b1
Description: calculator
 with: a colon

Package: gone
Status: deinstall ok config-files
Version: 1

Package: jq
Status: install ok installed
Version: 1.6-2.1
"""


def test_lock_survives_its_file(tmp_path: Path) -> None:
    """What is written is read back the same."""
    lock = PackageLock.of_dpkg_status(STATUS)
    path = tmp_path / "lock"
    path.write_text("# made by a test\n" + lock.text())
    assert PackageLock.read(path) == lock
    assert lock.versions == {"bc": "1.07.1-3+b1", "jq": "1.6-2.1"}


def test_bad_line_of_a_lock_is_named(tmp_path: Path) -> None:
    """The error names file and line."""
    path = tmp_path / "lock"
    path.write_text("bc=1\nnonsense\n")
    with pytest.raises(DefinitionError, match=":2:"):
        PackageLock.read(path)


def test_missing_lock_is_an_error(tmp_path: Path) -> None:
    """A lock that is not there is never taken for an empty one."""
    with pytest.raises(DefinitionError, match="cannot be read"):
        PackageLock.read(tmp_path / "none")


def test_differences_name_every_departure() -> None:
    """Another version, a package too many and one too few are all said."""
    said = PackageLock({"a": "1", "b": "1", "c": "1"}).differences(
        PackageLock({"a": "1", "b": "2", "d": "1"})
    )
    assert said == [
        "b has version 2 instead of 1 of the lock",
        "d 1 is not in the lock",
        "c of the lock is not installed",
    ]
    assert PackageLock({"a": "1"}).differences(PackageLock({"a": "1"})) == []


def test_preferences_pin_above_everything() -> None:
    """apt takes the locked version even when that is a downgrade."""
    text = PackageLock({"bc": "1"}).preferences()
    assert "Package: bc\nPin: version 1\nPin-Priority: 1001\n" in text


def test_digest_depends_on_versions_only() -> None:
    """The order of packages does not matter, a version does."""
    assert PackageLock({"a": "1", "b": "2"}).digest == PackageLock({"b": "2", "a": "1"}).digest
    assert PackageLock({"a": "1"}).digest != PackageLock({"a": "2"}).digest


def test_sources_come_from_both_formats(tmp_path: Path) -> None:
    """deb822 and one-line sources of the suite are taken over, with their keyring."""
    (tmp_path / "sources.list.d").mkdir()
    (tmp_path / "sources.list").write_text(
        "deb http://one.invalid/debian bookworm main contrib\n# deb x y z\n"
    )
    (tmp_path / "sources.list.d" / "debian.sources").write_text(
        "Types: deb\nURIs: http://two.invalid/debian\nSuites: bookworm-updates bookworm-security\n"
        "Components: main\nSigned-By: /usr/share/keyrings/debian-archive-keyring.gpg\n"
    )
    keyring = "[signed-by=/usr/share/keyrings/debian-archive-keyring.gpg]"
    assert apt_sources("bookworm", ["main"], tmp_path) == [
        "deb http://one.invalid/debian bookworm main",
        f"deb {keyring} http://two.invalid/debian bookworm-updates main",
        f"deb {keyring} http://two.invalid/debian bookworm-security main",
    ]


def test_sources_of_others_are_left_out(tmp_path: Path) -> None:
    """Packages of a third party never get into an image, nor does another release."""
    (tmp_path / "sources.list").write_text(
        "deb [signed-by=/etc/apt/keyrings/theirs.gpg] http://theirs.invalid/ bookworm main\n"
        "deb http://tools.invalid/ bookworm stable\n"
        "deb http://old.invalid/debian bullseye main\n"
    )
    assert apt_sources("bookworm", ["main"], tmp_path) == []


def test_no_sources_of_the_suite_means_the_default(tmp_path: Path) -> None:
    """On another distribution nothing is taken over, not even half of it."""
    (tmp_path / "sources.list").write_text("deb http://x.invalid/debian bookworm-updates main\n")
    assert apt_sources("bookworm", ["main"], tmp_path) == []
