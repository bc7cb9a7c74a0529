"""docs/security.md and docs/design/threats.md: every threat has a mechanism, and a test that exists."""

from __future__ import annotations

import ast
import re
from pathlib import Path

import pytest

from osgym_host.core.loss import LossEvidence, whose_loss
from osgym_host.core.reasons import Reason
from osgym_protocol.codes import ErrorClass

ROOT = Path(__file__).resolve().parents[2]
SECURITY = (ROOT / "docs" / "security.md").read_text("utf-8")
THREATS = (ROOT / "docs" / "design" / "threats.md").read_text("utf-8")
PROSE = ("Threat model", "Who ends an episode", "What root inside can do", "What is not defended")
TABLED = (
    "Guests on `local`",
    "Guests on `qemu`",
    "Tasks and policies against a score",
    "Clients, files and frames",
)
WORDS = {ErrorClass.POLICY: "policy", ErrorClass.INFRA: "host", ErrorClass.TASK: "task", None: "nobody"}
TEST = re.compile(r"`(tests/[\w/]+\.py)::(\w+)`")


def sections(text: str) -> dict[str, str]:
    """Each section of the second level by its heading."""
    parts = re.split(r"^## (.+)$", text, flags=re.MULTILINE)
    return dict(zip(parts[1::2], parts[2::2], strict=True))


def rows(section: str) -> list[list[str]]:
    """The cells of a section's table `threat | mechanism | test`, without its head."""
    lines = [line for line in section.splitlines() if line.startswith("|")]
    assert lines[:2] == ["| threat | mechanism | test |", "|---|---|---|"]
    return [[cell.strip() for cell in re.split(r"(?<!\\)\|", line.strip("|"))] for line in lines[2:]]


def names_of(path: str) -> set[str]:
    """The tests that a file defines."""
    tree = ast.parse((ROOT / path).read_text("utf-8"))
    return {
        node.name
        for node in ast.walk(tree)
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef) and node.name.startswith("test_")
    }


def test_the_sections_are_there() -> None:
    """In this order; others may follow in between."""
    assert [name for name in sections(SECURITY) if name in PROSE] == list(PROSE)
    assert list(sections(THREATS)) == [*TABLED, "Who ends an episode"]


def test_every_threat_names_a_mechanism_and_a_test() -> None:
    """A row without a test is a promise that nobody keeps."""
    bad = [
        row
        for name in TABLED
        for row in rows(sections(THREATS)[name])
        if len(row) != 3 or not row[0] or not row[1] or not TEST.search(row[2])
    ]
    assert bad == []
    assert all(rows(sections(THREATS)[name]) for name in TABLED)


@pytest.mark.parametrize("text", [SECURITY, THREATS], ids=["security", "threats"])
def test_every_named_test_exists(text: str) -> None:
    """Anywhere in the documents, in the tables or in the text."""
    named = TEST.findall(text)
    missing = [f"{path}::{name}" for path, name in named if name not in names_of(path)]
    assert missing == []
    assert len(named) > (10 if text is THREATS else 0)


def test_who_ends_an_episode_names_every_reason_and_a_test() -> None:
    """The table has each reason, with the party at fault that `core.loss` returns."""
    lines = [line for line in sections(THREATS)["Who ends an episode"].splitlines() if line.startswith("|")]
    assert lines[:2] == ["| evidence | whose | test |", "|---|---|---|"]
    cells = [[cell.strip() for cell in line.strip("|").split("|")] for line in lines[2:]]
    assert [row for row in cells if len(row) != 3 or not TEST.search(row[2])] == []
    for reason in Reason:
        whose = {row[1] for row in cells if f"`{reason.value}`" in row[0]}
        assert whose == {WORDS[whose_loss(LossEvidence(reason, policy_acted=True))]}, reason


def test_the_causes_of_each_party_are_those_of_the_code() -> None:
    """The short table on the page about security has each reason once, at the right party."""
    section = sections(SECURITY)["Who ends an episode"]
    lines = [line.strip("|").split("|") for line in section.splitlines() if line.startswith("|")][2:]
    assert [line[0].split()[0].rstrip(":") for line in lines] == list(WORDS.values())
    for reason in Reason:
        whose = [line[0].split()[0].rstrip(":") for line in lines if f"`{reason.value}`" in line[2]]
        assert whose == [WORDS[whose_loss(LossEvidence(reason, policy_acted=True))]], reason
