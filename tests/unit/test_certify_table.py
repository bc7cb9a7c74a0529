"""Certificates of what is shipped: the table beside the tasks is that of today's content."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from click.testing import CliRunner

from osgym_certify.certificate import Certificate, Gui, Kind, Trial
from osgym_certify.cli import certificates
from osgym_certify.record import append
from osgym_certify.subject import read_subject
from osgym_certify.table import DIGEST_CHARS, certificates_table
from osgym_cli.evals.jobs import find_task_files
from osgym_tasks import FAMILIES

TASKS = Path(__file__).parents[2] / "tasks"
ROW = re.compile(r"^\| (\S+/\S+) \| (\w+) \|.*\| `([0-9a-f]+)` \|$", re.MULTILINE)
INSTANCE = re.compile(r"(?P<family>[a-z_.]+)/[a-z_.-]+-v\d+-l(?P<level>\d)-s(?P<seed>\d+)")
TABLE = {
    name: (verdict, digest)
    for name, verdict, digest in ROW.findall((TASKS / "CERTIFICATES.md").read_text(encoding="utf-8"))
}
GENERATED = {found["family"]: found for name in TABLE if (found := INSTANCE.fullmatch(name))}
SHIPPED = {"/".join(path.with_suffix("").parts[-2:]): path for path in find_task_files([str(TASKS)])}


@pytest.mark.parametrize("name", sorted(SHIPPED))
def test_shipped_tasks_are_certified_as_they_are(name: str) -> None:
    """A changed task needs a new certificate: `make certify`."""
    assert TABLE.get(name) == ("certified", read_subject(SHIPPED[name], name).digest[:DIGEST_CHARS])


def test_each_family_has_a_certificate() -> None:
    """A family without one needs `make certify`."""
    assert GENERATED.keys() == FAMILIES.keys()


@pytest.mark.parametrize("family", sorted(FAMILIES))
def test_an_instance_of_each_family_is_certified(family: str, tmp_path: Path) -> None:
    """As the family makes it today."""
    found = GENERATED[family]
    path = FAMILIES[family].make(int(found["seed"]), int(found["level"])).write(tmp_path)
    digest = read_subject(path, path.stem).digest[:DIGEST_CHARS]
    assert TABLE[found.string] == ("certified", digest)


def test_a_table_has_figures_of_each_task_and_of_all(tmp_path: Path) -> None:
    """What a name holds cannot end a cell."""
    trials = (
        Trial(Kind.UNTOUCHED, "nothing done", "", 0.0, 0.0),
        Trial(Kind.GOLDEN, "oracle 1", "", 1.0, 1.0),
        Trial(Kind.MUTATION, "emptied", "/home/user/a", 0.0, 1.0),
    )
    one = Certificate("a|b/c", "d" * 64, "Do.", "e" * 64, "0.2.0", 0, "2026-01-01", 61.4, 3, Gui.FREE, trials)
    lines = certificates_table([one, one]).splitlines()
    assert (
        lines[4]
        == f"| a/b/c | faulty | 0 / 1 | – | 1 / 1 | 0 / 1 |  | free | 3 | 61 | `{'d' * DIGEST_CHARS}` |"
    )
    assert lines[6].startswith("| all | 0 of 2 certified | 0 / 2 | – | 2 / 2 | 0 / 2 |")
    record, table = tmp_path / "certificates.jsonl", tmp_path / "made" / "table.md"
    append(record, one)
    assert CliRunner().invoke(certificates, [str(record), "--table", str(table)]).exit_code == 3
    assert table.read_text() == certificates_table([one])
