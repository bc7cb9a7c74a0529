"""Queries to a page, answered by a function of ours in the page, and their values in a task."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

MAX_TEXTS = 500
MAX_TEXT_CHARS = 20_000

READ_PAGE = """
function (queries) {
  const clean = (text) => String(text || "").trim().slice(0, 20000);
  const texts = (nodes) => nodes.map((node) => clean(node.textContent));
  const classes = (name) => Array.from(document.querySelectorAll("." + name)).slice(0, 500);
  const inside = (name, tag) =>
    texts(classes(name).map((node) => node.querySelector(tag)).filter(Boolean));
  const paths = (path) => {
    const kind = XPathResult.ORDERED_NODE_SNAPSHOT_TYPE;
    const found = document.evaluate(path, document, null, kind, null);
    return Array.from({length: Math.min(found.snapshotLength, 500)}, (_, i) => found.snapshotItem(i));
  };
  const labelled = (label) => {
    const text = (node) => String(node.textContent || "").replace(/\\s+/g, " ").toLowerCase();
    const wanted = label.replace(/\\s+/g, " ").trim().toLowerCase();
    const unseen = ["SCRIPT", "STYLE", "NOSCRIPT"];
    const has = (node) => !unseen.includes(node.tagName) && text(node).includes(wanted);
    const all = Array.from(document.body ? document.body.querySelectorAll("*") : []).filter(has);
    return all.filter((node) => !Array.from(node.children).some(has)).slice(0, 1);
  };
  const readers = {
    visible: () => [document.visibilityState],
    title: () => [clean(document.title)],
    url: () => [document.location.href],
    html: () => [document.documentElement.outerHTML.slice(0, 4000000)],
    class: (what) => texts(classes(what)),
    own: (what) => texts(classes(what).slice(0, 1).flatMap((node) => Array.from(node.childNodes))
      .filter((child) => child.nodeType === Node.TEXT_NODE)).filter(Boolean),
    heading: (what) => inside(what, "h3"),
    product: (what) => inside(what + " li.catAllProducts", "span"),
    xpath: (what) => texts(paths(what)),
    input: (what) => paths(what).map((node) => clean(node.value)),
    label: (what) => texts(labelled(what)),
  };
  return queries.map(({by, what}) => { try { return readers[by](what); } catch (error) { return []; } });
}
"""
"""Runs in the page's process, inside the replica; the bounds are checked here again."""


@dataclass(frozen=True, slots=True)
class Query:
    """One question to a page.

    Attributes:
        by: A reader of `READ_PAGE`.
        what: Class, XPath or label.
    """

    by: str
    what: str = ""


Answers = Mapping[Query, Sequence[str]]


@dataclass(frozen=True, slots=True)
class Wanted:
    """Texts that `active_tab_html_parse` wants of a page, by OSWorld's tables.

    Attributes:
        places: Key of the answer → the query and the index of the text that is its value.
        existing: Queries with the texts that are told to be there or not; `is_other_exist` asks for others.
        choices: The same, whatever the case, with others told always.
        in_url: Text in the address → key that says whether it is there, if no query has said so.
    """

    places: Mapping[str, tuple[Query, int]]
    existing: Sequence[tuple[Query, Sequence[str]]] = ()
    choices: Sequence[tuple[Query, Sequence[str]]] = ()
    in_url: Sequence[tuple[str, str]] = ()

    @property
    def queries(self) -> tuple[Query, ...]:
        asked = [query for query, _ in self.places.values()]
        asked += [query for query, _ in (*self.existing, *self.choices)]
        return tuple(dict.fromkeys(asked))

    def values(self, answers: Answers, url: str) -> dict[str, str | bool]:
        """Return the task's values, from what the page answered."""
        found: dict[str, str | bool] = {}
        for key, (query, index) in self.places.items():
            texts = answers.get(query, ())[:MAX_TEXTS]
            found[key] = texts[index][:MAX_TEXT_CHARS] if index < len(texts) else ""
        for query, texts_wanted in self.existing:
            texts = answers.get(query, ())[:MAX_TEXTS]
            found.update({text: text in texts for text in texts_wanted if text != OTHER})
            if OTHER in texts_wanted:
                found[OTHER] = any(text not in texts_wanted for text in texts) or bool(found.get(OTHER))
        for query, texts_wanted in self.choices:
            texts = [text.lower() for text in answers.get(query, ())[:MAX_TEXTS]]
            wanted = [text.lower() for text in texts_wanted]
            found.update({text: True for text in wanted if text in texts})
            others = any(all(text not in choice for choice in wanted) for text in texts)
            found[OTHER] = others or bool(found.get(OTHER))
        for text, key in self.in_url:
            found.setdefault(key.lower(), text.lower() in url.lower())
        return found


OTHER = "is_other_exist"
