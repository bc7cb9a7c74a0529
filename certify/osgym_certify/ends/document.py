"""Other contents of documents: docx."""

from __future__ import annotations

from osgym_certify.ends.base import Must, Variants
from osgym_certify.ends.document_equivalents import EQUIVALENTS
from osgym_certify.ends.document_mutations import MUTATIONS, put_back
from osgym_certify.ends.docx_parts import change_of
from osgym_certify.ends.ooxml import variants_of

mutations: Variants = variants_of(
    {name: change_of(one) for name, one in MUTATIONS.items()}, Must.EARN_NOTHING, put_back
)
"""Make wrong documents of the golden one."""

equivalents: Variants = variants_of(EQUIVALENTS, Must.EARN_ALL)
"""Make documents that are as good as the golden one."""
