"""`osgym host clean --all`: a data directory goes whole; what is not ours, or in use, is left alone."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from osgym_cli.main import main
from osgym_host.cli.clean import FLEET_MARK, NotRemovable, check_removable
from osgym_host.pidfile import held, pid_path


@pytest.fixture
def data(tmp_path: Path) -> Path:
    """A data directory with an image in it."""
    made = tmp_path / "osgym"
    (made / "images" / "tags").mkdir(parents=True)
    (made / "images" / "tags" / "small").write_text("ab" * 32)
    (made / "cache").mkdir()
    (made / "cache" / "large").write_bytes(b"x" * (1 << 20))
    return made


def clean(data: Path, *arguments: str, typed: str = "") -> Result:
    """`osgym host clean` on a data directory."""
    return CliRunner().invoke(main, ["host", "clean", "--data-dir", str(data), *arguments], input=typed)


def test_all_of_it_goes_when_that_is_confirmed(data: Path) -> None:
    """It says how much it is; the second time there is nothing to do."""
    done = clean(data, "--all", typed="y\n")
    assert done.exit_code == 0, done.output
    assert "0.0 GiB of images" in done.output
    assert not data.exists()
    assert data.parent.exists()
    assert clean(data, "--all", "--yes").exit_code == 0
    assert not (data / "images").exists()


def test_without_a_yes_nothing_goes(data: Path) -> None:
    """Neither by a no, nor by no answer; without --all no image ever goes."""
    for arguments, typed, code in ((["--all"], "n\n", 1), (["--all"], "", 1), ([], "", 0)):
        done = clean(data, *arguments, typed=typed)
        assert done.exit_code == code, done.output
        assert (data / "images" / "tags" / "small").exists()


def _stranger(data: Path) -> None:
    (data / "thesis.tex").touch()


def _fleet(data: Path) -> None:
    (data / FLEET_MARK).touch()


@pytest.mark.parametrize(("spoil", "why"), [(_stranger, "thesis.tex"), (_fleet, "pulumi destroy")])
def test_what_is_not_ours_is_left_alone(data: Path, spoil: Callable[[Path], None], why: str) -> None:
    """The whole folder, with the reason."""
    spoil(data)
    done = clean(data, "--all", "--yes")
    assert done.exit_code == 1
    assert why in done.output
    assert (data / "cache" / "large").exists()


def test_a_folder_that_is_used_is_left_alone(data: Path) -> None:
    """By an agent of another instance, or by what is mounted in it."""
    with held(pid_path(data, "another")):
        done = clean(data, "--all", "--yes")
    assert done.exit_code == 1
    assert "uses" in done.output
    mounts = f"36 35 98:0 / {data}/run/r1 rw,noatime shared:1 - overlay overlay rw\n"
    with pytest.raises(NotRemovable, match="is still mounted"):
        check_removable(data, mounts)
    check_removable(data, mounts.replace("osgym", "osgym-other"))
    link = data.parent / "link"
    link.symlink_to(data)
    with pytest.raises(NotRemovable, match="not a folder"):
        check_removable(link)
