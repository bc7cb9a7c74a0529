"""Office files as archives of XML parts: read within bounds, changed part by part, written reproducibly.

OOXML (docx, xlsx, pptx) and OpenDocument (odt, ods, odp) files are both such archives.
"""

from __future__ import annotations

import io
import posixpath
import random
import zipfile
import zlib
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any

from lxml import etree

from osgym_certify.ends.base import Content, GoldenFile, Must, Variants, distinct
from osgym_certify.ends.draw import Dice, by_name

MAX_EXPANDED_BYTES = 64 << 20
"""Largest sum of the parts' sizes; a larger archive counts as a zip bomb."""
MAX_PARTS = 10_000
_TIME = (2025, 1, 1, 0, 0, 0)
_TYPES = "[Content_Types].xml"
_MIMETYPE = "mimetype"
_PACKAGE = "http://schemas.openxmlformats.org/package/2006"
_RELATIONSHIP = f"{{{_PACKAGE}/relationships}}Relationship"
_OVERRIDE = f"{{{_PACKAGE}/content-types}}Override"
_RELATED = "http://schemas.openxmlformats.org/officeDocument/2006/relationships"
R = f"{{{_RELATED}}}"
"""Namespace of attributes that name a relationship, as a prefix of their names."""
XML_SPACE = "{http://www.w3.org/XML/1998/namespace}space"

Element = Any
"""Element of lxml, which has no types."""


class UnreadableFile(Exception):
    """A file is not an office file of the expected format, is damaged, or is too large."""


