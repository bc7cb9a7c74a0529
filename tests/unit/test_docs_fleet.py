"""docs/fleet.md against the code: every key, command line, file, make target and example in it is real."""

from __future__ import annotations

import py_compile
import re
import shlex
from pathlib import Path

import click
import pytest
import yaml

from osgym_cli.main import main as osgym
from osgym_infra.catalogue.load import load
from osgym_infra.config.keys import KEYS
from osgym_infra.config.parse import parse
from osgym_infra.config.providers import ConfigKey, Provider, installed
from osgym_infra.fleet.blueprint import draw
from osgym_infra.workloads import profile as profiles

ROOT = Path(__file__).resolve().parents[2]
DOC = ROOT / "docs" / "fleet.md"
TEXT = DOC.read_text("utf-8")
FENCES = re.findall(r"^```(\w*)\n(.*?)^```$", TEXT, re.DOTALL | re.MULTILINE)
SPANS = re.findall(r"`([^`\n]+)`", re.sub(r"^```.*?^```$", "", TEXT, flags=re.DOTALL | re.MULTILINE))
FOLDERS = {path.name for path in ROOT.iterdir() if path.is_dir()} - {"out", ".venv", ".git"}


def blocks(kind: str) -> list[str]:
    """The fenced blocks of a language."""
    return [body for found, body in FENCES if found == kind]


def lines() -> list[str]:
    """Everything that is shown as a command: lines of shell blocks, and what stands in backticks."""
    shell = "\n".join(blocks("bash")).replace("\\\n", " ")
    return [line for line in shell.splitlines() if line] + SPANS


def words(line: str) -> list[str]:
    """As a shell takes them; `$(…)`, pipes and redirections end a command."""
    try:
        return shlex.split(line, comments=True)
    except ValueError:
        return line.split()


def commands() -> list[list[str]]:
    """Every `osgym …` in the document, as arguments."""
    found = []
    for line in lines():
        for part in re.split(r"&&|\||;|\$\(|>", line):
            argv = [word for word in words(part) if not re.fullmatch(r"[A-Z_]+=.*", word)]
            if argv[:1] in (["osgym"], [".venv/bin/osgym"]) and len(argv) > 1:
                found.append(argv[1:])
    return found


def key_table(keys: dict[str, ConfigKey]) -> str:
    """The table of all keys as it stands in the document."""
    rows = ["| key | default | for | meaning |", "|---|---|---|---|"]
    for name, key in keys.items():
        default = {"...": "required", "None": "", "()": "", "False": "false"}.get(
            "..." if key.default is ... else str(key.default), str(key.default)
        )
        where = "" if key.providers == frozenset(installed()) else ", ".join(sorted(key.providers))
        meaning = key.doc.replace("|", "\\|").replace("<", "&lt;")
        rows.append(f"| `{name}` | {f'`{default}`' if default else ''} | {where} | {meaning} |")
    return "\n".join(rows)


def test_every_key_in_it_exists_and_all_keys_are_in_it() -> None:
    """The table is what the code says; keys elsewhere in the text are known."""
    assert set(re.findall(r"osgym:([a-z0-9_]+)", TEXT)) <= KEYS.keys()
    table = key_table(KEYS)
    assert table in TEXT, f"docs/fleet.md has to hold this table:\n{table}"


@pytest.mark.parametrize("text", blocks("yaml"), ids=lambda text: text.split("provider: ")[1].split()[0])
def test_the_configurations_in_it_are_taken(text: str) -> None:
    """Each as it stands."""
    config = yaml.safe_load(text)["config"]
    ours = {name.removeprefix("osgym:"): value for name, value in config.items() if name.startswith("osgym:")}
    parse(ours)


