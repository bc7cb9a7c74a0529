"""The image definition: what is read, refused, and what makes a bake necessary."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from osgym_host.images.definition import ImageSource, find_images_folder
from osgym_host.images.errors import DefinitionError
from osgym_host.images.wheels import find_guest_agent

IMAGES = find_images_folder()


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A copy of the project's definition that a test may change."""
    return Path(shutil.copytree(IMAGES, tmp_path / "images"))


def _edit(folder: Path, old: str, new: str) -> ImageSource:
    path = folder / "golden.toml"
    text = path.read_text()
    assert old in text
    path.write_text(text.replace(old, new, 1))
    return ImageSource(folder)


def test_full_has_office_and_browser_and_small_has_not() -> None:
    """The small flavor is for quick tests: none of the big applications is in it."""
    definition = ImageSource(IMAGES).definition
    big = {"chromium", "libreoffice-calc", "libreoffice-writer", "libreoffice-impress", "gimp", "vlc"}
    assert big <= set(definition.packages("full"))
    assert not big & set(definition.packages("small"))
    assert {app.id for app in definition.apps_of("small")} < {app.id for app in definition.apps_of("full")}


def test_process_contract_is_checked_in_full() -> None:
    """Every program that OSWorld tasks call by name is on the list that the bake checks."""
    wanted = {"python", "sudo", "wmctrl", "xdg-open", "ffmpeg", "socat", "libreoffice", "google-chrome"}
    wanted |= {"jq", "unzip", "xsel", "bc", "expect"}
    assert wanted <= set(ImageSource(IMAGES).definition.binaries_of("full"))


def test_unknown_setting_is_refused(folder: Path) -> None:
    """A misspelt setting is an error, not silence."""
    with pytest.raises(DefinitionError, match="scren"):
        _edit(folder, "screen =", "scren =")


def test_unknown_group_is_refused(folder: Path) -> None:
    """A flavor cannot name a group that does not exist."""
    with pytest.raises(DefinitionError, match="unknown groups: nothing"):
        _edit(folder, '"small_apps"]', '"nothing"]')


def test_unknown_flavor_names_the_known_ones() -> None:
    """The error says which flavors there are."""
    with pytest.raises(DefinitionError) as caught:
        ImageSource(IMAGES).definition.flavor("huge")
    assert "full" in caught.value.hint and "small" in caught.value.hint


def test_missing_definition_says_where(tmp_path: Path) -> None:
    """A folder without golden.toml is an error with a hint."""
    with pytest.raises(DefinitionError) as caught:
        ImageSource(tmp_path)
    assert "OSGYM_IMAGES_DIR" in caught.value.hint


def test_package_part_depends_on_packages_and_lock_only(folder: Path) -> None:
    """A change of a file of the desktop leaves the package part as it is; a package does not."""
    before = ImageSource(folder)
    base, desktop = before.base_key("small", None), before.desktop_key()
    (folder / "files" / "etc" / "new").write_text("x")
    assert ImageSource(folder).base_key("small", None) == base
    assert ImageSource(folder).desktop_key() != desktop
    assert before.base_key("small", "lock") != base
    assert _edit(folder, '"mousepad",', '"leafpad",').base_key("small", None) != base


def test_desktop_part_does_not_depend_on_remedies(folder: Path) -> None:
    """Remedies belong to the guest part, which is baked in seconds."""
    before = ImageSource(folder)
    desktop, guest = before.desktop_key(), before.guest_key()
    extra = folder / "remedies" / "extra"
    extra.mkdir(parents=True)
    (extra / "bake").write_text("#!/bin/sh\n")
    after = ImageSource(folder)
    assert after.desktop_key() == desktop
    assert after.guest_key() != guest
    assert "extra" in [remedy.name for remedy in after.remedies]


def test_scripts_run_in_the_order_of_their_numbers() -> None:
    """Provisioning is ordered by name, and helpers without a number do not run."""
    names = [script.name for script in ImageSource(IMAGES).scripts("desktop")]
    assert names == sorted(names)
    assert names[0].startswith("10-")
    assert "first-start" not in names


def test_guest_key_follows_source_and_not_build_products(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A changed guest agent is baked anew; what a build leaves in its folder is not a change."""
    guest = tmp_path / "guest"
    for folder in ("osgym_guest", "native"):
        (guest / folder).mkdir(parents=True)
    source = guest / "osgym_guest" / "app.py"
    source.write_text("one = 1\n")
    (guest / "pyproject.toml").touch()
    monkeypatch.setenv("OSGYM_GUEST_DIR", str(guest))
    before = find_guest_agent().key()
    (guest / "osgym_guest" / "_native.abi3.so").write_bytes(b"x")
    (guest / "build").mkdir()
    (guest / "build" / "x.py").write_text("x")
    (guest / "osgym_guest.egg-info").mkdir()
    (guest / "osgym_guest.egg-info" / "PKG-INFO").write_text("x")
    assert find_guest_agent().key() == before
    for changed in (source, guest / "native" / "core.c", guest / "setup.py"):
        changed.write_text("one = 2\n")
        assert find_guest_agent().key() != before
        before = find_guest_agent().key()