class Package:
    """Parts of an office file by name, in the order of the archive.

    Elements from `root` may be changed: `data` writes them.

    Attributes:
        parts: Parts as they were read or put; elements that were changed since are not in it.
    """

    def __init__(self, parts: Mapping[str, bytes]) -> None:
        self.parts = dict(parts)
        self._roots: dict[str, Element] = {}

    @classmethod
    def read(cls, data: bytes) -> Package:
        """Return the parts of a file.

        Raises:
            UnreadableFile: The file is no ZIP archive, is encrypted or damaged, or expands beyond the bound.
        """
        parts: dict[str, bytes] = {}
        left = MAX_EXPANDED_BYTES
        try:
            with zipfile.ZipFile(io.BytesIO(data)) as archive:
                entries = [entry for entry in archive.infolist() if not entry.is_dir()]
                if len(entries) > MAX_PARTS:
                    raise UnreadableFile(f"the archive has {len(entries)} parts")
                for entry in entries:
                    with archive.open(entry) as stream:
                        part = stream.read(left + 1)
                    left -= len(part)
                    if left < 0 or entry.filename in parts:
                        raise UnreadableFile(f"{entry.filename!r} is too large, or is in the archive twice")
                    parts[entry.filename] = part
        except (
            *(zipfile.BadZipFile, zlib.error, OSError, EOFError, ValueError),
            *(RuntimeError, NotImplementedError),  # encrypted parts, unknown compression
        ) as error:
            raise UnreadableFile(str(error)) from error
        return cls(parts)

    def copy(self) -> Package:
        """Return the parts as they were read or put, without changes of elements."""
        return Package(self.parts)

    def root(self, name: str) -> Element:
        """Return the root element of a part, which the caller may change.

        Raises:
            UnreadableFile: The part is missing, is not well-formed XML, or has a document type.
        """
        if name not in self._roots:
            if name not in self.parts:
                raise UnreadableFile(f"the part {name!r} is missing")
            self._roots[name] = parse(self.parts[name])
        return self._roots[name]

    def put(self, name: str, part: bytes) -> None:
        """Add or replace a part."""
        self.parts[name] = part
        self._roots.pop(name, None)

    def remove(self, name: str) -> None:
        """Remove a part with its relationships and its content type."""
        for gone in (name, _relationships_of(name)):
            self.parts.pop(gone, None)
            self._roots.pop(gone, None)
        if _TYPES in self.parts:
            types = self.root(_TYPES)
            for override in types.findall(_OVERRIDE):
                if override.get("PartName") in (f"/{name}", f"/{_relationships_of(name)}"):
                    types.remove(override)

    def data(self, *, compression: int = zipfile.ZIP_DEFLATED, backwards: bool = False) -> bytes:
        """Return the file: the same parts give the same bytes.

        Args:
            compression: Compression of the archive, a constant of `zipfile`.
            backwards: Write the parts in reverse order, apart from the one that tells the file's type.
        """
        parts = {**self.parts, **{name: serialised(root) for name, root in self._roots.items()}}
        names = list(reversed(parts)) if backwards else list(parts)
        first = [name for name in (_MIMETYPE, _TYPES) if name in parts]
        out = io.BytesIO()
        with zipfile.ZipFile(out, "w") as archive:
            for name in [*first, *(name for name in names if name not in first)]:
                how = zipfile.ZIP_STORED if name == _MIMETYPE else compression
                archive.writestr(zipfile.ZipInfo(name, _TIME), parts[name], how, 6)
        return out.getvalue()

    def relationships(self, name: str) -> Element:
        """Return the root of a part's relationships; an empty name stands for the package itself.

        Raises:
            UnreadableFile: The part has no relationships.
        """
        return self.root(_relationships_of(name))

    def has_relationships(self, name: str) -> bool:
        return _relationships_of(name) in self.parts

    def targets(self, name: str) -> dict[str, tuple[str, str]]:
        """Return the kind and the part of each internal relationship of a part, by its id."""
        if not self.has_relationships(name):
            return {}
        folder = posixpath.dirname(name)
        return {
            one.get("Id", ""): (
                one.get("Type", "").rpartition("/")[2],
                posixpath.normpath(posixpath.join("/", folder, one.get("Target", ""))).lstrip("/"),
            )
            for one in self.relationships(name).iter(_RELATIONSHIP)
            if one.get("TargetMode") != "External"
        }

    def related(self, name: str, kind: str) -> str:
        """Return the part that a part refers to by a kind of relationship; an empty text if none."""
        return next((part for one, part in self.targets(name).values() if one == kind), "")

    def relate(self, name: str, kind: str, target: str) -> str:
        """Add a relationship to a part of the package, and return its id."""
        relations = _relationships_of(name)
        if relations not in self.parts:
            self.put(relations, f'<Relationships xmlns="{_PACKAGE}/relationships"/>'.encode())
        root = self.root(relations)
        taken = {one.get("Id") for one in root.iter(_RELATIONSHIP)}
        key = next(key for number in range(1, MAX_PARTS) if (key := f"rIdAdded{number}") not in taken)
        etree.SubElement(root, _RELATIONSHIP, Id=key, Type=f"{_RELATED}/{kind}", Target=f"/{target}")
        return key

    def unrelate(self, name: str, key: str) -> None:
        """Remove a relationship of a part by its id."""
        root = self.relationships(name)
        for one in root.findall(_RELATIONSHIP):
            if one.get("Id") == key:
                root.remove(one)

    def declare(self, name: str, content_type: str) -> None:
        """State the content type of a part that was added."""
        etree.SubElement(self.root(_TYPES), _OVERRIDE, PartName=f"/{name}", ContentType=content_type)

    def content_type(self, name: str) -> str:
        """Return the content type that is stated for a part; an empty text if none."""
        types = self.root(_TYPES).iter(_OVERRIDE)
        return next((str(one.get("ContentType")) for one in types if one.get("PartName") == f"/{name}"), "")

    def new_name(self, pattern: str) -> str:
        """Return the first name of a pattern with ``{}`` for a number that no part has."""
        return next(
            name for number in range(1, 2 * MAX_PARTS) if (name := pattern.format(number)) not in self.parts
        )


def _relationships_of(name: str) -> str:
    folder, _, base = name.rpartition("/")
    return f"{folder}/_rels/{base}.rels" if folder else f"_rels/{base}.rels"


def parse(part: bytes) -> Element:
    """Return the root of an XML part; entities and the network are not used.

    Raises:
        UnreadableFile: The XML is not well-formed, or declares a document type (`<!DOCTYPE`).
    """
    parser = etree.XMLParser(resolve_entities=False, no_network=True, load_dtd=False, huge_tree=False)
    try:
        root = etree.fromstring(part, parser)
    except (etree.XMLSyntaxError, ValueError) as error:
        raise UnreadableFile(str(error)) from error
    if root.getroottree().docinfo.doctype:
        raise UnreadableFile("the XML has a document type")
    return root


def serialised(root: Element) -> bytes:
    """Return an XML part as bytes."""
    return bytes(etree.tostring(root, xml_declaration=True, encoding="UTF-8", standalone=True))


