"""Checks of Calc's tasks on workbooks made here: other right ends earn 1, what else was changed earns 0."""

from __future__ import annotations

import base64
import io
from collections.abc import Callable
from typing import Any

import openpyxl
import pytest
from openpyxl.comments import Comment
from openpyxl.styles import Alignment, Font, PatternFill
from openpyxl.worksheet.formula import ArrayFormula

from osgym_host.tasks.evaluator.inputs import InputFile, Unreadable
from osgym_host.tasks.evaluator.registry import METRICS
from osgym_osworld.metrics.formula_functions import Failed, combine
from osgym_osworld.metrics.formula_parser import MAX_CHARS, UnsupportedFormula, parse
from osgym_osworld.metrics.formulas import check_formulas
from osgym_osworld.metrics.workbook_kept import check_workbook_kept
from osgym_tasks import FAMILIES

Change = Callable[[Any], object]
ROWS = [("x", "tea", 10, 3), ("y", "rice", 11, 23), ("z", "tea", 12, 43), ("w", "ink", 13, 63)]
GOODS = [("Item", "Price"), ("ink", 5), ("rice", 7), ("tea", 9)]
TOTAL = "=SUM(C2:C5)"
OF_TEA = '=SUMIF(B2:B5,"tea",C2:C5)'


def book(change: Change | None = None) -> bytes:
    """A workbook of two sheets, changed."""
    made = openpyxl.Workbook()
    made.remove(made.worksheets[0])
    data, goods = made.create_sheet("Data"), made.create_sheet("Goods")
    data.append(["Name", "Item", "A", "B"])
    for row in ROWS:
        data.append(list(row))
    for good in GOODS:
        goods.append(list(good))
    if change is not None:
        change(made)
    return saved(made)


def saved(made: Any) -> bytes:
    """A workbook as a file."""
    out = io.BytesIO()
    made.save(out)
    return out.getvalue()


def given(data: bytes, role: str = "result") -> InputFile:
    """A file as a metric gets it."""
    return InputFile(-1, "book.xlsx", role, data)


def computes(cell: str, formula: Any, stated: str) -> bool:
    """Whether `check_formulas` takes a formula for the stated one."""
    made = book(lambda b: b["Data"].__setitem__(cell, formula))
    return check_formulas(given(made), {"cells": {f"Data!{cell}": stated}}).score == 1.0


@pytest.mark.parametrize(
    ("formula", "stated"),
    [
        *((formula, TOTAL) for formula in (
            "=C2+C3+C4+C5", "=SUM(C:C)", "=SUM($C$2:C$5)", "=SUMPRODUCT(C2:C5)", "=SUBTOTAL(109,C2:C5)",
            "=SUM(C2,C3:C5)", "=-(-SUM(C2:C5))", "=AVERAGE(C2:C5)*COUNT(C2:C5)", "=SUM(C2:C5)%*100",
            "=ROUND(SUM(C2:C5),2)", "=SUM(Data!C2:C5)", "=SUM('Data'!C2:C5)", "=DSUM(C2:C5)",
            "=IF(TRUE(),SUM(C2:C5),0)", "=SUM(C2:C5)^1",
        )),
        *((formula, OF_TEA) for formula in (
            '=SUMIFS(C2:C5,B2:B5,"tea")', '=SUMPRODUCT((B2:B5="tea")*C2:C5)', "=C2+C4",
            "=SUMIF(B2:B5,B2,C2:C5)",
            '=SUMPRODUCT(--(B2:B5="tea"),C2:C5)', '=SUMIF(B2:B5,"t*",C2:C5)',
            ArrayFormula("F2", '=SUM(IF(B2:B5="tea",C2:C5))'),
        )),
    ],
)  # fmt: skip
def test_formulas_that_compute_the_same_count(formula: Any, stated: str) -> None:
    """Whatever they are, also where only their references can be followed."""
    assert computes("F2", formula, stated)


