"""How `osgym ps` and `osgym shot` reach a running host agent."""

from __future__ import annotations

import os
from typing import Any

import click
import httpx

DEFAULT_URL = "http://127.0.0.1:20000"


def url_option(command: Any) -> Any:
    """Adds `--url`."""
    return click.option(
        "--url",
        default=lambda: os.environ.get("OSGYM_HOSTS", DEFAULT_URL).split(",")[0],
        help=f"The host agent; default OSGYM_HOSTS or {DEFAULT_URL}.",
    )(command)


def get(url: str, path: str) -> httpx.Response:
    """Calls the agent with the token of `OSGYM_TOKEN`.

    Raises:
        click.ClickException: It cannot be reached, or it refuses; the message says which.
    """
    token = os.environ.get("OSGYM_TOKEN")
    headers = {"Authorization": f"Bearer {token}"} if token else {}
    verify: str | bool = os.environ.get("OSGYM_CA") or True
    try:
        with httpx.Client(base_url=url, headers=headers, verify=verify, timeout=20) as client:
            answer = client.get(path)
    except httpx.HTTPError as error:
        raise click.ClickException(f"cannot reach {url}: {error} (is `osgym serve` running?)") from error
    if answer.status_code >= 400:
        raise click.ClickException(f"{url}{path}: {answer.status_code} {_message(answer)}")
    return answer


def _message(answer: httpx.Response) -> str:
    try:
        return str(answer.json()["message"])
    except (ValueError, KeyError, TypeError):
        return answer.text[:200]
