"""Books and presentations in the place of those that OSWorld's tasks fetch, and those that its checks expect.

Made here, small, with what instruction and check speak of; see `tests/support/osworld_stand_ins.py`.
"""

from __future__ import annotations

import io
import json
from collections.abc import Callable, Iterable, Sequence
from typing import Any

import docx
import openpyxl
import pptx
from docx.enum.text import WD_COLOR_INDEX
from PIL import Image, ImageDraw
from pptx.dml.color import RGBColor
from pptx.util import Cm, Inches, Pt

Files = dict[str, bytes]
Row = Sequence[object]
TITLE_ONLY, TITLE_AND_TEXT, BLANK = 5, 1, 6
"""Layouts of python-pptx's own presentation."""
_rgb: Callable[[str], Any] = RGBColor.from_string
YELLOW, RED, ORANGE, BLACK = map(_rgb, ("FFFF00", "FF0000", "FF8000", "000000"))


def saved(document: Any) -> bytes:
    """The bytes of a document of python-docx, python-pptx or openpyxl."""
    target = io.BytesIO()
    document.save(target)
    return target.getvalue()


def picture(shade: int, kind: str = "JPEG") -> bytes:
    """A picture of 320×240, another one for each shade (degrees)."""
    image = Image.linear_gradient("L").resize((320, 240)).rotate(shade)
    target = io.BytesIO()
    Image.merge("RGB", (image, image.transpose(Image.Transpose.FLIP_LEFT_RIGHT), image)).save(target, kind)
    return target.getvalue()


def slides(count: int) -> Any:
    """A presentation with two texts on each slide."""
    made = pptx.Presentation()
    for number in range(1, count + 1):
        slide = made.slides.add_slide(made.slide_layouts[BLANK])
        for row in range(2):
            _text(slide, f"text {number}.{row}", top=1 + 2 * row)
    return made


def _text(slide: Any, *lines: str, top: float = 1) -> Any:
    """Add a box with a run for each line."""
    frame = slide.shapes.add_textbox(Inches(1), Inches(top), Inches(7), Inches(1)).text_frame
    for place, line in enumerate(lines):
        paragraph = frame.paragraphs[0] if place == 0 else frame.add_paragraph()
        run = paragraph.add_run()
        run.text, run.font.size = line, Pt(18)
    return frame


def _book(**sheets: Iterable[Row]) -> bytes:
    book = openpyxl.Workbook(write_only=True)
    for name, rows in sheets.items():
        sheet = book.create_sheet(name)
        for row in rows:
            sheet.append(list(row))
    return saved(book)


def _income() -> Files:
    months = {"January": (1200, 830.5), "February": (1350, 910), "March": (990.25, 640.25)}
    rows: list[Row] = [
        ["Month", "Revenue", "Total Expenses"],
        *([name, *both] for name, both in months.items()),
    ]
    sums = [sum(both[column] for both in months.values()) for column in (0, 1)]
    gold = _book(Sheet1=rows, Sheet2=[["Total Revenue", "Total Expenses"], sums])
    return {"NetIncome.xlsx": _book(Sheet1=rows), "2_NetIncome_gt1.xlsx": gold}


def _separators() -> Files:
    numbers = ["1.25", "20.5", "3.75", "410.125"]
    rows: list[Row] = [["Item", "Value"], *([f"item {n}", float(text)] for n, text in enumerate(numbers))]
    lines = ["Item,Value", *(f'item {n},"{text.replace(".", ",")}"' for n, text in enumerate(numbers))]
    name = "Set_Decimal_Separator_Dot"
    return {
        f"{name}.xlsx": _book(Sheet1=rows),
        f"{name}_gold_ru.xlsx": _book(Sheet1=rows),
        f"{name}_gold_ru.csv": ("\n".join(lines) + "\n").encode(),
    }


def _grades() -> Files:
    scale: list[Row] = [["Marks", "Grade"], [0, "F"], [50, "C"], [70, "B"], [85, "A"], ["-", "-"]]
    marks = {"Ada": (91, "A"), "Alan": (73, "B"), "Grace": (85, "A"), "Kurt": (49, "F"), "Emmy": (50, "C")}
    head = ["Student", "Marks", "Grade"]
    name = "Student_Grades_and_Remarks"
    return {
        f"{name}.xlsx": _book(Sheet1=[*scale, head, *([who, mark] for who, (mark, _) in marks.items())]),
        f"{name}_gold.xlsx": _book(Sheet1=[*scale, head, *([who, *both] for who, both in marks.items())]),
    }