@pytest.mark.parametrize(
    "formula",
    [
        *("46", 46, "=46", "=SUM(46)", "=46+0*C2", "=SUM(D2:D5)", "=SUM(C2:C4)", "=IF(SUM(C2:C5)=46,46,46)"),
        *("=DSUM(C2:C4)", "=CEILING(46,SUM(C2:C5))", "=SUM(C2:C5)/0", "=F2", "=SUM(C2:C5", "=[1]Data!C2"),
    ],
)
def test_a_result_written_as_a_formula_does_not_count(formula: Any) -> None:
    """Nor a formula over other cells, over itself, or one that cannot be read."""
    assert not computes("F2", formula, TOTAL)


@pytest.mark.parametrize(
    "formula",
    [
        "=VLOOKUP(B{},Goods!$A$1:$B$4,2,FALSE())",
        "=INDEX(Goods!$B$2:$B$4,MATCH(B{},Goods!$A$2:$A$4,0))",
        "=LOOKUP(B{},Goods!A$2:A$4,Goods!B$2:B$4)",
        "=VLOOKUP(B{},Goods!A:B,2)",
        "=VLOOKUP(B{},Goods!$A$1:$B$4,2,)",
        "=IFERROR(VLOOKUP(B{},Goods!$A$1:$B$4,2,0),0)",
        "=_xlfn.XLOOKUP(B{},Goods!A:A,Goods!B:B)",
        "=SUMIF(Goods!$A$2:$A$4,B{},Goods!$B$2:$B$4)",
    ],
)
def test_lookups_count_in_every_row(formula: str) -> None:
    """With the stated formula moved from row to row; one row with a number does not count."""
    stated = {"cells": {"Data!F2:F5": "=VLOOKUP(B2,Goods!$A$2:$B$4,2,0)"}}

    def fill(made: Any) -> None:
        for row in range(2, 6):
            made["Data"][f"F{row}"] = formula.format(row)

    def cheat(made: Any) -> None:
        fill(made)
        made["Data"]["F5"] = "=5"

    assert check_formulas(given(book(fill)), stated).score == 1.0
    assert check_formulas(given(book(cheat)), stated).score == 0.0


def test_a_lost_sheet_is_a_wrong_result() -> None:
    """Of a stated formula over another sheet: the task is right where that sheet is kept."""

    def act(made: Any) -> None:
        made["Data"]["F2"] = "=VLOOKUP(B2,Goods!$A$2:$B$4,2,0)"
        made.remove(made["Goods"])

    stated = {"cells": {"Data!F2": "=VLOOKUP(B2,Goods!$A$2:$B$4,2,0)"}}
    assert check_formulas(given(book(act)), stated).score == 0.0


def test_one_array_formula_fills_its_area() -> None:
    """Its cells have a formula each; beyond its area they have none."""
    products = {"cells": {"Data!F2:F5": "=C2*D2"}}
    for area, score in (("F2:F5", 1.0), ("F2:F4", 0.0)):
        made = book(lambda b, a=area: b["Data"].__setitem__("F2", ArrayFormula(a, "=C2:C5*D2:D5")))
        assert check_formulas(given(made), products).score == score
    lookup = ArrayFormula("F2:F5", "=VLOOKUP(B2:B5,Goods!A1:B4,2,0)")
    made = book(lambda b: b["Data"].__setitem__("F2", lookup))
    stated = {"cells": {"Data!F2:F5": "=VLOOKUP(B2,Goods!$A$2:$B$4,2,0)"}}
    assert check_formulas(given(made), stated).score == 1.0


