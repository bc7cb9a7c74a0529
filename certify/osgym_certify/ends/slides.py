"""Other contents of presentations: pptx and odp."""

from __future__ import annotations

from functools import partial

from osgym_certify.ends import odf_parts, odf_texts
from osgym_certify.ends.base import Must, Variants
from osgym_certify.ends.odf_pages import MUTATIONS_OF_PRESENTATIONS
from osgym_certify.ends.ooxml import PACKED_OTHERWISE, joined, variants_of
from osgym_certify.ends.pptx_parts import Deck, change_of
from osgym_certify.ends.slides_equivalents import EQUIVALENTS
from osgym_certify.ends.slides_mutations import MUTATIONS, put_back

_ODP = "presentation"

mutations: Variants = joined(
    variants_of(
        {name: change_of(one) for name, one in MUTATIONS.items()},
        Must.EARN_NOTHING,
        Deck,
        put_back,
    ),
    variants_of(
        {name: odf_parts.change_of(one, _ODP) for name, one in MUTATIONS_OF_PRESENTATIONS.items()},
        Must.EARN_NOTHING,
        partial(odf_parts.opened, kind=_ODP),
        partial(odf_texts.put_back, kind=_ODP, word="text"),
    ),
)
"""Make wrong presentations of the golden one."""

equivalents: Variants = joined(
    variants_of(EQUIVALENTS, Must.EARN_ALL, Deck),
    variants_of(
        {
            **{name: odf_parts.change_of(one, _ODP) for name, one in odf_texts.EQUIVALENTS.items()},
            **PACKED_OTHERWISE,
        },
        Must.EARN_ALL,
        partial(odf_parts.opened, kind=_ODP),
    ),
)
"""Make presentations that are as good as the golden one."""
