"""The web of real desktops: Chromium, curl and Python through the proxy, a site recorded and replayed."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from tests.support.host_process import running_host, wait_until
from tests.support.small_internet import PAGE, SITE, SmallInternet, small_internet

from osgym_host.images.errors import ImageError
from osgym_host.images.store import ImageStore, default_data_dir
from osgym_host.runtimes.web.options import TEST_WORLD
from osgym_sdk import Client, Episode

pytestmark = [pytest.mark.desktop, pytest.mark.full_image]


TASK = {
    "id": "shop",
    "instruction": "Open the shop.",
    "config": [
        {"type": "launch", "parameters": {"command": ["google-chrome", "--remote-debugging-port=1337"]}},
        {
            "type": "launch",
            "parameters": {"command": ["socat", "tcp-listen:9222,fork", "tcp:localhost:1337"]},
        },
        {"type": "chrome_open_tabs", "parameters": {"urls_to_open": [f"https://{SITE}/"]}},
    ],
    "evaluator": {
        "func": "is_expected_tabs",
        "result": {"type": "open_tabs_info"},
        "expected": {"type": "rule", "rules": {"type": "url", "urls": [f"https://{SITE}/"]}},
    },
}
"""A task of OSWorld's form that needs the internet, but for a replay."""


@pytest.fixture
def internet(tmp_path: Path) -> Iterator[SmallInternet]:
    """Sites that only the proxy knows."""
    with small_internet(tmp_path) as running:
        yield running


def titles(episode: Episode) -> list[str]:
    """Titles of the browser's pages."""
    found = episode.execute(["curl", "-s", "--max-time", "5", "http://127.0.0.1:1337/json"]).stdout
    pages: list[dict[str, Any]] = json.loads(found or "[]")
    return [page["title"] for page in pages if page["type"] == "page"]


def browse(episode: Episode, url: str, title: str) -> None:
    """Open a page in the desktop's browser and wait for its title."""
    episode.execute(f"google-chrome --remote-debugging-port=1337 '{url}' >/dev/null 2>&1 &")
    wait_until(lambda: title in titles(episode), 60, f"{title!r} among the browser's titles")


def visit(episode: Episode) -> None:
    """Everything that is to work in a desktop with this site, with no setting of the programs' own."""
    browse(episode, f"https://{SITE}/", "Visit 1")  # its script has fetched /count
    assert episode.execute(["curl", "-sS", f"https://{SITE}/"]).output == PAGE
    code = f"import urllib.request as u; print(u.urlopen('https://{SITE}/count').read().decode())"
    assert episode.execute(["python3", "-c", code]).output.strip() == "1"
    assert episode.execute(["curl", "-sS", f"http://{SITE}/style.css"]).output.startswith("h1 {")
    server = "python3 -m http.server 8123 --bind 127.0.0.1 --directory /usr/share/osgym >/dev/null 2>&1 &"
    episode.execute(server + " sleep 1")
    inside = episode.execute(
        ["curl", "-sS", "-o", "/dev/null", "-w", "%{http_code}", "http://127.0.0.1:8123/"]
    )
    assert inside.output == "200"  # what is served inside is reached directly


def test_a_site_is_recorded_by_a_desktop_and_replayed_in_others(
    internet: SmallInternet, tmp_path: Path
) -> None:
    """By Chromium, curl and Python; then from the archive alone, the same in each desktop."""
    try:
        ImageStore(default_data_dir()).resolve("full")
    except ImageError:
        pytest.skip("missing: the golden image full")
    archive = tmp_path / "shop.har"
    options = {"image": "full", "warm": 1, "max_replicas": 2, "log_dir": tmp_path}
    options["env"] = {TEST_WORLD: str(internet.world)}
    kept = f"web_archive={archive}"
    recording = ("web=record", kept, "egress=allowlist", f"egress_allow={SITE}")
    with (
        running_host(f"web-record-{os.getpid()}", settings=recording, **options) as host,
        Client(host.url) as client,
        client.episode(wait_s=90) as episode,
    ):
        visit(episode)
    asked = internet.paths()
    assert {"/", "/count", "/dot.png", "/style.css"} <= set(asked)
    assert asked.count("/count") == 1
    internet.asked.clear()
    with (
        running_host(f"web-replay-{os.getpid()}", settings=("web=replay", kept), **options) as host,
        Client(host.url) as client,
    ):
        with client.episode(wait_s=90) as episode:
            visit(episode)
            browse(episode, f"https://{SITE}/never", "web_not_recorded")
        with client.episode(TASK, wait_s=90) as episode:
            evaluation = episode.evaluate()
            assert evaluation.reward == 1.0, evaluation
    assert internet.asked == []
