"""The accessibility tree as clients read it: what is there, and nothing of what a hostile guest wants."""

from __future__ import annotations

import time

import pytest

from osgym_protocol.a11y import HEADER, MAX_DEPTH, MAX_TEXT_CHARS, A11yTree, InvalidTree, parse_tree

BASE = "https://accessibility.ubuntu.example.org/ns/"
DECLARED = f'xmlns:st="{BASE}state" xmlns:cp="{BASE}component" xmlns:val="{BASE}value"'
XML = f"""<desktop-frame {DECLARED} partial="true"><application name="mousepad" partial="true">
<frame name="note &amp; more" cp:screencoord="(10, -20)" cp:size="(300, 200)" st:active="true" st:busy="true">
<text name="" cp:screencoord="(12, 40)" cp:size="(296, 100)" val:value="3">two
lines&#9;here</text><push-button name="Hidden" cp:screencoord="(1, 2)" cp:size="(0, 0)"/></frame>
</application></desktop-frame>"""


def parsed(xml: str, **options: object) -> A11yTree:
    """The tree of a text."""
    return parse_tree(xml.encode(), **options)


def test_a_tree_is_read_and_written_as_lines() -> None:
    """Roles, names, texts, boxes, states, values; a line for each element that shows."""
    tree = parsed(XML)
    frame, text, button = (tree.find(role=role)[0] for role in ("frame", "text", "push-button"))
    assert (frame.name, frame.box, frame.states) == (
        "note & more",
        (10, -20, 300, 200),
        ("active", "busy"),
    )
    assert (text.text, text.attributes) == ("two\nlines\there", {"val:value": "3"})
    assert tree.find(name="Hidden") == [button]
    assert tree.partial and not tree.truncated
    lines = tree.to_text().splitlines()
    assert lines == [
        HEADER,
        "frame\tnote & more\t\t(10, -20)\t(300, 200)",
        "text\t\ttwo lines here\t(12, 40)\t(296, 100)",
    ]
    left_out = "…\t1 left out\t1 text in frame note & more\t\t"
    assert tree.to_text(max_lines=1).splitlines() == [*lines[:2], left_out]


def test_a_tree_that_is_cut_anywhere_is_what_came() -> None:
    """Every prefix is a tree, or says that it is none."""
    data = XML.encode()
    whole = len(list(parse_tree(data).nodes()))
    for end in range(len(data)):
        try:
            tree = parse_tree(data[:end], truncated=True)
        except InvalidTree:
            assert end < data.index(b">") + 1
            continue
        assert tree.truncated and len(list(tree.nodes())) <= whole
    with pytest.raises(InvalidTree):
        parse_tree(data[:-10])


@pytest.mark.parametrize(
    "xml",
    [
        "",
        "no xml",
        "<a><b></a>",
        '<!DOCTYPE a [<!ENTITY x "y">]><a>&x;</a>',
        '<!DOCTYPE a SYSTEM "file:///etc/passwd"><a/>',
        '<!DOCTYPE a [<!ENTITY a "aaaaaaaaaa"><!ENTITY b "&a;&a;&a;&a;">]><a>&b;&b;</a>',
        "<a>&undefined;</a>",
    ],
)
def test_what_is_no_tree_is_refused(xml: str) -> None:
    """One typed error, whatever it is."""
    with pytest.raises(InvalidTree):
        parsed(xml)


def test_hostile_trees_are_bounded() -> None:
    """Depth, number, texts, attributes, numbers: each is cut, and in a time that grows with its length."""
    began = time.process_time()
    deep = parsed("<a>" * 100_000 + "</a>" * 100_000)
    assert deep.truncated and len(list(deep.nodes())) == MAX_DEPTH
    many = parsed("<a>" + "<b/>" * 300_000 + "</a>", max_nodes=1000)
    assert many.truncated and len(list(many.nodes())) == 1000
    text = parsed(f"<a>{'x' * 5_000_000}</a>")
    assert len(text.root.text) == MAX_TEXT_CHARS
    attributes = " ".join(f'a{n}="{n}"' for n in range(20_000))
    assert len(parsed(f"<a {attributes}/>").root.attributes) <= 64
    far = parsed(f'<a {DECLARED} cp:screencoord="(99999999999, 1)" cp:size="(1e9, 2)"/>')
    assert far.root.box is None
    assert parsed(f'<a {DECLARED} cp:screencoord="(77777777, 1)" cp:size="(1, 2)"/>').root.box is None
    deep.to_text()
    many.to_text()
    assert time.process_time() - began < 10
