"""Rendering of the tree as XML, in the form that OSWorld's clients expect."""

from __future__ import annotations

from osgym_guest.osworld.a11y.tree import Node

_BASE = "https://accessibility.ubuntu.example.org/ns/"
NAMESPACES = {
    "st": _BASE + "state",
    "attr": _BASE + "attributes",
    "cp": _BASE + "component",
    "doc": _BASE + "document",
    "docattr": _BASE + "document/attributes",
    "txt": _BASE + "text",
    "val": _BASE + "value",
    "act": _BASE + "action",
}
_CONTROLS = [code for code in range(32) if code not in (9, 10, 13)]
_FORBIDDEN = [*_CONTROLS, *range(0xD800, 0xE000), 0xFFFE, 0xFFFF]
_TEXT = str.maketrans({**dict.fromkeys(_FORBIDDEN), "&": "&amp;", "<": "&lt;", ">": "&gt;", "\r": "&#13;"})
_ATTRIBUTE = {**_TEXT, ord('"'): "&quot;", ord("\n"): "&#10;", ord("\t"): "&#9;"}


def xml_name(text: str) -> str:
    """Return `text` as an ASCII name that XML allows, with dashes in place of other characters."""
    name = "".join(char if char.isascii() and (char.isalnum() or char in "-_.") else "-" for char in text)
    return name if name[:1].isalpha() or name[:1] == "_" else "tag" + name


def _attribute_name(key: str) -> str:
    prefix, colon, local = key.partition(":")
    if not colon or prefix not in NAMESPACES:
        return xml_name(key)
    # a local name may start with what a whole name may not, as `act:_desc` of a nameless action does
    return f"{prefix}:{xml_name(local)}"


def render(root: Node) -> str:
    """Return the tree below `root` as one XML document, without nodes that have no tag."""
    out: list[str] = []
    declarations = "".join(f' xmlns:{prefix}="{uri}"' for prefix, uri in NAMESPACES.items())
    _render(root, out, declarations)
    return "".join(out)


def _render(node: Node, out: list[str], declarations: str = "") -> None:
    if not node.tag:
        return
    tag = xml_name(node.tag)
    attributes = {_attribute_name(key): value for key, value in node.attributes.items()}
    if node.partial or (declarations and node.any_partial()):
        attributes["partial"] = "true"
    out.append(f"<{tag}{declarations}")
    out.extend(f' {key}="{value.translate(_ATTRIBUTE)}"' for key, value in attributes.items())
    if not node.text and not node.children:
        out.append("/>")
        return
    out.append(">")
    out.append(node.text.translate(_TEXT))
    for child in node.children:
        _render(child, out)
    out.append(f"</{tag}>")
