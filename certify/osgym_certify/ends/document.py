"""Other contents of documents: docx and odt."""

from __future__ import annotations

from functools import partial

from osgym_certify.ends import odf_parts, odf_texts
from osgym_certify.ends.base import Must, Variants
from osgym_certify.ends.document_equivalents import EQUIVALENTS
from osgym_certify.ends.document_mutations import MUTATIONS, put_back
from osgym_certify.ends.docx_parts import Document, change_of
from osgym_certify.ends.ooxml import PACKED_OTHERWISE, joined, variants_of

_ODT = "text"

mutations: Variants = joined(
    variants_of(
        {name: change_of(one) for name, one in MUTATIONS.items()}, Must.EARN_NOTHING, Document, put_back
    ),
    variants_of(
        {name: odf_parts.change_of(one, _ODT) for name, one in odf_texts.MUTATIONS_OF_DOCUMENTS.items()},
        Must.EARN_NOTHING,
        partial(odf_parts.opened, kind=_ODT),
        partial(odf_texts.put_back, kind=_ODT, word="paragraph"),
    ),
)
"""Make wrong documents of the golden one."""

equivalents: Variants = joined(
    variants_of(EQUIVALENTS, Must.EARN_ALL, Document),
    variants_of(
        {
            **{name: odf_parts.change_of(one, _ODT) for name, one in odf_texts.EQUIVALENTS.items()},
            **PACKED_OTHERWISE,
        },
        Must.EARN_ALL,
        partial(odf_parts.opened, kind=_ODT),
    ),
)
"""Make documents that are as good as the golden one."""