def test_hostile_formulas_end() -> None:
    """Deep, long, circular and huge ones are read to a bound."""
    for text in ("=" + "(" * 200 + "1" + ")" * 200, "=" + "-" * 200 + "1", "=1" + "+1" * MAX_CHARS):
        with pytest.raises(UnsupportedFormula):
            parse(text)
    assert combine("^", (10.0, 1e6)) == combine("/", (1.0, 0.0)) == Failed()

    def circle(made: Any) -> None:
        made["Data"]["F2"], made["Data"]["F3"] = "=F3", "=F2"

    assert check_formulas(given(book(circle)), {"cells": {"Data!F2": TOTAL}}).score == 0.0
    for wrong in ({"F2": TOTAL}, {"Data!F2": "=DSUM(C2)"}, {"Data!F1:F9999": TOTAL}):
        with pytest.raises(Unreadable):
            check_formulas(given(book(lambda b: b["Data"].__setitem__("F2", TOTAL))), {"cells": wrong})


def styles(**style: Any) -> Change:
    """Gives all cells of the first sheet a style."""

    def act(made: Any) -> None:
        for cell in (cell for row in made["Data"].iter_rows() for cell in row):
            for name, value in style.items():
                setattr(cell, name, value)

    return act


@pytest.mark.parametrize(
    "change",
    [
        styles(font=Font(name="Calibri", sz=11, b=True), alignment=Alignment(horizontal="center")),
        styles(font=Font(name="Calibri", sz=11, color="FFFFFF")),
        styles(font=Font(name="Calibri", sz=4)),
        styles(fill=PatternFill("solid", fgColor="000000")),
        styles(number_format=";;;"),
        lambda made: made.create_sheet("More"),
        lambda made: made.move_sheet("Goods", -1),
        lambda made: made.remove(made["Goods"]),
        lambda made: setattr(made["Goods"], "sheet_state", "hidden"),
        lambda made: setattr(made["Data"].row_dimensions[3], "hidden", True),
        lambda made: setattr(made["Data"].column_dimensions["B"], "width", 0.1),
        lambda made: made["Data"].merge_cells("A2:A3"),
        lambda made: setattr(made["Data"], "freeze_panes", "B2"),
        lambda made: setattr(made["Data"].protection, "sheet", True),
    ],
)
def test_the_look_of_a_workbook_is_compared(change: Change) -> None:
    """Fonts, fills, sheets, rows and columns that are hidden, merged cells."""
    assert check_workbook_kept(given(book(change)), given(book(), "expected")).score == 0.0


def test_what_a_task_may_change_is_no_harm() -> None:
    """The cells it names, as long as they can be read; number formats, names and states of sheets."""
    before = given(book(), "expected")

    def result(**font: Any) -> InputFile:
        def act(made: Any) -> None:
            cell = made["Data"]["F2"]
            cell.value, cell.font, cell.number_format = 46, Font(name="Calibri", **font), "0.00"

        return given(book(act))

    assert check_workbook_kept(given(book()), before).score == 1.0
    free = ["Data!F2"]
    assert check_workbook_kept(result(b=True, sz=12), before, may_change=free).score == 1.0
    assert check_workbook_kept(result(b=True, sz=12), before).score == 0.0
    filled = given(book(lambda made: made["Data"].cell(40, 9, "stray")))
    assert check_workbook_kept(filled, before).score == 0.0
    assert check_workbook_kept(filled, before, may_change=["Data!I40"]).score == 1.0
    assert check_workbook_kept(result(sz=4), before, may_change=free).score == 0.0
    assert check_workbook_kept(result(sz=11, color="FFFFFF"), before, may_change=free).score == 0.0
    noted = given(book(lambda made: setattr(made["Data"]["F2"], "comment", Comment("Check this.", "a"))))
    assert check_workbook_kept(noted, before, may_change=free).score == 0.0
    formatted = given(book(styles(number_format="0.00%")))
    assert check_workbook_kept(formatted, before, may_format=["Data!A1:D5"]).score == 1.0

    def rename(made: Any) -> None:
        made["Goods"].title, made["Goods" if "Goods" in made else "New"].sheet_state = "New", "hidden"

    options: dict[str, Any] = {"renamed": {"Goods": "New"}, "hidden": ["New"]}
    assert check_workbook_kept(given(book(rename)), before, **options).score == 1.0
    frozen = given(book(lambda made: setattr(made["Data"], "freeze_panes", "B2")))
    assert check_workbook_kept(frozen, before, may_freeze=True).score == 1.0
    with pytest.raises(Unreadable):
        check_workbook_kept(given(book()), before, may_change=["F2"])


