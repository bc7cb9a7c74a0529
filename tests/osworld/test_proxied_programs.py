"""Programs of the image `osworld` that read the desktop's settings get out by the host's proxy."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.support.host_process import running_host, wait_until
from tests.support.small_internet import SITE, SmallInternet, small_internet

from osgym_host.images.errors import ImageError
from osgym_host.images.store import ImageStore, default_data_dir
from osgym_host.runtimes.web.options import TEST_WORLD
from osgym_sdk import Client, Episode

pytestmark = [pytest.mark.desktop, pytest.mark.timeout(300)]

PROXY = "http://127.0.0.1:3128"
BARE = ["env", *(f"--unset={name}" for name in ("http_proxy", "https_proxy", "all_proxy", "no_proxy")),
        *(f"--unset={name}" for name in ("HTTP_PROXY", "HTTPS_PROXY", "ALL_PROXY", "NO_PROXY"))]  # fmt: skip
PROFILE = "/home/user/.thunderbird/t5q2a5hp.default-release/user.js"
START_PAGE = (
    'user_pref("mailnews.start_page.enabled", true);\\n'
    'user_pref("mailnews.start_page.url", "http://{site}/from-{who}");\\n'
)


@pytest.fixture
def internet(tmp_path: Path) -> Iterator[SmallInternet]:
    """Sites that only the proxy knows."""
    with small_internet(tmp_path) as running:
        yield running


@pytest.fixture
def desktop(internet: SmallInternet, tmp_path: Path) -> Iterator[Episode]:
    """A desktop whose only way out is the proxy."""
    try:
        ImageStore(default_data_dir()).resolve("osworld")
    except ImageError:
        pytest.skip("missing: golden image 'osworld' (osgym image build --flavor osworld)")
    settings = ("egress=allowlist", f"egress_allow={SITE}", "egress_by=proxy")
    options = {"image": "osworld", "warm": 1, "max_replicas": 1, "log_dir": tmp_path}
    options["env"] = {TEST_WORLD: str(internet.world)}
    with (
        running_host("proxied", settings=settings, **options) as host,
        Client(host.url) as client,
        client.episode(wait_s=90) as episode,
    ):
        yield episode


def test_gsettings_name_the_proxy(desktop: Episode) -> None:
    """What is served inside is still reached directly, and who sets something else has that."""
    asked = ["gsettings", "get", "org.gnome.system.proxy", "mode"]
    assert desktop.execute([*BARE, *asked]).output.strip() == "'manual'"
    host = desktop.execute(["gsettings", "get", "org.gnome.system.proxy.https", "host"])
    assert host.output.strip() == "'127.0.0.1'"
    ignored = desktop.execute(["gsettings", "get", "org.gnome.system.proxy", "ignore-hosts"])
    assert "'localhost'" in ignored.output
    desktop.execute(["gsettings", "set", "org.gnome.system.proxy", "mode", "none"])
    assert desktop.execute(asked).output.strip() == "'none'"


@pytest.mark.parametrize("environment", [[], BARE], ids=["by-environment", "by-settings"])
def test_thunderbird_gets_out(desktop: Episode, internet: SmallInternet, environment: list[str]) -> None:
    """Its start page comes from a site, with and without the variables in its environment."""
    who = "settings" if environment else "environment"
    text = START_PAGE.format(site=SITE, who=who)
    desktop.execute(["sh", "-c", f"printf '{text}' >> {PROFILE}"])
    desktop.execute(" ".join([*environment, "thunderbird"]) + " >/dev/null 2>&1 &")
    wait_until(lambda: f"/from-{who}" in internet.paths(), 90, "Thunderbird has asked for its start page")
