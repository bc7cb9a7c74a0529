"""The examples in the help of every command of `osgym`: each has some, and click takes them as they stand."""

from __future__ import annotations

import itertools
import re
import shlex
from collections.abc import Iterator

import click
import pytest

from osgym_cli.main import main as osgym

HEADS = ("Examples:", "Examples")


def commands(command: click.Command, context: click.Context) -> Iterator[click.Context]:
    """A command and all below it."""
    yield context
    if isinstance(command, click.Group):
        for name in command.list_commands(context):
            below = command.get_command(context, name)
            assert below is not None
            yield from commands(below, click.Context(below, info_name=name, parent=context))


ALL = {one.command_path: one for one in commands(osgym, click.Context(osgym, info_name="osgym"))}


def shown(context: click.Context) -> str:
    """What `--help` prints below "Examples", up to the first line that is not indented below it."""
    text = "\n".join((context.command.help or "", context.command.epilog or "")).replace("\b", "")
    lines = iter(text.splitlines())
    margin = next((_indent(line) for line in lines if line.strip() in HEADS), 0)
    return "\n".join(itertools.takewhile(lambda line: not line.strip() or _indent(line) > margin, lines))


def _indent(line: str) -> int:
    return len(line) - len(line.lstrip())


def argvs(text: str) -> Iterator[list[str]]:
    """Each `osgym …` as a shell takes it; what two blanks part from it is a remark."""
    for line in re.sub(r"\s*\\\n\s*", " ", text).splitlines():
        if not re.match(r"\s*(\w+=\S* )*osgym ", line):
            continue  # words for people
        words = shlex.shlex(re.split(r"(?<=\S) {2,}", line)[0], posix=True, punctuation_chars=True)
        words.whitespace_split = True
        part: list[str] = []
        for word in [*words, ";"]:
            if not re.fullmatch(r"[();<>|&]+", word):
                part.append(word)
                continue
            while part and re.match(r"\w+=", part[0]):
                part.pop(0)
            if part[:1] == ["osgym"]:
                yield part[1:]
            part = []


def taken(words: list[str]) -> str:
    """The path of the command that takes these words, after it has parsed them.

    Raises:
        click.UsageError: it does not take them.
    """
    command: click.Command = osgym
    path = ["osgym"]
    while isinstance(command, click.Group):
        below = command.get_command(click.Context(command), words[0]) if words else None
        if below is None:
            raise click.UsageError(f"{' '.join(path)} has no command {words[:1]}")
        path.append(words[0])
        command, words = below, words[1:]
    command.make_context(path[-1], list(words))
    return " ".join(path)


@pytest.fixture(autouse=True)
def any_file(monkeypatch: pytest.MonkeyPatch) -> None:
    """Files and folders of examples need not be there."""
    monkeypatch.setattr(click.Path, "convert", lambda self, value, *_: value)


@pytest.mark.parametrize("path", ALL)
def test_every_command_has_examples_that_it_takes(path: str) -> None:
    """Values, ranges and required arguments included; a group shows commands below it."""
    found = [taken(words) for words in argvs(shown(ALL[path]))]
    mine = [one for one in found if one == path or one.startswith(f"{path} ")]
    assert mine, f"{path} --help has no example of it"


@pytest.mark.parametrize(
    "words", ["replica ls --jsn", "image build --format iso", "image import a.qcow2", "nothing"]
)
def test_a_wrong_example_is_found(words: str) -> None:
    """An option that is not there, a value that is not allowed, an argument that lacks, no such command."""
    with pytest.raises(click.UsageError):
        taken(words.split())


@pytest.mark.parametrize(
    ("line", "read"),
    [
        ("  osgym replica ls        what runs", [["replica", "ls"]]),
        ("  OSGYM_TOKEN=x osgym replica ls | jq '.a | .b'", [["replica", "ls"]]),
        ("  osgym fleet run -- 'df | tail'", [["fleet", "run", "--", "df | tail"]]),
        ("  osgym fleet plan \\\n      --json  # all of it", [["fleet", "plan", "--json"]]),
        ("  osgym host serve & osgym replica ls > rows", [["host", "serve"], ["replica", "ls"]]),
        ("  What's the cost?", []),
    ],
)
def test_examples_are_read_as_a_shell_does(line: str, read: list[list[str]]) -> None:
    """Remarks, variables, pipes, quotes, comments and lines that go on."""
    assert list(argvs(line)) == read