@pytest.mark.parametrize("provider", installed())
def test_the_examples_are_what_the_page_shows(provider: Provider) -> None:
    """The file that is copied, and the first configuration of its kind on the page: the same, key by key."""
    shown = next(text for text in blocks("yaml") if f"osgym:provider: {provider}" in text)
    example = yaml.safe_load((ROOT / f"Pulumi.example-{provider}.yaml").read_text("utf-8"))
    assert example == yaml.safe_load(shown)
    assert f"cp Pulumi.example-{provider}.yaml" in TEXT
    config = {name.removeprefix("osgym:"): value for name, value in example["config"].items()}
    own = {name: value for name, value in config.items() if ":" not in name}
    read = parse(own, {name: value for name, value in config.items() if ":" in name})
    catalogue, _ = load(folder=Path("/nowhere")).in_usd({})
    assert draw(read, catalogue, profiles.chosen(read.profile, read.runtime)).capacity >= read.replicas


@pytest.mark.parametrize("argv", commands(), ids=" ".join)
def test_the_commands_in_it_exist(argv: list[str]) -> None:
    """Commands and options are known; nothing is run."""
    command: click.Command = osgym
    rest = list(argv)
    while isinstance(command, click.Group) and rest and not rest[0].startswith("-"):
        name = rest.pop(0)
        found = command.get_command(click.Context(command), name)
        assert found is not None, f"osgym {' '.join(argv)}: there is no command {name}"
        command = found
    known = {option for parameter in command.params for option in parameter.opts} | {"--help"}
    rest = rest[: rest.index("--")] if "--" in rest else rest  # after it another command begins
    unknown = [word for word in rest if word.startswith("--") and word.split("=")[0] not in known]
    assert not unknown, f"osgym {' '.join(argv)}: {unknown}"


def test_the_files_in_it_exist() -> None:
    """What looks like a path of this repository, and the targets of links."""
    seen = {word.strip("'\",()") for line in lines() for word in line.split()}
    ours = {word for word in seen if word.split("/")[0] in FOLDERS and "/" in word}
    ours |= {word for word in seen if re.fullmatch(r"Pulumi\.example-\w+\.yaml", word)}
    ours |= {f"docs/{link}" for link in re.findall(r"\]\(([^)#:]+)\)", TEXT)}
    assert {"tasks/mousepad/write-note.json", "Pulumi.example-ssh.yaml"} <= ours | set(
        re.findall(r"tasks/[\w/.-]+", TEXT)
    )
    assert [word for word in sorted(ours) if not (ROOT / word).exists()] == []


def test_no_page_sends_an_export_to_a_file() -> None:
    """The shell empties the file before it is known whether there is anything to write: `--out` does not."""
    pages = [ROOT / "README.md", *ROOT.glob("docs/**/*.md"), *ROOT.glob("*/README.md")]
    assert len(pages) > 10
    found = [(page.name, line) for page in pages for line in page.read_text("utf-8").splitlines()
             if re.search(r"osgym fleet export[^`|&]*[^-<]>", line)]  # fmt: skip
    assert found == []


def test_its_headings_are_where_its_links_lead() -> None:
    """Links inside the document."""
    headings = {
        re.sub(r"[^a-z0-9 -]", "", title.lower()).replace(" ", "-")
        for title in re.findall(r"^#+ (.*)$", re.sub(r"^```.*?^```$", "", TEXT, flags=re.S | re.M), re.M)
    }
    assert set(re.findall(r"\]\(#([^)]+)\)", TEXT)) <= headings


def test_the_make_targets_in_it_exist() -> None:
    """`make preview` and its kind."""
    makefile = (ROOT / "Makefile").read_text()
    targets = {argv[1] for line in lines() if (argv := words(line))[:1] == ["make"] and len(argv) > 1}
    assert "preview" in targets
    assert [name for name in targets if not re.search(rf"^{name}:", makefile, re.MULTILINE)] == []


def test_the_script_in_it_is_python(tmp_path: Path) -> None:
    """It is run for real elsewhere, in other words; here it compiles."""
    (script,) = blocks("python")
    (tmp_path / "script.py").write_text(script)
    py_compile.compile(str(tmp_path / "script.py"), str(tmp_path / "script.pyc"), doraise=True)
