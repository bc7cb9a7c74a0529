"""Documents against the code: commands, options, make targets, links, and quoted messages are real."""

from __future__ import annotations

import ast
import functools
import re
import shlex
import subprocess
from pathlib import Path

import click
import pytest

from osgym_cli.main import main as osgym
from osgym_host.core.plan import Blocked
from osgym_host.core.reasons import Reason, consequence
from osgym_protocol.actions import Op
from osgym_protocol.codes import ErrorCode

ROOT = Path(__file__).resolve().parents[2]
DOCUMENTS = sorted(
    path
    for name in subprocess.run(
        ["git", "ls-files", "*.md"], cwd=ROOT, capture_output=True, text=True, check=False
    ).stdout.split()
    or ["README.md", "ARCHITECTURE.md", *(f"docs/{path.name}" for path in ROOT.glob("docs/*.md"))]
    if (path := ROOT / name).is_file() and name != "CHANGELOG.md"
)
TROUBLES = ROOT / "docs" / "troubleshooting.md"
NAMES = [str(path.relative_to(ROOT)) for path in DOCUMENTS]


def shown(path: Path) -> list[str]:
    """Lines of shell blocks and indented blocks, and what stands in backticks."""
    text = path.read_text("utf-8").replace("\\\n", " ")
    fences = re.findall(r"^ *```(?:bash|sh|console)?\n(.*?)^ *```$", text, re.DOTALL | re.MULTILINE)
    rest = re.sub(r"^ *```.*?^ *```$", "", text, flags=re.DOTALL | re.MULTILINE)
    lines = [line for fence in fences for line in fence.splitlines()]
    lines += [line.strip() for line in rest.splitlines() if line.startswith("    ")]
    return lines + re.findall(r"`([^`\n]+)`", rest)


def argvs(path: Path) -> list[list[str]]:
    """Commands as a shell takes them; pipes, `&&` and redirections end one; variables are left out."""
    found = []
    for line in shown(path):
        for part in re.split(r"&&|\||;|\$\(|[<>]", line):
            try:
                words = shlex.split(part, comments=True)
            except ValueError:
                words = part.split()
            while words and (words[0] in ("$", "sudo") or re.fullmatch(r"\w+=.*", words[0])):
                words.pop(0)
            if words:
                found.append(words)
    return found


def documented(name: str) -> list[tuple[str, list[str]]]:
    """Every use of a program in all documents."""
    return [
        (str(path.relative_to(ROOT)), words)
        for path in DOCUMENTS
        for words in argvs(path)
        if words[0].removeprefix(".venv/bin/") == name and len(words) > 1
    ]


def test_there_are_commands_to_check() -> None:
    """The documents are found and read."""
    assert len(documented("osgym")) > 20
    assert len(documented("make")) > 3


def test_every_osgym_command_and_option_exists() -> None:
    """Against click's own tree; nothing is run."""
    wrong = []
    for document, words in documented("osgym"):
        command: click.Command = osgym
        rest = words[1:]
        while isinstance(command, click.Group) and rest and re.fullmatch(r"[a-z][a-z-]*", rest[0]):
            found = command.get_command(click.Context(command), rest[0])
            if found is None:
                wrong.append(f"{document}: {' '.join(words)}: no command {rest[0]}")
                break
            command, rest = found, rest[1:]
        else:
            known = {o for p in command.params for o in (*p.opts, *p.secondary_opts)} | {
                "--help",
                "--version",
            }
            ours = rest[: rest.index("--")] if "--" in rest else rest  # after it another command's begin
            options = [w.split("=")[0].rstrip(",.:)") for w in ours if w.startswith("--")]
            wrong += [f"{document}: {' '.join(words)}: {o}" for o in options if o not in known]
    assert wrong == []


def test_every_make_target_exists() -> None:
    """Against the Makefile."""
    targets = set(re.findall(r"^([\w.-]+):", (ROOT / "Makefile").read_text(), re.MULTILINE))
    asked = [(document, words[1]) for document, words in documented("make") if words[1].isascii()]
    assert [(d, t) for d, t in asked if "=" not in t and not t.startswith("-") and t not in targets] == []


@pytest.mark.parametrize("name", NAMES)
def test_scripts_and_links_lead_somewhere(name: str) -> None:
    """`./script` relative to the document or the repository, and the targets of links."""
    path = ROOT / name
    scripts = [words[0] for words in argvs(path) if re.fullmatch(r"\./[\w./-]+", words[0])]
    links = re.findall(r"\]\(([^)#:\s]+)(?:#[^)]*)?\)", path.read_text("utf-8"))
    homes = (path.parent, ROOT)
    assert [s for s in scripts if not any((home / s).exists() for home in homes)] == []
    assert [link for link in links if not (path.parent / link).exists()] == []


