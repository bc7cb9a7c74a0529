"""Getters of a browser's tabs."""

from __future__ import annotations

import json
from typing import Annotated, Any, Literal

from pydantic import Field, model_validator

from osgym_host.tasks.getter_plugin import (
    GUEST_TIMEOUT_S,
    LenientBool,
    NoParameters,
    Parameters,
    TaskRun,
    Value,
    getter,
)
from osgym_osworld.browser import tabs
from osgym_osworld.browser.errors import BrowserProblem, as_result_error
from osgym_osworld.browser.page_script import Query, Wanted
from osgym_osworld.browser.steps import PageUrl

CLOSED_WAIT_S = 3.0
START_S = 20.0
MAX_KEYS = 64

Key = Annotated[str, Field(max_length=400)]
Index = Annotated[int, Field(ge=0, lt=500)]
Keys = Annotated[list[Key], Field(max_length=MAX_KEYS)]
Table = Annotated[dict[Key, Key], Field(max_length=MAX_KEYS)]
Indexed = Annotated[
    dict[Key, Annotated[dict[Index, Key], Field(max_length=MAX_KEYS)]], Field(max_length=MAX_KEYS)
]
Named = Annotated[dict[Key, Annotated[list[Key], Field(max_length=MAX_KEYS)]], Field(max_length=MAX_KEYS)]


class AddressParameters(Parameters):
    """Form of the address.

    Attributes:
        goto_prefix: What the address bar leaves out, put before what it shows.
    """

    goto_prefix: Key = "https://"


async def _address(run: TaskRun, prefix: str, want: dict[str, Any] | None = None) -> Value:
    """Return the address of the tab in front, or a part of it, made in the confined process.

    The browser is asked; where it cannot be, the accessibility tree has what its address bar shows.
    """
    said: dict[str, Any] = {"prefix": prefix, "want": want}
    try:
        port = await tabs.find_port(run, wait_s=CLOSED_WAIT_S)
        said["url"] = (await tabs.read_front(run, port, ()))[0].url
    except BrowserProblem:
        timeout_s = run.left("the accessibility tree", GUEST_TIMEOUT_S)
        said["tree"] = await run.guest.accessibility(timeout_s=timeout_s)
    data = json.dumps(said).encode("utf-8", "surrogatepass")
    return Value(files=(await run.keep(data, "address.json"),), reader="active_url")


@getter(AddressParameters)
async def active_url_from_access_tree(run: TaskRun, parameters: AddressParameters) -> Value:
    """The address of the tab in front, as its address bar shows it."""
    return await _address(run, parameters.goto_prefix)


class UrlParseParameters(AddressParameters):
    parse_keys: Keys
    replace: Table = Field(default={})
    split_list: LenientBool = False


@getter(UrlParseParameters)
async def active_tab_url_parse(run: TaskRun, parameters: UrlParseParameters) -> Value:
    """Values of the query of the address in front."""
    want = {"keys": parameters.parse_keys, "renamed": parameters.replace, "split": parameters.split_list}
    return await _address(run, parameters.goto_prefix, want)


class ProductUrlParameters(AddressParameters):
    parse_keys: Keys


@getter(ProductUrlParameters)
async def url_path_parse(run: TaskRun, parameters: ProductUrlParameters) -> Value:
    """Filters of a shop in the path of the address in front: `names,…/values,…`, as OSWorld reads it."""
    return await _address(run, parameters.goto_prefix, {"filters": parameters.parse_keys})


class UrlPartParameters(AddressParameters):
    part_index: Annotated[int, Field(alias="partIndex", ge=-100, le=100)]
    without_query: LenientBool = Field(alias="needDeleteId", default=False)
    return_type: Literal["string", "json"] = Field(alias="returnType")
    key: Key | None = None

    @model_validator(mode="after")
    def _named(self) -> UrlPartParameters:
        if self.return_type == "json" and not self.key:
            raise ValueError("returnType json needs the parameter key")
        return self


@getter(UrlPartParameters)
async def url_dash_part(run: TaskRun, parameters: UrlPartParameters) -> Value:
    """Part between two slashes of the address in front."""
    want = {
        "part": parameters.part_index,
        "without_query": parameters.without_query,
        "key": parameters.key if parameters.return_type == "json" else None,
    }
    return await _address(run, parameters.goto_prefix, want)


