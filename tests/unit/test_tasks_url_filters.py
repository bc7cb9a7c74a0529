"""What the path of an address filters by (`url_path_parse`), beside what desktop-env makes of it."""

from __future__ import annotations

import ast
import importlib.util
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from osgym_osworld.browser.urls import path_filters

KEYS = ["Men_regular_size_t", "Price_discount_range", "Sleeve_length", "Product_department", "Absent"]
WORDS = st.sampled_from(
    [
        "shop", "mens-clothing", "shirts", "short-sleeve", "all", ",", "x", "Price_discount_range",
        "Men_regular_size_t,Price_discount_range", "L,50_PERCENT_ off & more", "XL, 30_PERCENT_ off & more",
        "L,50_PERCENT_%20off%20%26%20more|30_PERCENT_ off & more", "Product_department,Sleeve_length",
        "Shirt,Short Sleeve", "Sleeve_length,Men_regular_size_t", "short-sleeve,",
        "Price_discount_range,Absent",
    ]
)  # fmt: skip


def _theirs() -> Callable[[str, list[str]], dict[str, Any]]:
    """desktop-env's function, with the address given to it; its module imports a browser's driver."""
    found = importlib.util.find_spec("desktop_env")
    if found is None or not found.submodule_search_locations:
        pytest.skip("missing: desktop-env")
    path = Path(next(iter(found.submodule_search_locations))) / "evaluators" / "getters" / "chrome.py"
    name = "get_macys_product_url_parse"
    tree = ast.parse(path.read_text())
    tree.body = [node for node in tree.body if isinstance(node, ast.FunctionDef) and node.name == name]
    namespace: dict[str, Any] = {"Dict": dict, "get_active_url_from_accessTree": lambda env, config: env}
    exec(compile(tree, str(path), "exec"), namespace)
    return lambda url, keys: namespace[name](url, {"parse_keys": keys})


def test_a_shops_address() -> None:
    """Flags, a filter by name, half off alone."""
    url = (
        "https://www.macys.com/shop/mens-clothing/mens-shirts/Price_discount_range,Men_regular_size_t/"
        "50_PERCENT_%20off%20%26%20more,L?id=20626"
    )
    assert path_filters(url, KEYS[:2]) == {
        "mens_clothing": True,
        "shirts": True,
        "short_sleeve": None,
        "Men_regular_size_t": "L",
        "Price_discount_range": "50_PERCENT_ off & more",
    }
    nothing = {"mens_clothing": None, "shirts": None, "short_sleeve": None}
    assert path_filters("http://[", ["Absent"]) == nothing


@given(st.lists(WORDS, max_size=6), st.lists(st.sampled_from(KEYS), max_size=5))
def test_it_is_what_osworld_reads(parts: list[str], keys: list[str]) -> None:
    """Of every path that has such parts."""
    url = "https://shop.example/" + "/".join(parts)
    assert path_filters(url, keys) == _theirs()(url, keys)
