"""A runtime of a stranger's distribution: installed, served by a real host agent, stepped."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
from tests.support.host_process import osgym, running_host
from tests.support.plugin_packages import install_plugin

from osgym_sdk import Client


@pytest.fixture(scope="module")
def environment(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    """The paper runtime, installed."""
    return install_plugin("paper_runtime", tmp_path_factory.mktemp("paper"))


def test_an_episode_runs_on_a_runtime_of_an_extension(environment: dict[str, str], tmp_path: Path) -> None:
    """A click changes the screen, its settings are read, and the host leaves nothing behind."""
    settings = ("runtime=paper", "paper.colour=#102030", "ram_reserve_mib=0", "disk_reserve_mib=0")
    with (
        running_host(
            "paper", settings=settings, data_dir=tmp_path, log_dir=tmp_path, env=environment
        ) as host,
        Client(host.url) as client,
        client.episode() as episode,
    ):
        assert host.get("/v1/host")["runtime"] == "paper"
        assert episode.observation.image.getpixel((100, 200)) == (0x10, 0x20, 0x30)
        observation = episode.step("click(100,200)")
        assert observation.settle.reason == "quiet"
        assert observation.image.getpixel((100, 200)) == (0, 0, 0)
        with client.episode() as fresh:
            assert fresh.observation.image.getpixel((100, 200)) == (0x10, 0x20, 0x30)


def test_the_runtime_of_an_extension_is_known_by_name(environment: dict[str, str], tmp_path: Path) -> None:
    """Its settings are documented and checked as those of the host's own runtimes are."""
    code = "from osgym_host.settings import table; print(table())"
    shown = subprocess.run(
        [sys.executable, "-c", code], env={**environment}, capture_output=True, text=True, check=True
    ).stdout
    assert "## Settings of the runtime `paper`" in shown
    assert "| `paper.colour` | `OSGYM_PAPER_COLOUR` | `#fffbe6` | Colour of the paper. |" in shown
    refused = osgym(
        "serve",
        "--runtime",
        "paper",
        "--set",
        "paper.color=#102030",
        "--data-dir",
        str(tmp_path),
        **environment,
    )
    assert refused.returncode == 2
    assert "unknown setting paper.color; did you mean paper.colour" in refused.stderr