@getter(AddressParameters)
async def active_tab_info(run: TaskRun, parameters: AddressParameters) -> Value:
    """Title, address and HTML of the tab in front, as it is: it is not loaded again."""
    async with as_result_error(run):
        port = await tabs.find_port(run, wait_s=CLOSED_WAIT_S)
        tab, (title, _, content) = await tabs.read_front(run, port, tabs.PAGE)
    return Value(data=tabs.page_of(title, [tab.url], content))


@getter(NoParameters)
async def open_tabs_info(run: TaskRun, parameters: NoParameters) -> Value:
    """Title and address of each tab."""
    async with as_result_error(run):
        port = await tabs.find_port(run, wait_s=START_S, start=True)
        return Value(data=[{"title": t.title, "url": t.url} for t in await tabs.listed(run, port)])


class PageParameters(Parameters):
    url: PageUrl


@getter(PageParameters)
async def page_info(run: TaskRun, parameters: PageParameters) -> Value:
    """Title, address and HTML of a page that is opened for it."""
    async with as_result_error(run):
        port = await tabs.find_port(run, wait_s=START_S, start=True)
        return Value(data=await tabs.visit(run, port, parameters.url))


class HtmlParameters(Parameters):
    """Texts of the page in front: OSWorld's tables, from what is looked for to its name in the result."""

    category: Literal["class", "label", "xpath", "input", "class&url"]
    single: Table = Field(alias="class_singleObject", default={})
    several: Indexed | Named = Field(alias="class_multiObject", default={})
    own: Indexed = Field(alias="class_multiObject_child", default={})
    headings: Indexed = Field(alias="class_multiObject_only_child", default={})
    existing: Named = Field(alias="class_multiObject_search_exist", default={})
    products: Named = Field(alias="class_multiObject_li", default={})
    labels: Table = Field(alias="labelObject", default={})
    xpaths: Table = Field(alias="xpathObject", default={})
    inputs: Table = Field(alias="inputObject", default={})
    in_url: Keys = Field(alias="url_include_expected", default=[])
    in_url_as: Table = Field(alias="url_include_expected_multichoice", default={})

    @model_validator(mode="after")
    def _fits(self) -> HtmlParameters:
        named = any(isinstance(entry, list) for entry in self.several.values())
        indexed = any(isinstance(entry, dict) for entry in self.several.values())
        if (named and self.category == "class") or (indexed and self.category == "class&url"):
            raise ValueError("class_multiObject names texts by index for class, by themselves for class&url")
        return self

    @property
    def wanted(self) -> Wanted:
        match self.category:
            case "class":
                return self._of_classes()
            case "class&url":
                return self._of_classes_and_url()
            case "label":
                table = self.labels
            case "xpath":
                table = self.xpaths
            case "input":
                table = self.inputs
        return Wanted({key: (Query(self.category, what), 0) for what, key in table.items()})

    def _of_classes_and_url(self) -> Wanted:
        tables = (("class", self.several), ("product", self.products))
        return Wanted(
            places={},
            choices=[(Query(by, n), tuple(texts)) for by, table in tables for n, texts in _named(table)],
            in_url=[*((text, text) for text in self.in_url), *self.in_url_as.items()],
        )

    def _of_classes(self) -> Wanted:
        places: dict[str, tuple[Query, int]] = {}
        for by, indexed in (("class", self.several), ("own", self.own), ("heading", self.headings)):
            for name, keys in indexed.items():
                assert isinstance(keys, dict)
                places.update({key: (Query(by, name), index) for index, key in keys.items()})
        places.update({key: (Query("class", name), 0) for name, key in self.single.items()})
        return Wanted(places, existing=[(Query("class", n), texts) for n, texts in self.existing.items()])


def _named(table: Indexed | Named) -> list[tuple[str, list[str]]]:
    return [(name, texts) for name, texts in table.items() if isinstance(texts, list)]


@getter(HtmlParameters)
async def active_tab_html_parse(run: TaskRun, parameters: HtmlParameters) -> Value:
    """Texts of the page in front."""
    wanted = parameters.wanted
    async with as_result_error(run):
        port = await tabs.find_port(run, wait_s=CLOSED_WAIT_S)
        tab, answers = await tabs.read_front(run, port, wanted.queries)
    found = dict(zip(wanted.queries, answers, strict=False))
    return Value(data=wanted.values(found, tab.url))
