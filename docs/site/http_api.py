"""The site's page of every call of host API v1, from the committed OpenAPI description. Pure."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from osgym_host.http.scopes import OPEN, ROUTES

DESCRIPTION = Path(__file__).resolve().parents[2] / "host_agent/openapi.json"
BOUNDS = {
    "minimum": "≥ {}", "maximum": "≤ {}", "exclusiveMinimum": "> {}", "exclusiveMaximum": "< {}",
    "minLength": "{} or more characters", "maxLength": "at most {} characters",
    "minItems": "{} or more", "maxItems": "at most {}", "pattern": "`{}`", "format": "{}",
}  # fmt: skip
"""What a schema says of a value, and how the page does."""
Schema = Mapping[str, Any]


def page() -> str:
    """The page: calls by what they are about, then the objects that they take and give."""
    api = json.loads(DESCRIPTION.read_text("utf-8"))
    by_tag: dict[str, list[str]] = {}
    for path, calls in api["paths"].items():
        for method, call in calls.items():
            by_tag.setdefault(call["tags"][0], []).append("\n".join(_call(method.upper(), path, call)))
    about = api["info"]
    parts = [
        "# Every call",
        f"Of {about['title']} {about['version']}: {about['description']}",
        "How they work together is said in [protocols](../docs/protocol.md), what a scope is in "
        "[security](../docs/security.md#tokens-with-a-scope). The description itself is "
        "`host_agent/openapi.json`; `osgym host openapi` prints it.",
    ]
    for tag, calls in by_tag.items():
        parts += [f"## {tag}", *calls]
    parts += [
        "## Objects",
        *("\n".join(_object(name, s)) for name, s in sorted(api["components"]["schemas"].items())),
    ]
    return "\n\n".join(parts) + "\n"


def _call(method: str, path: str, call: Mapping[str, Any]) -> Iterator[str]:
    yield f"### {method} {path}\n"
    yield f"{_text(call.get('description') or call['summary'])}\n"
    route = f"{method} {path}"
    yield f"Scope: {'none, it is open' if route in OPEN else f'`{ROUTES[route]}`'}\n"
    rows = [
        (
            _named(one["name"], one.get("required")),
            one["in"],
            _type(one["schema"]),
            one.get("description", ""),
        )
        for one in call.get("parameters", ())
    ]
    yield from _table(("parameter", "in", "type", "meaning"), rows)
    for media, body in call.get("requestBody", {}).get("content", {}).items():
        yield f"Body, `{media}`: {_type(body.get('schema', {}))}\n"
    yield "| answer | is |\n|---|---|"
    for status, answer in call["responses"].items():
        types = ", ".join(
            f"`{media}` {_type(_meant(found.get('schema', {})))}"
            for media, found in answer.get("content", {}).items()
        )
        yield f"| {'any error' if status == 'default' else status} | {_text(answer['description'])} {types} |"


def _meant(schema: Schema) -> Schema:
    """The meta of a record in the place of its bytes."""
    meta: Schema = schema.get("x-meta", schema)
    return meta


def _object(name: str, schema: Schema) -> Iterator[str]:
    yield f"### {name}\n"
    if told := schema.get("description"):
        yield f"{_text(told)}\n"
    if "enum" in schema:
        yield _type(schema)
        return
    required = schema.get("required", ())
    rows = [
        (
            _named(field, field in required),
            _type(value),
            f"`{json.dumps(value['default'])}`" if "default" in value else "",
            value.get("description", ""),
        )
        for field, value in schema.get("properties", {}).items()
    ]
    yield from _table(("field", "type", "default", "meaning"), rows)


def _table(head: Sequence[str], rows: Sequence[Sequence[str]]) -> Iterator[str]:
    """A table, without the columns that are empty; nothing where there are no rows."""
    kept = [column for column in range(len(head)) if any(row[column] for row in rows)]
    if not kept:
        return
    yield f"| {' | '.join(head[column] for column in kept)} |\n|{'---|' * len(kept)}"
    for row in rows:
        yield f"| {' | '.join(_text(row[column]) for column in kept)} |"
    yield ""


def _named(name: str, required: object) -> str:
    return f"`{name}`, needed" if required else f"`{name}`"


def _type(schema: Schema) -> str:
    """A type in a few words, objects as links to where they are described."""
    if "$ref" in schema:
        name = schema["$ref"].rpartition("/")[2]
        return f"[{name}](#{name.lower()})"
    for many in ("anyOf", "oneOf", "allOf"):
        if many in schema:
            return " or ".join(_type(one) for one in schema[many])
    if "enum" in schema:
        return ", ".join(f"`{value}`" for value in schema["enum"])
    if "const" in schema:
        return f"`{schema['const']}`"
    name = schema.get("type", "anything")
    if name == "array":
        inner = schema.get("prefixItems")
        of = ", ".join(map(_type, inner)) if inner else _type(schema.get("items", {}))
        name = f"list of {of}"
    elif name == "object" and isinstance(schema.get("additionalProperties"), dict):
        name = f"object of {_type(schema['additionalProperties'])}"
    bounds = [form.format(_number(schema[key])) for key, form in BOUNDS.items() if key in schema]
    return _cell(f"{name} ({', '.join(bounds)})" if bounds else name)


def _number(value: object) -> object:
    return int(value) if isinstance(value, float) and value.is_integer() else value


def _text(text: str) -> str:
    """In one line, and in a cell of a table; what stands in braces is no template of anybody's."""
    return _cell(" ".join(re.sub(r"``([^`]*)``", r"`\1`", text).split()))


def _cell(text: str) -> str:
    return re.sub(r"(?<!\\)\|", r"\\|", text)
