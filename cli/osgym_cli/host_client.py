"""Options of commands that talk to running hosts, and the calls of one host agent."""

from __future__ import annotations

import contextlib
import functools
import os
import ssl
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

import click
import httpx

from osgym_protocol.http_clients import make_async_client, make_client
from osgym_protocol.option_groups import option_group
from osgym_protocol.proxies import host_route

DEFAULT_URL = "http://127.0.0.1:20000"
DEFAULT_HOSTS = f"default OSGYM_HOSTS or {DEFAULT_URL}"
Command = Callable[..., Any]

HOSTS = option_group("Hosts")

token_option = HOSTS(
    "--token", metavar="TOKEN", help="Token of the hosts; default OSGYM_TOKEN, which other users cannot see."
)
json_option = click.option("--json", "as_json", is_flag=True, help="Print JSON.")


@dataclass(frozen=True, slots=True)
class HostClient:
    """One running host agent.

    Every call raises `click.ClickException` if the agent cannot be reached, or refuses.
    """

    url: str
    token: str | None = field(default=None, repr=False)

    def get(self, path: str) -> httpx.Response:
        return self.call("GET", path, timeout_s=20)

    def call(
        self,
        method: str,
        path: str,
        *,
        content: Iterable[bytes] | None = None,
        headers: Mapping[str, str] | None = None,
        timeout_s: float = 600.0,
    ) -> httpx.Response:
        with self._client(timeout_s) as client:
            try:
                answer = client.request(method, path, content=content, headers=headers)
            except httpx.HTTPError as error:
                raise self._unreachable(error) from error
        self._check(path, answer)
        return answer

    @contextlib.contextmanager
    def stream(self, path: str, timeout_s: float = 600.0) -> Iterator[httpx.Response]:
        """GET an answer that is read piece by piece inside the block."""
        with self._client(timeout_s) as client:
            try:
                with client.stream("GET", path) as answer:
                    if answer.status_code >= 400:
                        answer.read()
                    self._check(path, answer)
                    yield answer
            except httpx.HTTPError as error:
                raise self._unreachable(error) from error

    def _client(self, timeout_s: float) -> httpx.Client:
        headers, verify = _credentials(self.token)
        route = host_route(os.environ)
        return make_client(route, base_url=self.url, headers=headers, verify=verify, timeout=timeout_s)

    def _unreachable(self, error: httpx.HTTPError) -> click.ClickException:
        return click.ClickException(
            f"cannot reach {self.url}: {error} (start a host agent with `osgym host serve`, or name "
            "another with --host)"
        )

    def _check(self, path: str, answer: httpx.Response) -> None:
        if answer.status_code >= 400:
            raise click.ClickException(f"{self.url}{path}: {answer.status_code} {_message(answer)}")


def host_option(metavar: str, help_text: str) -> Callable[[Command], Command]:
    return HOSTS("--host", metavar=metavar, help=help_text)


def with_options(command: Command, options: Iterable[Callable[[Command], Command]]) -> Command:
    """Add options, shown in their order in --help."""
    for option in reversed(tuple(options)):
        command = option(command)
    return command


def host_options(command: Command) -> Command:
    """Add `--host` and `--token`; the command's argument `host` is a `HostClient`."""

    @functools.wraps(command)
    def run(*args: Any, host: str | None, url: str | None, token: str | None, **options: Any) -> Any:
        given = host or _url_option(url) or os.environ.get("OSGYM_HOSTS", DEFAULT_URL).split(",")[0]
        return command(*args, host=HostClient(given, token), **options)

    options = (host_option("URL", f"Host agent; {DEFAULT_HOSTS}."), _OLD_URL, token_option)
    return with_options(run, options)


def host_list_options(command: Command) -> Command:
    """Add `--host` for several hosts, and `--token`; the command's argument `hosts` lists `HostClient`s."""

    @functools.wraps(command)
    def run(*args: Any, host: str | None, url: str | None, token: str | None, **options: Any) -> Any:
        given = host or _url_option(url) or os.environ.get("OSGYM_HOSTS") or DEFAULT_URL
        urls = [one.strip().rstrip("/") for one in given.split(",") if one.strip()]
        if not urls:
            raise click.UsageError("--host is empty: give the URL of a host agent")
        return command(*args, hosts=[HostClient(one, token) for one in urls], **options)

    help_text = f"Host agents, separated by commas; {DEFAULT_HOSTS}."
    return with_options(run, (host_option("URLS", help_text), _OLD_URL, token_option))


def async_client(token: str | None, timeout_s: float) -> httpx.AsyncClient:
    """Make a client for calls of several hosts at once."""
    headers, verify = _credentials(token)
    return make_async_client(host_route(os.environ), headers=headers, verify=verify, timeout=timeout_s)


def format_span(seconds: float) -> str:
    """Format a time span in the unit that people say."""
    if seconds < 120:
        return f"{max(0.0, seconds):.0f} s"
    return f"{seconds / 60:.0f} min" if seconds < 7200 else f"{seconds / 3600:.1f} h"


def memory_mib(row: Mapping[str, Any]) -> float | None:
    """Return the memory of a replica of `GET /v1/replicas`: with its pages in swap, what those occupy."""
    resting: float | None = row.get("resting_mib") if row.get("rest") == "reclaimed" else None
    awake: float | None = row["pss_mib"]
    return awake if resting is None else resting


_OLD_URL = click.option("--url", hidden=True, metavar="URL", help="Spelling of --host before version 0.2.")


def _url_option(url: str | None) -> str | None:
    if url is not None:
        click.echo("osgym: `--url` is now `--host`; the next release takes only that", err=True)
    return url


def _credentials(token: str | None) -> tuple[dict[str, str], ssl.SSLContext | bool]:
    """Return the header with the token, and how certificates are checked (`OSGYM_CA`).

    Raises:
        click.ClickException: `OSGYM_CA` names no file with certificates.
    """
    token, ca = token or os.environ.get("OSGYM_TOKEN"), os.environ.get("OSGYM_CA")
    headers = {"Authorization": f"Bearer {token}"} if token else {}
    try:
        return headers, ssl.create_default_context(cafile=ca) if ca else True
    except (OSError, ssl.SSLError) as error:
        raise click.ClickException(f"OSGYM_CA: {ca} has no readable certificates: {error}") from error


def _message(answer: httpx.Response) -> str:
    try:
        return str(answer.json()["message"])
    except (ValueError, KeyError, TypeError):
        return answer.text[:200]
