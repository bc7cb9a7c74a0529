"""Metrics over the accessibility tree."""

from __future__ import annotations

import re
from typing import Any

from osgym_host.tasks.metric_plugin import (
    Argument,
    InputFile,
    Score,
    Unreadable,
    as_file,
    as_text,
    differ,
    is_installed,
    metric,
    reader,
    similarity,
)
from osgym_osworld.packages import needs

_NAMES = {
    "st": "state",
    "attr": "attributes",
    "cp": "component",
    "doc": "document",
    "docattr": "document/attributes",
    "txt": "text",
    "val": "value",
    "act": "action",
}
NAMESPACES = {short: f"https://accessibility.ubuntu.example.org/ns/{name}" for short, name in _NAMES.items()}


@metric(unsupported=needs("lxml", "cssselect"))
def check_accessibility_tree(result: Argument, expected: Argument) -> Score:
    """Each rule finds an element, by ``xpath`` or CSS ``selectors``, with its ``text`` if it names one.

    ``exact`` (true by itself) compares texts; else how alike they are counts, and the product is the score.
    """
    rules = expected if isinstance(expected, list) else [expected]
    tree, score, notes = _tree(result), 1.0, []
    for rule in rules:
        if not isinstance(rule, dict):
            raise Unreadable("expected", "a rule of this metric is an object with xpath or selectors")
        found = _find(tree, rule)
        if not found:
            return Score(0.0, f"no element matches {str(rule.get('xpath') or rule.get('selectors'))[:200]}")
        if "text" not in rule:
            continue
        texts = [str(element.text or "") for element in found if isinstance(element.tag, str)]
        alike = max((_alike(text, str(rule["text"]), rule.get("exact", True)) for text in texts), default=0.0)
        if alike <= 0:
            return differ("the texts", texts[:10], rule["text"])
        score *= alike
        notes.append(f"alike by {alike:.3f}")
    return Score(score, "; ".join(notes))


def _alike(text: str, wanted: str, exact: object) -> float:
    return float(text == wanted) if exact else similarity(text, wanted)


def _find(tree: Any, rule: dict[str, Any]) -> list[Any]:
    """Return the elements that a rule names.

    Raises:
        Unreadable: Its path or selector is wrong.
    """
    from cssselect import SelectorError
    from lxml.cssselect import CSSSelector
    from lxml.etree import XPathError

    try:
        if "xpath" in rule:
            found = tree.xpath(str(rule["xpath"]), namespaces=NAMESPACES)
            return [e for e in found if hasattr(e, "tag")] if isinstance(found, list) else []
        selectors = ", ".join(str(selector) for selector in rule["selectors"])
        return list(CSSSelector(selectors, namespaces=NAMESPACES)(tree))
    except (XPathError, SelectorError) as error:
        raise Unreadable("expected", f"a selector is wrong: {error}") from error


def _tree(value: Argument) -> Any:
    if isinstance(value, str):
        value = InputFile(-1, "the accessibility tree", "result", as_text(value).encode())
    return _parsed(as_file(value, "result"))


@reader
def _parsed(file: InputFile) -> Any:
    """Return the tree's root.

    Raises:
        Unreadable: Malformed, or it declares a document type.
    """
    from lxml import etree

    data = file.data()
    if re.search(rb"<!(DOCTYPE|ENTITY)", data):
        raise file.bad("it declares a document type")
    parser = etree.XMLParser(resolve_entities=False, no_network=True, load_dtd=False, huge_tree=False)
    return etree.fromstring(data, parser)


def warm_up() -> None:
    if is_installed("lxml") and is_installed("cssselect"):
        rules = [{"selectors": ["a[attr|id=b]>c"]}, {"xpath": "//c[@st:a]"}]
        assert check_accessibility_tree("<a><c/></a>", rules).score == 0
