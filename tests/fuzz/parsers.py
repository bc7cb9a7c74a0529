"""Targets that are functions: records, messages of the host API, action grammars, forms, the proxy."""

from __future__ import annotations

import contextlib
import dataclasses
import json
from collections.abc import Iterator
from typing import Any

from osgym_guest.http import HttpError, Request
from osgym_host.actions import BadAction, parse_actions
from osgym_host.runtimes.web import har, heads
from osgym_protocol import actions as internal
from osgym_protocol import host_api
from osgym_protocol.a11y import MAX_TEXT_CHARS, InvalidTree, parse_tree
from osgym_protocol.codec import Message, WireFormatError
from osgym_protocol.limits import MAX_WHY_CHARS
from osgym_protocol.options import parse_observe, parse_settle
from osgym_protocol.records import RecordDecoder, decode_record
from tests.fuzz.engine import Run, Target
from tests.fuzz.mutation import after, mutate, mutate_record

SCREEN = (1920, 1080)


@contextlib.contextmanager
def records() -> Iterator[Run]:
    """One record at once and in pieces: both say the same, and a taken one can be passed on."""

    def run(data: bytes) -> None:
        step, data = 1 + data[0] if data else 1, data[1:]
        whole: Any
        try:
            whole = [decode_record(data)]
        except WireFormatError:
            whole = None
        decoder, found = RecordDecoder(), []
        try:
            for at in range(0, len(data), step):
                found += list(decoder.feed(data[at : at + step]))
            decoder.close()
        except WireFormatError:
            found = []
        if whole is not None:
            assert found == whole, "one record, two readings"
        for record in found:
            json.dumps(record.meta, ensure_ascii=False, allow_nan=False).encode()

    yield run


@contextlib.contextmanager
def messages() -> Iterator[Run]:
    """Every message of the host API is made of JSON or refused, and says the same again."""
    kinds = [kind for kind in vars(host_api).values() if isinstance(kind, type) and issubclass(kind, Message)]
    kinds = [kind for kind in kinds if dataclasses.is_dataclass(kind)]  # the bases are none

    def run(data: bytes) -> None:
        try:
            value = json.loads(data[1:])
        except (ValueError, RecursionError):
            return
        for kind in kinds if data[0] == 255 else [kinds[data[0] % len(kinds)]]:
            with contextlib.suppress(WireFormatError):
                kind.from_dict(value).to_dict()
        for parse in (parse_settle, parse_observe):
            with contextlib.suppress(WireFormatError):
                parse(value).to_dict()

    yield run


@contextlib.contextmanager
def actions() -> Iterator[Run]:
    """A step's actions, each a text or an object in any grammar; the guest takes what the host let pass."""

    def run(data: bytes) -> None:
        try:
            given = json.loads(data)
        except (ValueError, RecursionError):
            given = [data.decode("utf-8", "replace")]
        try:
            parsed = parse_actions(given if isinstance(given, list) else [given], SCREEN)
        except BadAction as error:
            assert len(str(error)) <= 2 * MAX_WHY_CHARS, "a refusal that nobody can read"
            return
        for_guest = [action for action in parsed.actions if action["op"] not in ("done", "fail")]
        internal.parse_actions(json.loads(json.dumps(for_guest, allow_nan=False)), SCREEN)

    yield run


@contextlib.contextmanager
def guest_actions() -> Iterator[Run]:
    """What the guest is given as actions, whoever sent it."""

    def run(data: bytes) -> None:
        try:
            given = json.loads(data)
        except (ValueError, RecursionError):
            return
        try:
            internal.parse_actions(given, SCREEN)
        except internal.InvalidAction as error:
            assert len(error.message) <= MAX_WHY_CHARS

    yield run


@contextlib.contextmanager
def forms() -> Iterator[Run]:
    """Uploads and JSON bodies as the guest reads them; the first line is the content type."""

    def run(data: bytes) -> None:
        kind, _, body = data.partition(b"\n")
        request = Request("POST", "/", headers={"content-type": kind.decode("latin-1")}, body=body)
        for read in (request.form, request.json_object):
            with contextlib.suppress(HttpError):
                read()

    yield run


@contextlib.contextmanager
def trees() -> Iterator[Run]:
    """An accessibility tree, whole or cut: bounded, written as lines, or refused with the one error."""

    def run(data: bytes) -> None:
        truncated = bool(data[:1] > b"\x7f")
        try:
            tree = parse_tree(data[1:], max_nodes=50, truncated=truncated)
        except InvalidTree:
            return
        nodes = list(tree.nodes())
        assert 1 <= len(nodes) <= 50
        assert all(len(node.text) <= MAX_TEXT_CHARS for node in nodes)
        assert all(line.count("\t") == 4 for line in tree.to_text().split("\n"))
        assert all(line.count("\t") == 4 for line in tree.to_text(max_lines=2).split("\n"))

    yield run


@contextlib.contextmanager
def proxy_heads() -> Iterator[Run]:
    """The head of a request to the proxy: refused, or nothing in it can be read as another."""

    def run(data: bytes) -> None:
        try:
            head = heads.parse(data)
        except heads.Refused:
            return
        values = [head.method.encode(), head.path.encode(), *(part for pair in head.headers for part in pair)]
        assert not any(end in value for value in values for end in (b"\r", b"\n", b"\0"))
        if head.target is not None:
            assert heads.parse_host(head.target.host) == head.target.host
            assert 1 <= head.target.port <= 65535

    yield run


@contextlib.contextmanager
def har_entries() -> Iterator[Run]:
    """An entry of an archive: refused, left out, or an answer that is written and read as the same again."""

    def run(data: bytes) -> None:
        try:
            entry = json.loads(data)
        except (ValueError, RecursionError):
            return
        try:
            found = har.read_entry(entry)
        except har.ArchiveError:
            return
        if found is None:
            return
        url, answer = found
        again = har.read_entry(json.loads(har.write_entry(url, (), answer, "2030-01-01T00:00:00Z", 1.0)))
        assert again == (url, answer)

    yield run


PARSERS = [
    Target("trees", trees, ("osgym_protocol/a11y",), after(1, mutate)),
    Target("records", records, ("osgym_protocol/records", "osgym_protocol/codec"), after(1, mutate_record)),
    Target("messages", messages, ("osgym_protocol/",), after(1, mutate)),
    Target("actions", actions, ("osgym_host/actions.py", "osgym_protocol/actions")),
    Target("guest_actions", guest_actions, ("osgym_protocol/actions",)),
    Target("forms", forms, ("osgym_guest/urlencoded", "osgym_guest/http.py")),
    Target("proxy_heads", proxy_heads, ("runtimes/web/heads",)),
    Target("har_entries", har_entries, ("runtimes/web/har",)),
]