def integer(element: Element, name: str, default: int = 0) -> int:
    """Return the number that an attribute holds, or the default if it is missing.

    Raises:
        UnreadableFile: The attribute is no whole number.
    """
    text = element.get(name, str(default))
    try:
        return int(text)
    except ValueError as error:
        raise UnreadableFile(f"{name} is {text[:40]!r}") from error


def remove_element(element: Element) -> None:
    """Remove an element; the text behind it stays."""
    parent, tail = element.getparent(), element.tail
    if tail:
        before = element.getprevious()
        if before is not None:
            before.tail = (before.tail or "") + tail
        else:
            parent.text = (parent.text or "") + tail
    element.tail = None
    parent.remove(element)


def swap_elements(first: Element, second: Element) -> None:
    """Exchange the places of two elements, neither of which is in the other."""
    mark = etree.Element("mark")
    first.addprevious(mark)
    second.addprevious(first)
    mark.addprevious(second)
    mark.getparent().remove(mark)


Change = Callable[[Package, GoldenFile, random.Random], bool | bytes]
"""Change of a package's parts. It returns whether it changed anything, or the whole file that it made."""


def variants_of(
    changes: Mapping[str, Change],
    must: Must,
    opened: Callable[[Package], object],
    more: Callable[[Package, GoldenFile, random.Random], Iterable[Content]] | None = None,
) -> Variants:
    """Return a function that applies each change alone.

    The draws of a change depend on its name, not on the other changes. A change that needs a part that the
    file lacks makes no content.

    Args:
        changes: Changes by the name of the content that they make.
        must: Score that all these contents must earn.
        opened: Function that raises `UnreadableFile` for a package of another format.
        more: Function that makes contents that come before the others.
    """

    def variants(golden: GoldenFile, dice: random.Random) -> list[Content]:
        drawn = by_name(dice)
        try:
            package = Package.read(golden.data)
            opened(package.copy())
            made = list(more(package.copy(), golden, drawn("")) if more is not None else ())
        except UnreadableFile:
            return []
        return distinct(golden, [*made, *_applied(changes, must, package, golden, drawn)])

    return variants


def _applied(
    changes: Mapping[str, Change], must: Must, package: Package, golden: GoldenFile, drawn: Dice
) -> Iterator[Content]:
    for name, change in changes.items():
        draft = package.copy()
        try:
            result = change(draft, golden, drawn(name))
        except UnreadableFile:
            continue
        if result:
            yield Content(name, must, result if isinstance(result, bytes) else draft.data())


def joined(*functions: Variants) -> Variants:
    """Return a function that makes the contents of the first of these functions that can read the file."""

    def variants(golden: GoldenFile, dice: random.Random) -> list[Content]:
        return next((made for one in functions if (made := list(one(golden, dice)))), [])

    return variants


def before_of(golden: GoldenFile) -> Package | None:
    """Return the parts of the file before the oracle; None if it did not exist or cannot be read."""
    if golden.before is None:
        return None
    try:
        return Package.read(golden.before)
    except UnreadableFile:
        return None


_CORE = "http://schemas.openxmlformats.org/package/2006/metadata/core-properties"
_DC = "http://purl.org/dc/elements/1.1/"
_META = "{urn:oasis:names:tc:opendocument:xmlns:meta:1.0}"


def _properties_changed(package: Package, golden: GoldenFile, dice: random.Random) -> bool:
    """Name another author in the properties of the document, as another user's program does."""
    author = dice.choice(("Robin Meyer", "Ines Duarte", "Lu Wei"))
    name = package.related("", "core-properties") or ("meta.xml" if "meta.xml" in package.parts else "")
    if name not in package.parts:
        return False
    root = package.root(name)
    is_ooxml = root.tag == f"{{{_CORE}}}coreProperties"
    place = root if is_ooxml else next(iter(root), None)
    if place is None:
        return False
    for tag in (f"{{{_DC}}}creator", f"{{{_CORE}}}lastModifiedBy" if is_ooxml else f"{_META}initial-creator"):
        found = place.find(tag)
        (etree.SubElement(place, tag) if found is None else found).text = author
    return True


PACKED_OTHERWISE: dict[str, Change] = {
    "archive without compression": lambda package, *_: package.data(compression=zipfile.ZIP_STORED),
    "parts of the archive in another order": lambda package, *_: package.data(backwards=True),
    "author changed in the properties": _properties_changed,
}
"""Equivalents of any office file."""
