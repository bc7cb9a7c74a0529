"""The words of `osgym`: few nouns, entry points as commands, and spellings of the release before."""

from __future__ import annotations

import re
import subprocess
import sys

import click
import pytest
from click.testing import CliRunner

from osgym_cli.main import REPLACED, SUMMARIES, current_spelling, main
from osgym_host.cli.main import COMMANDS
from osgym_protocol.plugins import PluginGroup, plugin_names


def command_of(words: list[str]) -> click.Command | None:
    """The command of these words; None if there is none."""
    found: click.Command | None = main
    for word in words:
        if not isinstance(found, click.Group):
            return None
        found = found.get_command(click.Context(found), word)
    return found


def test_there_are_few_nouns_each_described() -> None:
    """At most fourteen, and help imports none of them."""
    nouns = main.list_commands(click.Context(main))
    assert len(nouns) <= 14
    assert sorted(name for name in SUMMARIES if "." not in name) == nouns
    assert {name for name in SUMMARIES if "." in name} <= set(plugin_names(PluginGroup.COMMANDS))
    code = (
        "import sys; from click.testing import CliRunner; from osgym_cli.main import main; "
        "assert not any(CliRunner().invoke(main, words).exit_code for words in (['-h'], ['host', '-h'])); "
        "print([name for name in sys.modules if name.startswith(('osgym_host', 'osgym_sdk', 'osgym_infra'))])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60)
    assert done.stdout.strip() == "[]", done.stderr


def test_entry_points_are_commands() -> None:
    """Their words joined by dots."""
    for name in plugin_names(PluginGroup.COMMANDS):
        assert command_of(name.split(".")) is not None, name


@pytest.mark.parametrize("old", [*REPLACED, "eval"])
def test_old_spellings_say_the_new_one_and_work(old: str) -> None:
    """A line on stderr names it; no help lists the old one."""
    words, new, args = current_spelling([*old.split(), "--json"])
    assert words == old and command_of(new.split()) is not None
    assert args == [*new.split(), "--json"]
    typed = [*old.split(), *(["x"] if old == "eval" else []), "--help"]
    done = CliRunner().invoke(main, typed, prog_name="osgym")
    assert done.exit_code == 0
    assert f"`osgym {old}` is now `osgym {new}`" in done.stderr
    assert f"Usage: osgym {new}" in done.stdout


@pytest.mark.parametrize("args", [["eval"], ["eval", "run", "x"], ["eval", "--help"], ["token", "ls"], []])
def test_todays_spellings_are_left_alone(args: list[str]) -> None:
    """Nothing is said about them."""
    assert current_spelling(args) == ("", "", args)


def test_the_old_option_for_a_host_says_the_new_one() -> None:
    """`--url` of the release before."""
    done = CliRunner().invoke(main, ["replica", "ls", "--url", "http://127.0.0.1:9"])
    assert done.exit_code == 1
    assert "`--url` is now `--host`" in done.stderr and "cannot reach http://127.0.0.1:9" in done.stderr
    assert "--url" not in CliRunner().invoke(main, ["replica", "ls", "--help"]).stdout


@pytest.mark.parametrize("name", COMMANDS)
def test_a_host_needs_no_client(name: str) -> None:
    """`python -m osgym_host` has its commands where neither SDK nor `osgym` nor fleets are installed."""
    code = (
        "import sys, runpy; sys.modules.update(dict.fromkeys(('osgym_sdk', 'osgym_cli', 'osgym_infra'))); "
        f"sys.argv = ['osgym_host', {name!r}, '--help']; runpy.run_module('osgym_host', run_name='__main__')"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, done.stderr


@pytest.mark.parametrize("words", ["eval run", "task run", "fleet plan"])
def test_many_options_are_shown_in_groups(words: str) -> None:
    """None twice, none left out, and those of no group last."""
    command = command_of(words.split())
    assert command is not None
    shown = CliRunner().invoke(main, [*words.split(), "--help"]).stdout
    listed, _, rest = shown.partition("\nOptions:\n")
    assert len(re.findall(r"^\S.*:$", listed, re.MULTILINE)) >= 3
    assert "--help" in rest and "--help" not in listed
    for option in (one for one in command.params if isinstance(one, click.Option)):
        assert len(re.findall(rf"^  .*{option.opts[0]}\b(?!-)", shown, re.MULTILINE)) >= 1
