"""Other contents of presentations: pptx."""

from __future__ import annotations

from osgym_certify.ends.base import Must, Variants
from osgym_certify.ends.ooxml import variants_of
from osgym_certify.ends.pptx_parts import change_of
from osgym_certify.ends.slides_equivalents import EQUIVALENTS
from osgym_certify.ends.slides_mutations import MUTATIONS, put_back

mutations: Variants = variants_of(
    {name: change_of(one) for name, one in MUTATIONS.items()}, Must.EARN_NOTHING, put_back
)
"""Make wrong presentations of the golden one."""

equivalents: Variants = variants_of(EQUIVALENTS, Must.EARN_ALL)
"""Make presentations that are as good as the golden one."""
