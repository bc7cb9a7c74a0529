"""The accessibility tree as XML."""

from __future__ import annotations

from xml.etree import ElementTree

from hypothesis import given
from hypothesis import strategies as st

from osgym_guest.osworld.a11y import names
from osgym_guest.osworld.a11y.render import NAMESPACES, render, xml_name
from osgym_guest.osworld.a11y.tree import Box, Cells, Node, Ref


def parse(root: Node) -> ElementTree.Element:
    return ElementTree.fromstring(render(root))


def test_attributes_are_in_osworlds_namespaces() -> None:
    """A client finds states, places, values and actions under the names it knows."""
    node = Node(
        "push-button",
        {
            "name": 'Save "all" & <quit>\n',
            "st:showing": "true",
            "cp:screencoord": "(1, 2)",
            "val:value": "3.0",
            "act:click_desc": "Clicks",
            "act:_kb": "",
            "image": "true",
        },
        "text",
    )
    button = parse(Node("desktop-frame", {}, "", [node]))[0]
    assert button.tag == "push-button"
    assert button.text == "text"
    assert button.get("name") == 'Save "all" & <quit>\n'
    assert button.get("image") == "true"
    for prefix, local, value in (
        ("st", "showing", "true"),
        ("cp", "screencoord", "(1, 2)"),
        ("val", "value", "3.0"),
        ("act", "click_desc", "Clicks"),
        ("act", "_kb", ""),
    ):
        assert button.get(f"{{{NAMESPACES[prefix]}}}{local}") == value
    assert NAMESPACES["st"] == "https://accessibility.ubuntu.example.org/ns/state"


def test_a_partial_tree_says_so_where_and_at_the_root() -> None:
    """Whoever reads the tree sees that something is missing, and below which node."""
    whole, cut = Node("application", {"name": "a"}), Node("application", {"name": "b"}, partial=True)
    root = parse(Node("desktop-frame", {}, "", [whole, cut]))
    assert root.get("partial") == "true"
    assert [child.get("partial") for child in root] == [None, "true"]
    assert parse(Node("desktop-frame", {}, "", [whole])).get("partial") is None


def test_a_node_whose_role_is_unknown_yet_is_left_out() -> None:
    """What the deadline cut off before its role came does not appear as rubbish."""
    root = parse(Node("desktop-frame", {}, "", [Node("", {"name": "x"}), Node("frame", {"name": "y"})]))
    assert [child.tag for child in root] == ["frame"]


@given(st.text(), st.text(), st.text(), st.text(alphabet=st.characters(max_codepoint=255), max_size=20))
def test_any_text_of_an_application_gives_well_formed_xml(tag: str, key: str, value: str, local: str) -> None:
    """Control characters, lone surrogates and odd names of applications never break the document."""
    node = Node(tag or "x", {"name": value, f"attr:{key}": value, f"act:{local}_kb": value}, value)
    document = render(Node("desktop-frame", {}, "", [node])).encode("utf-8", "strict")
    child = ElementTree.fromstring(document)[0]
    kept = "".join(
        c for c in value if c in "\t\n\r" or " " <= c < "\ud800" or (c > "\udfff" and c not in "\ufffe\uffff")
    )
    assert child.get("name") == kept


def test_names_of_roles_and_states_follow_their_numbers() -> None:
    """The numbers of at-spi2-core give the names that its own library gives."""
    assert names.role_name(43) == "push-button"
    assert names.role_name(60) == "terminal"
    assert names.role_name(95) == "document-web"
    assert names.role_name(names.ROLE_EXTENDED) is None
    assert names.role_name(9999) is None
    mask = names.SHOWING | names.VISIBLE | names.FOCUSED | names.MANAGES_DESCENDANTS | names.ACTIVE
    assert names.state_names(mask) == ["active", "focused", "showing", "visible", "manages_descendants"]
    assert (names.SHOWING, names.VISIBLE, names.FOCUSED) == (1 << 25, 1 << 30, 1 << 12)


def test_xml_names_are_made_of_anything() -> None:
    """Names that XML does not allow get a prefix and dashes."""
    assert xml_name("push button") == "push-button"
    assert xml_name("1st") == "tag1st"
    assert xml_name("") == "tag"
    assert xml_name("a:b<c") == "a-b-c"


def test_boxes_are_clipped_to_what_shows() -> None:
    """The part of a sheet that is seen lies within all that contains it."""
    assert Box(0, 0, 100, 100).clip(Box(50, 60, 100, 10)) == Box(50, 60, 50, 10)
    assert Box(0, 0, 10, 10).clip(Box(20, 0, 10, 10)).width == 0


def test_cells_are_forgotten_before_they_die() -> None:
    """A cell object lives for a while after it was handed out, and is not used for longer."""
    now = 100.0
    cells = Cells(clock=lambda: now)
    table, cell = Ref(":1.4", "/t"), Ref(":1.4", "/c")
    cells.put(table, 1, 2, cell)
    assert cells.get(table, 1, 2) == cell
    assert cells.get(table, 2, 1) is None
    now += Cells.LIFE_S
    assert cells.get(table, 1, 2) is None
