"""What a team lays over a flavor: read, refused by name, and what it makes necessary to bake."""

from __future__ import annotations

from pathlib import Path

import pytest

from osgym_host.images.additions import Addition
from osgym_host.images.definition import BAKE_FOLDER, ImageSource, find_images_folder
from osgym_host.images.errors import DefinitionError

IMAGES = find_images_folder()
HEAD = 'format = 1\nname = "mine"\nabout = "ours"\nbase = "small"\n'
APP = (
    '[[apps]]\nid = "mail"\nname = "Mail"\nabout = "Read mail"\ncategory = "Internet"\n'
    'command = ["claws-mail"]\nicon = "mail"\nwindow_class = "Claws-mail"\n'
)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """An addition with something of everything."""
    for name in ("debs", "files/etc", "provision"):
        (tmp_path / name).mkdir(parents=True)
    (tmp_path / "addition.toml").write_text(
        HEAD + 'packages = ["claws-mail"]\nbinaries = ["claws-mail"]\n' + APP
    )
    (tmp_path / "provision/60-mine").write_text("#!/bin/sh\n")
    (tmp_path / "files/etc/mine").write_text("ours\n")
    return tmp_path


def test_it_is_a_flavor_beside_the_others(folder: Path) -> None:
    """It has all of its base, and what it brings; the others stay as they were."""
    plain, source = ImageSource(IMAGES), ImageSource(IMAGES, Addition(folder))
    found = source.definition
    assert found.packages("mine") == [*plain.definition.packages("small"), "claws-mail"]
    assert [app.id for app in found.apps_of("mine")] == [
        *(app.id for app in plain.definition.apps_of("small")),
        "mail",
    ]
    assert found.binaries_of("mine") == [*plain.definition.binaries_of("small"), "claws-mail"]
    for flavor in ("small", "full"):
        assert found.packages(flavor) == plain.definition.packages(flavor)
        assert source.base_key(flavor, None) == plain.base_key(flavor, None)
    assert (folder / "files", "") in source.trees
    assert (folder / "debs", f"{BAKE_FOLDER}/debs/") in source.trees


def test_it_leaves_out_paths_of_its_own(folder: Path) -> None:
    """Besides what its base leaves out; the golden images leave out what they did."""
    with (folder / "addition.toml").open("r+") as file:
        text = file.read()
        file.seek(0)
        file.write(text.replace("binaries", 'exclude = ["/usr/lib/jvm/*/man/*"]\nbinaries', 1))
    plain, found = ImageSource(IMAGES), ImageSource(IMAGES, Addition(folder))
    assert found.definition.excludes("mine") == [
        *plain.definition.excludes("small"),
        "/usr/lib/jvm/*/man/*",
    ]
    assert found.base_key("full", None) == plain.base_key("full", None)


def test_its_scripts_run_among_the_desktops_by_their_numbers(folder: Path) -> None:
    """What installs packages of its own is there only where it has some."""
    names = [script.name for script in ImageSource(IMAGES, Addition(folder)).scripts("desktop")]
    assert names == sorted(names)
    assert "60-mine" in names and "15-debs" not in names
    (folder / "debs/x.deb").write_bytes(b"")
    source = ImageSource(IMAGES, Addition(folder))
    assert "15-debs" in [script.name for script in source.scripts("desktop")]
    assert [script.name for script in source.scripts("guest")] == [
        script.name for script in ImageSource(IMAGES).scripts("guest")
    ]
    (folder / "provision/30-desktop").write_text("#!/bin/sh\n")
    with pytest.raises(DefinitionError, match="another script has that name"):
        source.scripts("desktop")


@pytest.mark.parametrize("changed", ["files/etc/mine", "provision/60-mine", "debs/x.deb", "addition.toml"])
def test_a_change_of_it_makes_a_bake_necessary(folder: Path, changed: str) -> None:
    """Whichever file it is; the golden images need none."""
    before = ImageSource(IMAGES, Addition(folder)).desktop_key()
    with (folder / changed).open("a") as file:
        file.write("# more\n")
    assert ImageSource(IMAGES, Addition(folder)).desktop_key() != before


def test_additions_do_not_touch_images_without(
    folder: Path, tmp_path_factory: pytest.TempPathFactory
) -> None:
    """What installs an addition's packages is none of theirs."""
    plain = ImageSource(IMAGES)
    assert "15-debs" not in [script.name for script in plain.scripts("desktop")]
    assert plain.desktop_key() != ImageSource(IMAGES, Addition(folder)).desktop_key()


def test_additions_of_this_project_are_flavors() -> None:
    """By their folder's name, which is theirs; what starts their applications is among the scripts."""
    names = [path.name for path in (IMAGES / "additions").iterdir()]
    assert "osworld" in names
    for name in names:
        source = ImageSource.of_flavor(IMAGES, name)
        assert source.addition is not None and source.addition.definition.name == name
        assert {"52-first-start"} < {script.name for script in source.scripts("desktop")}
        assert "15-debs" not in {script.name for script in source.scripts("desktop")}
    assert ImageSource.of_flavor(IMAGES, "full").addition is None
    with pytest.raises(DefinitionError, match="unknown flavor 'huge'") as caught:
        ImageSource.of_flavor(IMAGES, "huge")
    assert caught.value.hint == "valid flavors: " + ", ".join(sorted(["full", "small", *names]))


@pytest.mark.parametrize(
    ("text", "why"),
    [
        (HEAD.replace("mine", "full"), "is taken"),
        (HEAD.replace('"small"', '"huge"'), "unknown flavor 'huge'"),
        (HEAD.replace("mine", "../x"), "name"),
        (HEAD + 'packages = ["a b"]\n', "packages"),
        (HEAD + "colour = 1\n", "colour"),
        (HEAD.replace("format = 1", "format = 2"), "format"),
        (HEAD + APP.replace('id = "mail"', 'id = "files"'), "an app already has the id files"),
        ("name = ", "Invalid value"),
    ],
)
def test_what_it_cannot_say_is_named(tmp_path: Path, text: str, why: str) -> None:
    """Before anything is baked, with the file."""
    (tmp_path / "addition.toml").write_text(text)
    with pytest.raises(DefinitionError, match=why) as caught:
        ImageSource(IMAGES, Addition(tmp_path))
    assert str(tmp_path) in str(caught.value) or "huge" in why


def test_a_folder_without_it_is_none(tmp_path: Path) -> None:
    """The hint says where to read on."""
    with pytest.raises(DefinitionError, match="cannot be read") as caught:
        Addition(tmp_path)
    assert "images/README.md" in caught.value.hint
