"""List of published tasks whose check is wrong: what is told apart, and what a reader sees of it."""

from __future__ import annotations

from dataclasses import replace

from benchmarks.osworld_certificates import page, wrong_of

from osgym_certify.certificate import Certificate, Gui, Kind, Trial

GOLDEN = Trial(Kind.GOLDEN, "oracle 1", "", 1.0, 1.0)
BOOK, SETTINGS = "/home/user/a.xlsx", "/home/user/.config/app/rc"
FAULTY = Certificate(
    "calc/one", "d" * 64, "Add\nit up.", "e" * 64, "0.2.0", 0, "2026-01-01", 61.4, 3, Gui.FREE,
    (
        GOLDEN,
        Trial(Kind.MUTATION, "workbook: all cells bold", BOOK, 0.0, 1.0),
        Trial(Kind.MUTATION, "workbook: sheet added", BOOK, 0.0, 0.0),
        Trial(Kind.EQUIVALENT, "saved again by the office suite", BOOK, 1.0, 0.0),
        Trial(Kind.MUTATION, "other file: removed", "/home/user/b.txt", 0.0, 1.0),
        Trial(Kind.MUTATION, "text: one line doubled", SETTINGS, 0.0, 1.0),
        Trial(Kind.MUTATION, "file: removed", SETTINGS, 0.0, 1.0),
        Trial(Kind.MUTATION, "text: one digit changed", SETTINGS, 0.0, 0.0),
    ),
)  # fmt: skip


def test_wrong_content_is_told_from_damage_beside_the_task() -> None:
    """Other lines of a program's settings are beside it; the loss of the file that has them is not."""
    wrong = wrong_of(FAULTY)
    assert [trial.end for trial in wrong.paid] == ["workbook: all cells bold", "file: removed"]
    assert [trial.end for trial in wrong.refused] == ["saved again by the office suite"]
    assert (wrong.beside, wrong.tried) == (2, 3)


def test_a_page_lists_faulty_tasks_and_those_without_a_verdict() -> None:
    """A certified task is only counted."""
    certified = replace(FAULTY, task="calc/two", trials=(GOLDEN,))
    unproven = replace(FAULTY, task="calc/three", trials=(), failure="")
    lines = page([certified, FAULTY, unproven], 4).splitlines()
    assert lines[2].startswith(
        "3 of 4 tasks that are infeasible or have an oracle: 1 certified, 1 faulty, 1 unproven."
    )
    assert "| calc/one | 2 | 1 | 2 of 3 |" in lines
    assert "> Add it up." in lines
    assert f"- Paid, `{BOOK}`: workbook: all cells bold." in lines
    assert f"- Refused, `{BOOK}`: saved again by the office suite." in lines
    assert "- calc/three: unproven." in [line.strip() for line in lines]
    assert not any("calc/two" in line for line in lines)