def _bookkeeping() -> Files:
    """The sums on the receipts are those that the task's check has in it."""
    start: list[Row] = [
        ["Date", "Description", "Category", "Amount", "Balance"],
        ["day 1", "Start", "Income", 1000, 1000],
        *([f"day {day}", f"Purchase {day}", "Food", -35, 1000 - 35 * (day - 1)] for day in range(2, 8)),
    ]
    paid = [-186.93, -3670, -5.7, -154.06, -8.1]
    bought = ["Groceries", "Rent", "Transport", "Clothes", "Food"]
    rows: list[Row] = []
    balance: float = 1000 - 35 * 6
    for number, (amount, what) in enumerate(zip(paid, bought, strict=True)):
        balance = round(balance + amount, 2)
        rows.append([f"day {9 + number}", f"Receipt {number}", what, amount, balance])
    found = {
        "my_bookkeeping.xlsx": _book(Sheet1=start),
        "my_bookkeeping Gold.xlsx": _book(Sheet1=[*start, *rows]),
    }
    for number, (amount, what) in enumerate(zip(paid, bought, strict=True)):
        name = f"receipt_{number}." + {0: "jpeg", 3: "pdf"}.get(number, "jpg")
        found[name] = _receipt(f"day {9 + number}", what, f"Total {-amount:.2f}", pdf=number == 3)
    return found


def _receipt(*lines: str, pdf: bool) -> bytes:
    image = Image.new("RGB", (320, 240), "white")
    ImageDraw.Draw(image).multiline_text((40, 40), "\n".join(lines), fill="black", spacing=12)
    target = io.BytesIO()
    image.save(target, "PDF" if pdf else "JPEG")
    return target.getvalue()


def _people(gold: bool) -> bytes:
    made = slides(1)
    slide = made.slides.add_slide(made.slide_layouts[TITLE_ONLY])
    slide.shapes.title.text = "Let's start" if gold else "Click to add"
    slide.shapes.add_picture(io.BytesIO(picture(40)), Inches(2), Inches(2), Inches(4), Inches(3))
    if gold:
        slide.background.fill.solid()
        slide.background.fill.fore_color.rgb = YELLOW
    return saved(made)


def _club(gold: bool, font: str = "") -> bytes:
    made = slides(4)
    slide = made.slides.add_slide(made.slide_layouts[BLANK])
    frame = _text(slide, "Find a coach", "Book the field", "Buy new balls", "Invite parents")
    for place, paragraph in enumerate(frame.paragraphs):
        font_of = paragraph.runs[0].font
        font_of.name = font or None
        if gold and place < 2:
            font_of._element.set("strike", "sngStrike")
    return saved(made)


def _content(gold: bool) -> bytes:
    made = pptx.Presentation()
    slide = made.slides.add_slide(made.slide_layouts[BLANK])
    for paragraph in _text(slide, "The content", "of this slide").paragraphs:
        font = paragraph.runs[0].font
        font.size, font.color.rgb = (Pt(12), ORANGE) if gold else (Pt(18), BLACK)
    if gold:
        slide.background.fill.solid()
        slide.background.fill.fore_color.rgb = RED
    return saved(made)


