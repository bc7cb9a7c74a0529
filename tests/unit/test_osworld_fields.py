"""What requests of OSWorld's clients may look like."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from osgym_guest.http import HttpError
from osgym_guest.osworld import fields
from osgym_guest.osworld.accessibility import is_terminal
from osgym_guest.osworld.process import argv_of
from osgym_guest.osworld.session import DesktopSession
from osgym_guest.osworld.windows import DesktopWindow

SESSION = DesktopSession({"HOME": "/home/user", "WHERE": "docs"}, Path("/home/user"))


@pytest.mark.parametrize(
    ("data", "argv"),
    [
        ({"command": "ls -l 'a b'"}, ["ls", "-l", "a b"]),
        ({"command": ["ls", "~/a", "b~/c"]}, ["ls", "/home/user/a", "b~/c"]),
        ({"command": "cat ~/x"}, ["cat", "/home/user/x"]),
        ({"command": "echo $A | wc", "shell": True}, ["/bin/sh", "-c", "echo $A | wc"]),
        ({"command": "echo hi", "shell": "true"}, ["/bin/sh", "-c", "echo hi"]),
        ({"command": "echo hi", "shell": "false"}, ["echo", "hi"]),
        ({"command": ["echo $0 $1", "a", "b"], "shell": True}, ["/bin/sh", "-c", "echo $0 $1", "a", "b"]),
    ],
)
def test_commands_are_read_as_osworlds_server_reads_them(data: dict[str, Any], argv: list[str]) -> None:
    """Strings are split, a leading ~/ is expanded, a shell gets item 0 as its script."""
    command, shell = fields.command(data, SESSION)
    assert argv_of(command, shell=shell) == argv


@pytest.mark.parametrize(
    "command",
    [None, "", [], 3, {}, [1], ["a", None], 'echo "', "", [""], ["a\0b"], "a\0b"],
)
@pytest.mark.parametrize("shell", [False, True])
def test_a_malformed_command_is_a_400(command: Any, shell: bool) -> None:
    """What cannot be a command is refused before anything starts, and the answer says why."""
    if shell and command == 'echo "':
        return  # a shell's own syntax is the shell's business
    with pytest.raises(HttpError) as caught:
        fields.command({"command": command, "shell": shell}, SESSION)
    assert caught.value.status == 400
    assert "command" in caught.value.message


@given(
    st.dictionaries(
        st.sampled_from(["command", "shell", "path"]),
        st.recursive(
            st.none() | st.booleans() | st.integers() | st.floats() | st.text(),
            lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner),
        ),
    )
)
def test_no_json_makes_the_reading_of_commands_fail_otherwise(data: dict[str, Any]) -> None:
    """Whatever JSON arrives, it is a command or a 400."""
    try:
        command, shell = fields.command(data, SESSION)
    except HttpError as exc:
        assert exc.status == 400
    else:
        assert argv_of(command, shell=shell)[0]


@pytest.mark.parametrize("value", [None, "3", True, -1, 11, float("nan")])
def test_a_number_out_of_its_range_is_a_400(value: Any) -> None:
    """Bounds are kept, and a boolean or a string is no number."""
    with pytest.raises(HttpError):
        fields.number({"n": value}, "n", 1, low=0, high=10)
    assert fields.number({}, "n", 1, low=0, high=10) == 1


@pytest.mark.parametrize(
    ("text", "path"),
    [
        ("~/a", "/home/user/a"),
        ("~", "/home/user"),
        ("$HOME/a", "/home/user/a"),
        ("${WHERE}/a", "/home/user/docs/a"),
        ("a/b", "/home/user/a/b"),
        ("/x/$NONE", "/x/$NONE"),
        ("/x/a~b$", "/x/a~b$"),
    ],
)
def test_paths_are_expanded_in_the_users_session(text: str, path: str) -> None:
    """Home, variables and the working directory are the user's, not the agent's."""
    assert str(SESSION.path(text)) == path


def test_the_agents_own_variables_stay_its_own() -> None:
    """A token or a listening socket of the agent is not handed to what it starts."""
    env = {"OSGYM_TOKEN": "secret", "LISTEN_FDS": "1", "HOME": "/home/user", "DISPLAY": ":7", "PATH": "/bin"}
    session = DesktopSession.from_environment(env)
    assert session.env == {"HOME": "/home/user", "DISPLAY": ":7", "PATH": "/bin", "PWD": "/home/user"}
    assert session.home == Path("/home/user")


@pytest.mark.parametrize(
    ("name", "strict", "by_class", "found"),
    [
        ("calc", False, False, True),
        ("calc", True, False, False),
        ("Untitled 1 - LibreOffice Calc", True, False, True),
        ("libreoffice-CALC", False, True, True),
        ("libreoffice.libreoffice-calc", True, True, True),
        ("libreoffice-calc", True, True, False),
    ],
)
def test_windows_are_matched_the_way_wmctrl_does(
    name: str, strict: bool, by_class: bool, found: bool
) -> None:
    """Part of the title or of ``instance.class``, ignoring case; the whole and exactly when strict."""
    window = DesktopWindow(1, "Untitled 1 - LibreOffice Calc", "libreoffice", "libreoffice-calc")
    assert window.matches(name, strict=strict, by_class=by_class) is found


def test_only_terminals_that_tell_their_text_wake_the_helper() -> None:
    """The health probe costs nothing unless such a terminal is in front."""
    assert is_terminal("xfce4-terminal", "Xfce4-terminal")
    assert is_terminal("gnome-terminal-server", "Gnome-terminal")
    assert not is_terminal("xterm", "XTerm")
    assert not is_terminal("libreoffice", "libreoffice-calc")