def looks_kept(name: str, change: Change) -> float:
    """The score that a family's check of the look gives its initial workbook, changed."""
    task = FAMILIES[name].make(0, 1).task
    before = next(step["parameters"]["files"] for step in task["config"] if step["type"] == "upload_file")
    data = base64.b64decode(before[0]["data_base64"])
    made = openpyxl.load_workbook(io.BytesIO(data))
    change(made)
    judge = task["evaluator"]
    options = judge["options"][judge["func"].index("check_workbook_kept")]
    return check_workbook_kept(given(saved(made)), given(data, "expected"), **options).score


@pytest.mark.parametrize(
    ("code", "reward"),
    [
        *((code, 1.0) for code in ("0.00E+00", "0.00E+000", "##0.00E+00")),
        *((code, 0.0) for code in ("0.0E+00", "0.00", "General", "0.00E+0000")),
    ],
)
def test_scientific_notation_has_more_than_one_code(code: str, reward: float) -> None:
    """That of the shortcut, and the first one that the dialog offers."""
    assert formats("scientific", code) == reward


@pytest.mark.parametrize(
    ("code", "reward"),
    [
        *((code, 1.0) for code in (
            "[$$-409]#,##0.00", "[$$-409]#,##0.00;[RED]-[$$-409]#,##0.00", "[$USD] #,##0.00", '"$"#,##0.00',
            r"[$USD]\ #,##0.00", "#,##0.00 [$USD]", "[$$-en-US]#,##0.00",
        )),
        *((code, 0.0) for code in ("[$EUR] #,##0.00", "[$$-409]#,##0", "#,##0.00", "[$USD] #,##0.000")),
    ],
)  # fmt: skip
def test_dollars_have_more_than_one_code(code: str, reward: float) -> None:
    """Those with the sign and those with the name of the currency."""
    assert formats("dollars", code) == reward


def formats(word: str, code: str) -> float:
    """The reward of `calc.number_format` for a code, on the first seed that asks for such a format."""
    name = "calc.number_format"
    seed = next(s for s in range(99) if word in FAMILIES[name].make(s, 1).named["jobs"])
    task = FAMILIES[name].make(seed, 1).task
    jobs = FAMILIES[name].make(seed, 1).named["jobs"]
    area = jobs.partition(" ")[0]
    files = next(s["parameters"]["files"] for s in task["config"] if s["type"] == "upload_file")
    made = openpyxl.load_workbook(io.BytesIO(base64.b64decode(files[0]["data_base64"])))
    for (cell,) in made["Data"][area]:
        cell.number_format = code
    options = task["evaluator"]["options"][task["evaluator"]["func"].index("compare_table")]
    score = METRICS["compare_table"].function(given(saved(made)), None, **options)
    return float(score.score)


@pytest.mark.parametrize("name", ["aggregate", "clean", "fill", "freeze", "lookup", "number_format", "sort"])
def test_families_of_calc_compare_the_look(name: str) -> None:
    """A bold font everywhere, white texts, another sheet; unchanged it is right."""
    assert looks_kept(f"calc.{name}", lambda made: None) == 1.0
    for change in (styles_of_all(Font(b=True)), styles_of_all(Font(color="FFFFFF")), another_sheet):
        assert looks_kept(f"calc.{name}", change) == 0.0


def another_sheet(made: Any) -> None:
    """Adds a sheet."""
    made.create_sheet("More")


def styles_of_all(font: Font) -> Change:
    """Gives all cells of all sheets a font."""

    def act(made: Any) -> None:
        for cell in (cell for sheet in made for row in sheet.iter_rows() for cell in row):
            cell.font = font

    return act
