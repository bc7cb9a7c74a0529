"""Where the guest agent finds files of programs that have a root of their own."""

from __future__ import annotations

from pathlib import Path

from osgym_guest.osworld.session import DesktopSession


def test_files_are_those_of_the_programs_root(tmp_path: Path) -> None:
    """Paths stay as programs know them; where the agent opens them is below the root that it sees."""
    session = DesktopSession.from_environment({"HOME": "/home/user", "OSGYM_SESSION_ROOT": str(tmp_path)})
    assert session.path("~/a") == Path("/home/user/a")
    assert session.file(session.path("~/a")) == tmp_path / "home/user/a"
    assert session.file(Path("/etc/hosts")) == tmp_path / "etc/hosts"
    assert session.file(Path("/proc/meminfo")) == Path("/proc/meminfo")
    assert "OSGYM_SESSION_ROOT" not in session.env


def test_links_lead_where_they_lead_programs(tmp_path: Path) -> None:
    """An absolute link is one of the programs' root, and none leads out of it or around for ever."""
    root = tmp_path / "root"
    (root / "etc").mkdir(parents=True)
    (root / "home").mkdir()
    session = DesktopSession.from_environment({"HOME": "/home/user", "OSGYM_SESSION_ROOT": str(root)})
    links = {"file": "/etc/hosts", "folder": "/etc", "out": "../../../etc", "near": "file", "round": "round"}
    for name, target in links.items():
        (root / "home" / name).symlink_to(target)
    led = {name: session.file(Path("/home") / name) for name in links}
    hosts = root / "etc/hosts"
    assert led == {
        "file": hosts, "folder": root / "etc", "out": root / "etc", "near": hosts, "round": led["round"]
    }  # fmt: skip
    assert session.file(Path("/home/folder/../etc/hosts")) == hosts
    assert not led["round"].exists() and led["round"].is_relative_to(root)


def test_both_have_one_root_in_a_container() -> None:
    """Without a root of the programs' own nothing is translated."""
    session = DesktopSession.from_environment({"HOME": "/home/user"})
    assert session.file(Path("/etc/hosts")) == Path("/etc/hosts")


def test_programs_are_found_by_the_paths_that_programs_use(tmp_path: Path) -> None:
    """One that was installed in the session counts, one that is only the agent's does not."""
    folder = tmp_path / "usr/local/bin"
    folder.mkdir(parents=True)
    (folder / "tool").write_text("#!/bin/sh\n")
    (folder / "tool").chmod(0o755)
    (folder / "notes").write_text("")
    environ = {"PATH": "/usr/bin:/usr/local/bin", "OSGYM_SESSION_ROOT": str(tmp_path)}
    session = DesktopSession.from_environment(environ)
    assert session.program("tool") == "/usr/local/bin/tool"
    assert session.program("/usr/local/bin/tool") == "/usr/local/bin/tool"
    assert [session.program(name) for name in ("notes", "python3", "/usr/bin/env")] == [None] * 3