MADE = re.compile(
    r"\bfirst\.py|\bfleet\.json|\baddition\.toml|\bout/|NAME|some_task"
    r"|\b(manifest|calibration|episode|evaluation|run|sites)\.json"
)
"""Files in the documents that commands and users make."""
OF_OTHERS = {
    "docs/import.md": {
        "check.sh", "env.json", "instruction.md", "meta.json", "setup.sh", "task.json", "verifier.py",
        "verifiers/APP/APP.py",
    }
}  # fmt: skip
"""Files of other projects' task sets, by the document that describes their layout."""
DISTRIBUTIONS = {
    name.name: name
    for folder in (
        "protocol",
        "sdk",
        "guest_agent",
        "host_agent",
        "qemu",
        "cli",
        "infra",
        "osworld",
        "certify",
        "tasks/families",
        "examples/plugins/shelf_provider",
    )
    for name in (ROOT / folder).glob("osgym_*")
    if (name / "__init__.py").is_file()
}


@pytest.mark.parametrize("name", [*NAMES, "CHANGELOG.md"])
def test_every_named_file_exists(name: str) -> None:
    """From the document's folder, the repository, a distribution or its package; a bare name anywhere."""
    text = (ROOT / name).read_text("utf-8")
    packages = [*DISTRIBUTIONS.values(), *(path.parent for path in DISTRIBUTIONS.values())]
    homes = ((ROOT / name).parent, ROOT, *packages)
    named = set(
        re.findall(r"(?<![\w/.~$<{@-])((?:\.\./)*\w[\w-]*(?:/[\w.-]+)*\.(?:py|toml|sh|json|md|c))\b", text)
    )
    missing = [
        path
        for path in named
        if not MADE.search(path)
        and path not in OF_OTHERS.get(name, ())
        and not any((home / path).exists() for home in homes)
        and ("/" in path or not any(any(home.rglob(path)) for home in homes[:-1] if home != ROOT))
    ]
    assert missing == []


@pytest.mark.parametrize("name", [*NAMES, "CHANGELOG.md"])
def test_every_named_module_exists(name: str) -> None:
    """`osgym_host.notices` is a module, `osgym_sdk.Client` a name that its parent defines or imports."""
    wrong = []
    for dotted in set(re.findall(r"\bosgym_\w+(?:\.\w+)+", (ROOT / name).read_text("utf-8"))):
        package, *rest = dotted.split(".")
        examples = (ROOT / "examples" / "plugins").glob(f"*/{package}")
        path = DISTRIBUTIONS.get(package) or next(examples, ROOT / "missing")
        while rest and (path / rest[0]).is_dir():
            path /= rest.pop(0)
        if rest and (path / f"{rest[0]}.py").is_file():
            path /= f"{rest.pop(0)}.py"
        source = path if path.suffix == ".py" else path / "__init__.py"
        if not source.is_file() or not all(re.search(rf"\b{part}\b", source.read_text()) for part in rest):
            wrong.append(dotted)
    assert wrong == []


@functools.cache
def strings() -> str:
    """Every string of the product, literal parts of f-strings one by one."""
    found: list[str] = []
    for package in (
        "host_agent/osgym_host",
        "qemu/osgym_qemu",
        "cli/osgym_cli",
        "sdk/osgym_sdk",
        "protocol/osgym_protocol",
        "infra/osgym_infra",
    ):
        for file in sorted((ROOT / package).rglob("*.py")):
            for node in ast.walk(ast.parse(file.read_text("utf-8"))):
                if isinstance(node, ast.Constant) and isinstance(node.value, str):
                    found.append(node.value)
    return "\0".join(found)


def headings() -> list[str]:
    """The messages that the troubleshooting page explains."""
    return re.findall(r"^### `(.*)`$", TROUBLES.read_text("utf-8"), re.MULTILINE)


@pytest.mark.parametrize("message", headings())
def test_every_message_that_is_explained_still_stands_in_the_code(message: str) -> None:
    """Each part between what differs."""
    parts = [part for part in message.replace("\\`", "`").split("…") if part.strip()]
    assert parts
    assert [part for part in parts if part not in strings()] == []


def test_every_cause_of_a_lost_episode_is_explained() -> None:
    """And what keeps a pool from making replicas."""
    text = TROUBLES.read_text("utf-8")
    causes = {reason for reason in Reason if consequence(reason).code == ErrorCode.EPISODE_LOST}
    assert [cause.value for cause in causes if f"`{cause.value}`" not in text] == []
    assert [blocked.value for blocked in Blocked if f"`{blocked.value}`" not in text] == []


def test_every_code_of_an_error_is_in_the_protocol() -> None:
    """No more and no fewer."""
    table = (ROOT / "docs" / "protocol.md").read_text("utf-8").split("## Errors")[1]
    assert re.findall(r"^\| `(\w+)` \|", table, re.MULTILINE) == [code.value for code in ErrorCode]


def test_every_op_is_in_the_protocol() -> None:
    """And no other, but for the two that end an episode."""
    table = (ROOT / "docs" / "protocol.md").read_text("utf-8").split("## Internal actions")[1].split("##")[0]
    cells = re.findall(r"^\| (`[^|]*`) \|", table, re.MULTILINE)
    assert set(re.findall(r"`(\w+)`", " ".join(cells))) == {*map(str, Op), "done", "fail"}
