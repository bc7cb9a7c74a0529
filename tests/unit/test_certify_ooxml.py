"""Archives of office files: bounds, damaged ones, the same bytes each time."""

from __future__ import annotations

import io
import zipfile

import pytest

from osgym_certify.ends import ooxml
from osgym_certify.ends.ooxml import Package, UnreadableFile, parse, remove_element, swap_elements


def archive(parts: dict[str, bytes], compression: int = zipfile.ZIP_DEFLATED) -> bytes:
    """A zip archive of the present time."""
    out = io.BytesIO()
    with zipfile.ZipFile(out, "w", compression) as made:
        for name, part in parts.items():
            made.writestr(name, part)
    return out.getvalue()


def test_the_same_parts_give_the_same_bytes() -> None:
    """Whatever the time and the compression of the archive that was read."""
    parts = {"mimetype": b"text", "b.xml": b"<b/>", "a.xml": b"<a/>"}
    one, two = (
        Package.read(archive(parts, how)).data() for how in (zipfile.ZIP_DEFLATED, zipfile.ZIP_STORED)
    )
    assert one == two
    assert zipfile.ZipFile(io.BytesIO(one)).namelist() == [*parts]
    backwards = Package.read(one).data(backwards=True)
    assert zipfile.ZipFile(io.BytesIO(backwards)).namelist() == ["mimetype", "a.xml", "b.xml"]


def test_changed_elements_are_written() -> None:
    """A copy does not have them."""
    package = Package({"a.xml": b"<a/>"})
    package.root("a.xml").set("b", "1")
    assert b'<a b="1"/>' in Package.read(package.data()).parts["a.xml"]
    assert b'b="1"' not in Package.read(package.copy().data()).parts["a.xml"]


def test_large_archives_are_not_expanded(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nor such with too many parts."""
    with pytest.raises(UnreadableFile):
        Package.read(archive({"a": bytes(ooxml.MAX_EXPANDED_BYTES), "b": b"1"}))
    monkeypatch.setattr(ooxml, "MAX_PARTS", 2)
    with pytest.raises(UnreadableFile):
        Package.read(archive(dict.fromkeys("abc", b"")))


def test_damaged_archives_are_refused() -> None:
    """Cut off, changed, with a name twice."""
    good = archive({"a.xml": b"<a>" + bytes(range(256)) * 9 + b"</a>"})
    for wrong in (b"", good[:-30], good[:60] + bytes(20) + good[80:]):
        with pytest.raises(UnreadableFile):
            Package.read(wrong)
    with pytest.warns(UserWarning, match="Duplicate name"), zipfile.ZipFile(out := io.BytesIO(), "w") as made:
        made.writestr("a", b"1")
        made.writestr("a", b"2")
    with pytest.raises(UnreadableFile):
        Package.read(out.getvalue())


@pytest.mark.parametrize(
    "part",
    [b"", b"<a>", b"<a b=>", b'<!DOCTYPE a SYSTEM "file:///etc/passwd"><a/>', b"<!DOCTYPE a []><a/>"],
)
def test_xml_has_no_document_type(part: bytes) -> None:
    """No entities, no files, no network."""
    with pytest.raises(UnreadableFile):
        parse(part)


def test_relationships_are_added_and_removed() -> None:
    """With ids of their own, and paths from the package's root."""
    package = Package({"a/b.xml": b"<b/>", "a/c.xml": b"<c/>"})
    assert package.targets("a/b.xml") == {}
    key = package.relate("a/b.xml", "styles", "a/c.xml")
    assert package.targets("a/b.xml") == {key: ("styles", "a/c.xml")}
    assert package.relate("a/b.xml", "styles", "a/c.xml") != key
    package.unrelate("a/b.xml", key)
    assert key not in package.targets("a/b.xml")
    package.remove("a/b.xml")
    assert [*package.parts] == ["a/c.xml"]


def test_elements_keep_the_text_around_them() -> None:
    """When one is removed, or two change places."""
    root = parse(b"<a>x<b/>y<c/>z</a>")
    remove_element(root[0])
    assert ooxml.serialised(root).endswith(b"<a>xy<c/>z</a>")
    root = parse(b"<a><b/><c/><d/></a>")
    swap_elements(root[0], root[2])
    assert [one.tag for one in root] == ["d", "c", "b"]
    swap_elements(root[0], root[1])
    assert [one.tag for one in root] == ["c", "d", "b"]
