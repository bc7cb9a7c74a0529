"""How `osgym ps`, `osgym shot` and `osgym checkpoint` reach a running host agent and show its answers."""

from __future__ import annotations

import contextlib
import os
import ssl
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

import click
import httpx
from rich.console import Console
from rich.table import Table

from osgym_protocol.http_clients import make_client
from osgym_protocol.proxies import host_route

DEFAULT_URL = "http://127.0.0.1:20000"


def url_option(command: Any) -> Any:
    """Add `--url`."""
    return click.option(
        "--url",
        default=lambda: os.environ.get("OSGYM_HOSTS", DEFAULT_URL).split(",")[0],
        help=f"The host agent; default OSGYM_HOSTS or {DEFAULT_URL}.",
    )(command)


def get(url: str, path: str) -> httpx.Response:
    """Call the agent with the token of `OSGYM_TOKEN`.

    Raises:
        click.ClickException: It cannot be reached, or it refuses; the message says which.
    """
    return call(url, "GET", path, timeout_s=20)


def call(
    url: str,
    method: str,
    path: str,
    *,
    content: Iterable[bytes] | None = None,
    headers: Mapping[str, str] | None = None,
    timeout_s: float = 600.0,
) -> httpx.Response:
    """The same for any method.

    Raises:
        click.ClickException: As `get`.
    """
    with _client(url, timeout_s) as client:
        try:
            answer = client.request(method, path, content=content, headers=headers)
        except httpx.HTTPError as error:
            raise _unreachable(url, error) from error
    _check(url, path, answer)
    return answer


@contextlib.contextmanager
def streamed(url: str, path: str, timeout_s: float = 600.0) -> Iterator[httpx.Response]:
    """An answer to a GET that is read piece by piece.

    Raises:
        click.ClickException: As `get`; also when the connection breaks inside the block.
    """
    with _client(url, timeout_s) as client:
        try:
            with client.stream("GET", path) as answer:
                if answer.status_code >= 400:
                    answer.read()
                _check(url, path, answer)
                yield answer
        except httpx.HTTPError as error:
            raise _unreachable(url, error) from error


def show(names: Sequence[str], figures: Sequence[str], rows: Iterable[Sequence[str]]) -> None:
    """Print a table: columns of names to the left, columns of figures to the right."""
    table = Table(box=None, pad_edge=False)
    for name in names:
        table.add_column(name)
    for name in figures:
        table.add_column(name, justify="right")
    for row in rows:
        table.add_row(*row)
    Console().print(table)


def span(seconds: float) -> str:
    """Return a time span as people say it."""
    if seconds < 120:
        return f"{max(0.0, seconds):.0f} s"
    return f"{seconds / 60:.0f} min" if seconds < 7200 else f"{seconds / 3600:.1f} h"


def credentials() -> tuple[dict[str, str], ssl.SSLContext | bool]:
    """Return the headers with the token of `OSGYM_TOKEN`, and how certificates are checked (`OSGYM_CA`).

    Raises:
        click.ClickException: `OSGYM_CA` names no file with certificates.
    """
    token, ca = os.environ.get("OSGYM_TOKEN"), os.environ.get("OSGYM_CA")
    headers = {"Authorization": f"Bearer {token}"} if token else {}
    try:
        return headers, ssl.create_default_context(cafile=ca) if ca else True
    except (OSError, ssl.SSLError) as error:
        raise click.ClickException(
            f"OSGYM_CA: {ca} holds no certificates that can be read: {error}"
        ) from error


def _client(url: str, timeout_s: float) -> httpx.Client:
    headers, verify = credentials()
    route = host_route(os.environ)
    return make_client(route, base_url=url, headers=headers, verify=verify, timeout=timeout_s)


def _unreachable(url: str, error: httpx.HTTPError) -> click.ClickException:
    return click.ClickException(f"cannot reach {url}: {error} (is `osgym serve` running?)")


def _check(url: str, path: str, answer: httpx.Response) -> None:
    if answer.status_code >= 400:
        raise click.ClickException(f"{url}{path}: {answer.status_code} {_message(answer)}")


def _message(answer: httpx.Response) -> str:
    try:
        return str(answer.json()["message"])
    except (ValueError, KeyError, TypeError):
        return answer.text[:200]
