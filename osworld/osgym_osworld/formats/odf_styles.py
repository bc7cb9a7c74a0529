"""Styles of an OpenDocument file: looks of texts, shapes and pages, with what they inherit."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any
from xml.etree.ElementTree import Element

_URN = "urn:oasis:names:tc:opendocument:xmlns"
STYLE, TEXT = f"{{{_URN}:style:1.0}}", f"{{{_URN}:text:1.0}}"
DRAW, PRESENTATION = f"{{{_URN}:drawing:1.0}}", f"{{{_URN}:presentation:1.0}}"
OFFICE, FO, SVG = (
    f"{{{_URN}:office:1.0}}",
    f"{{{_URN}:xsl-fo-compatible:1.0}}",
    f"{{{_URN}:svg-compatible:1.0}}",
)
EXTENDED = "{urn:org:documentfoundation:names:experimental:office:xmlns:loext:1.0}"
MAX_CHAIN = 20
"""Number of styles that may be based on each other in a row."""
PLAIN: Mapping[str, Any] = {
    "bold": False,
    "italic": False,
    "underlined": False,
    "struck through": False,
    "hidden": False,
    "capitals": "none",
    "raised": "0%",
    "size": None,  # that of the application
    "font": None,
    "colour": "#000000",
    "opacity": "100%",
    "highlight": "transparent",
    "alignment": "start",
}
"""Look of text whose styles say nothing."""

Look = dict[str, Any]


class Styles:
    """Styles of a document by family and name.

    Args:
        roots: Roots of the parts that define styles; the first definition of a name counts.
    """

    def __init__(self, *roots: Element) -> None:
        self._by_name: dict[tuple[str, str], Element] = {}
        self._defaults: dict[str, Element] = {}
        self._fonts: dict[str, str] = {}
        for root in roots:
            for style in root.iter(f"{STYLE}style"):
                key = style.get(f"{STYLE}family", ""), style.get(f"{STYLE}name", "")
                self._by_name.setdefault(key, style)
            for style in root.iter(f"{STYLE}default-style"):
                self._defaults.setdefault(style.get(f"{STYLE}family", ""), style)
            for face in root.iter(f"{STYLE}font-face"):
                name = face.get(f"{SVG}font-family", "").strip("'")
                self._fonts.setdefault(face.get(f"{STYLE}name", ""), name)

    def look(self, family: str, name: str, inherited: Look) -> Look:
        """Return the look of text in a style, over what it inherits."""
        found = dict(inherited)
        for style in reversed(list(self._chain(family, name))):
            found |= self._formats(style, found["size"])
        return found

    def base(self, family: str) -> Look:
        """Return the look of text in no style but the default of the family."""
        style = self._defaults.get(family)
        return dict(PLAIN) if style is None else {**PLAIN, **self._formats(style, None)}

    def properties(self, family: str, name: str, kind: str) -> dict[str, str]:
        """Return the attributes of a style's ``<style:{kind}-properties>``, with those that it inherits."""
        found: dict[str, str] = {}
        for style in reversed(list(self._chain(family, name))):
            for element in style.findall(f"{STYLE}{kind}-properties"):
                found |= element.attrib
        return found

    def _chain(self, family: str, name: str) -> Iterator[Element]:
        """Yield a style and those that it is based on."""
        for _ in range(MAX_CHAIN):
            style = self._by_name.get((family, name))
            if style is None:
                return
            yield style
            name = style.get(f"{STYLE}parent-style-name", "")

    def _formats(self, style: Element, size: float | None) -> Look:
        found: Look = {}
        for element in style.findall(f"{STYLE}text-properties"):
            found |= self._text(element.attrib, size)
        for element in style.findall(f"{STYLE}paragraph-properties"):
            if alignment := element.get(f"{FO}text-align"):
                found["alignment"] = "start" if alignment == "left" else alignment
        return found

    def _text(self, said: Mapping[str, str], size: float | None) -> Look:
        found: Look = {}
        if weight := said.get(f"{FO}font-weight"):
            found["bold"] = weight == "bold" or (weight.isdigit() and int(weight) >= 600)
        if slant := said.get(f"{FO}font-style"):
            found["italic"] = slant != "normal"
        for name, key in (("underlined", "underline"), ("struck through", "line-through")):
            if line := said.get(f"{STYLE}text-{key}-style"):
                found[name] = line != "none"
        if shown := said.get(f"{TEXT}display"):
            found["hidden"] = shown == "none"
        if capitals := said.get(f"{FO}text-transform") or said.get(f"{FO}font-variant"):
            found["capitals"] = "none" if capitals == "normal" else capitals
        if place := said.get(f"{STYLE}text-position"):
            found["raised"] = place.split()[0]
        if font := said.get(f"{FO}font-family") or self._fonts.get(said.get(f"{STYLE}font-name", "")):
            found["font"] = font.strip("'")
        if ground := said.get(f"{FO}background-color"):
            found["highlight"] = ground.lower()
        if wanted := said.get(f"{FO}font-size"):
            found["size"] = _points(wanted, size)
        return found | _colour(said)


def _colour(said: Mapping[str, str]) -> Look:
    """Return the colour; the opacity of the application's own colour means nothing."""
    if said.get(f"{STYLE}use-window-font-color") == "true":
        return {"colour": "#000000", "opacity": "100%"}
    if colour := said.get(f"{FO}color"):
        return {"colour": colour.lower(), "opacity": said.get(f"{EXTENDED}opacity", "100%")}
    return {}


def _points(said: str, inherited: float | None) -> float | None:
    """Return a size in points; one in percent is a part of the inherited size."""
    try:
        if said.endswith("%"):
            return None if inherited is None else inherited * float(said[:-1]) / 100
        return float(said.removesuffix("pt"))
    except ValueError:
        return None
