"""Other contents of workbooks: xlsx."""

from __future__ import annotations

from osgym_certify.ends.base import Must, Variants
from osgym_certify.ends.ooxml import variants_of
from osgym_certify.ends.workbook_equivalents import EQUIVALENTS
from osgym_certify.ends.workbook_mutations import MUTATIONS_OF_CELLS, put_back
from osgym_certify.ends.workbook_scene import change_of
from osgym_certify.ends.workbook_sheets import MUTATIONS_OF_SHEETS
from osgym_certify.ends.xlsx_parts import Book

mutations: Variants = variants_of(
    {name: change_of(one) for name, one in {**MUTATIONS_OF_CELLS, **MUTATIONS_OF_SHEETS}.items()},
    Must.EARN_NOTHING,
    Book,
    put_back,
)
"""Make wrong workbooks of the golden one."""

equivalents: Variants = variants_of(EQUIVALENTS, Must.EARN_ALL, Book)
"""Make workbooks that are as good as the golden one."""