def _table() -> bytes:
    made = slides(2)
    slide = made.slides.add_slide(made.slide_layouts[BLANK])
    table = slide.shapes.add_table(2, 3, Inches(1), Inches(1), Inches(6), Inches(1)).table
    for place in range(6):
        table.cell(place // 3, place % 3).text = f"cell {place}"
    return saved(made)


def _forests(gold: bool) -> bytes:
    made = pptx.Presentation()
    titles = ["Rain forests", "Boreal forests", "Mangroves"]
    texts = [["much rain"], ["cold winters"], ["salt water"]]
    if gold:
        titles, texts = [*titles, ""], [*texts, titles]
    for title, lines in zip(titles, texts, strict=True):
        slide = made.slides.add_slide(made.slide_layouts[TITLE_AND_TEXT])
        slide.shapes.title.text = title
        slide.placeholders[1].text_frame.text = "\n".join(lines)
    return saved(made)


def _family(gold: bool) -> bytes:
    made = pptx.Presentation()
    slide = made.slides.add_slide(made.slide_layouts[TITLE_ONLY])
    if gold:
        run = slide.shapes.title.text_frame.paragraphs[0].add_run()
        run.text, run.font.name = "Happy Family", "Microsoft JhengHei"
    _text(slide, "five people", top=3)
    return saved(made)


def _small_picture() -> Files:
    gold = slides(2)
    image = picture(70, "PNG")
    gold.slides[1].shapes.add_picture(io.BytesIO(image), Inches(3), Inches(3), Cm(1), Cm(1))
    return {"31_2.pptx": saved(slides(2)), "31_2_Gold.pptx": saved(gold), "none.png": image}


def _answers() -> Files:
    gemini = ["The Iliad is older than the Odyssey.", "It is about Troy.", "Homer's Iliad has 24 books."]
    gold = docx.Document()
    for answer in gemini:
        before, found, after = answer.partition("Iliad")
        paragraph = gold.add_paragraph(before)
        if found:
            paragraph.add_run(found).font.highlight_color = WD_COLOR_INDEX.YELLOW
            paragraph.add_run(after)
    models = {"GPT-4": ["The Iliad.", "Troy.", "24."], "Gemini": gemini}
    return {
        "LLM results.json": json.dumps(models, indent=1).encode(),
        "gemini_results_Gold.docx": saved(gold),
    }


def _columns() -> Files:
    rows: list[Row] = [
        ["Order ID", "Sales", "Date", "Last Name", "First Name"],
        [17, 20.5, "first of May", "Lovelace", "Ada"],
        [18, 7, "second of May", "Turing", "Alan"],
    ]
    name = "Name_Order_Id_move_column"
    moved = [[row[place] for place in (2, 4, 3, 0, 1)] for row in rows]
    return {f"{name}.xlsx": _book(Sheet1=rows), f"{name}_gold.xlsx": _book(Sheet1=moved)}


MAKERS: dict[str, Callable[[], Files]] = {
    "0a211154-fda0-48d0-9274-eaac4ce5486d": lambda: {
        "13_0_.pptx": _people(False), "13_0_Gold.pptx": _people(True)
    },
    "42e0a640-4f19-4b28-973d-729602b5a4a7": _income,
    "550ce7e7-747b-495f-b122-acdc4d0b8e54": lambda: {
        "New_Club_Spring_2018_Training.data": _club(False),
        "New_Club_Spring_2018_Training_with_strike.data": _club(True),
        "New_Club_Spring_2018_Training_Gold_all_fonts_1.pptx": _club(True, "DejaVu Sans"),
    },
    "5bc63fb9-276a-4439-a7c1-9dc76401737f": _answers,
    "7a4e4bc8-922c-4c84-865c-25ba34136be1": _columns,
    "8e116af7-7db7-4e35-a68b-b0939c066c78": _bookkeeping,
    "a01fbce3-2793-461f-ab86-43680ccbae25": _separators,
    "a434992a-89df-4577-925c-0c58b747f0f4": lambda: {
        "16_2.pptx": _content(False), "16_2_Gold.pptx": _content(True)
    },
    "ac1b39ff-ee4d-4483-abce-c117e98942f0": lambda: dict.fromkeys(
        ("55_10.pptx", "55_10_Original.pptx"), _table()
    ),
    "af23762e-2bfd-4a1d-aada-20fa8de9ce07": lambda: {
        "Forests.pptx": _forests(False), "Forests_Gold.pptx": _forests(True)
    },
    "af2d657a-e6b3-4c6a-9f67-9e3ed015974c": lambda: {
        "9_1.pptx": _family(False), "9_1_Gold.pptx": _family(True)
    },
    "c82632a4-56b6-4db4-9dd1-3820ee3388e4": _small_picture,
    "d681960f-7bc3-4286-9913-a8812ba3261a": _grades,
}  # fmt: skip
"""What makes the files of a task, by its id."""
