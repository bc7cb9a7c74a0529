"""Extensions registered as entry points: found by name, loaded when asked for, refused in words."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from osgym_protocol import plugins
from osgym_protocol.plugins import BrokenPlugin, DuplicatePlugin, PluginGroup, UnknownPlugin

GROUP = PluginGroup.METRICS


@pytest.fixture(autouse=True)
def _fresh_cache() -> Iterator[None]:
    plugins._entries.cache_clear()
    yield
    plugins._entries.cache_clear()


def _install(folder: Path, distribution: str, **entries: str) -> None:
    info = folder / f"{distribution}-1.0.dist-info"
    info.mkdir(parents=True)
    (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {distribution}\nVersion: 1.0\n")
    lines = [f"{name} = {value}" for name, value in entries.items()]
    (info / "entry_points.txt").write_text("\n".join([f"[{GROUP.value}]", *lines, ""]))


def test_an_installed_extension_is_found_and_loaded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its name and the object that its entry names are what was registered."""
    _install(tmp_path, "toy", toy_metric="json:dumps")
    monkeypatch.syspath_prepend(str(tmp_path))
    assert "toy_metric" in plugins.plugin_names(GROUP)
    assert plugins.load_plugin(GROUP, "toy_metric")([1]) == "[1]"


def test_a_name_that_nobody_registers_is_refused_with_those_that_are(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The message names the group and an installed extension."""
    _install(tmp_path, "toy", toy_metric="json:dumps")
    monkeypatch.syspath_prepend(str(tmp_path))
    with pytest.raises(UnknownPlugin, match=r"'tow_metric' in osgym\.metrics.*toy_metric"):
        plugins.load_plugin(GROUP, "tow_metric")


def test_a_name_registered_twice_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Both distributions are named."""
    _install(tmp_path, "one", toy_metric="json:dumps")
    _install(tmp_path, "two", toy_metric="json:loads")
    monkeypatch.syspath_prepend(str(tmp_path))
    with pytest.raises(DuplicatePlugin, match="one and two"):
        plugins.plugin_names(GROUP)


@pytest.mark.parametrize("value", ["no_such_module_of_osgym:x", "json:no_such_name"])
def test_an_extension_that_cannot_be_imported_names_its_distribution(
    value: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The cause is chained."""
    _install(tmp_path, "toy", toy_metric=value)
    monkeypatch.syspath_prepend(str(tmp_path))
    with pytest.raises(BrokenPlugin, match="'toy'") as broken:
        plugins.load_plugin(GROUP, "toy_metric")
    assert isinstance(broken.value.__cause__, ImportError | AttributeError)
