"""Other contents of workbooks: xlsx and ods."""

from __future__ import annotations

from functools import partial

from osgym_certify.ends import odf_parts, odf_texts, ods_tables
from osgym_certify.ends.base import Must, Variants
from osgym_certify.ends.ooxml import PACKED_OTHERWISE, joined, variants_of
from osgym_certify.ends.workbook_equivalents import EQUIVALENTS
from osgym_certify.ends.workbook_mutations import MUTATIONS_OF_CELLS, put_back
from osgym_certify.ends.workbook_scene import change_of
from osgym_certify.ends.workbook_sheets import MUTATIONS_OF_SHEETS
from osgym_certify.ends.xlsx_parts import Book

_ODS = ods_tables.KIND

mutations: Variants = joined(
    variants_of(
        {name: change_of(one) for name, one in {**MUTATIONS_OF_CELLS, **MUTATIONS_OF_SHEETS}.items()},
        Must.EARN_NOTHING,
        Book,
        put_back,
    ),
    variants_of(
        {name: odf_parts.change_of(one, _ODS) for name, one in ods_tables.MUTATIONS.items()},
        Must.EARN_NOTHING,
        partial(odf_parts.opened, kind=_ODS),
        ods_tables.put_back,
    ),
)
"""Make wrong workbooks of the golden one."""

equivalents: Variants = joined(
    variants_of(EQUIVALENTS, Must.EARN_ALL, Book),
    variants_of(
        {
            **{name: odf_parts.change_of(one, _ODS) for name, one in odf_texts.EQUIVALENTS.items()},
            **PACKED_OTHERWISE,
        },
        Must.EARN_ALL,
        partial(odf_parts.opened, kind=_ODS),
    ),
)
"""Make workbooks that are as good as the golden one."""
