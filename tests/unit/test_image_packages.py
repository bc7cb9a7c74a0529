"""The command that bakes packages, and what its log tells."""

from __future__ import annotations

import io
from collections import deque
from pathlib import Path

from rich.console import Console

from osgym_host.images.definition import ImageSource, find_images_folder
from osgym_host.images.packages import PackageBake, _follow, mmdebstrap_argv
from osgym_host.images.progress import BakeProgress, ProgressDisplay

LOG = b"""\
I: running apt-get update...
0 upgraded, 2 newly installed, 0 to remove and 0 not upgraded.
Get:1 http://x.invalid bookworm/main amd64 bc amd64 1.07 [105 kB]
Unpacking bc (1.07) ...
Setting up bc (1.07) ...
0 upgraded, 60 newly installed, 0 to remove and 0 not upgraded.
Unpacking libxcb1:amd64 (1.15) over (1.14) ...
"""


def _bake(tmp_path: Path, flavor: str = "full") -> PackageBake:
    definition = ImageSource(find_images_folder()).definition
    return PackageBake(definition, flavor, tmp_path / "a cache", tmp_path, None)


def test_log_becomes_counts_of_packages() -> None:
    """Essential and other packages are expected together, and each stage counts its own."""
    out = io.StringIO()
    progress = BakeProgress(ProgressDisplay.LINES, Console(file=out, width=200))
    tail: deque[str] = deque(maxlen=2)
    with progress.shown():
        _follow(io.BytesIO(LOG + b"Setting up x (1) ...\n" * 49), tail, progress)
    assert "configure packages: 50 of 62" in out.getvalue()
    assert "running apt-get update" in out.getvalue()
    assert set(progress.timings) == {"download", "unpack", "configure"}
    assert len(tail) == 2


def test_nothing_is_shown_to_machines() -> None:
    """With JSON output the progress is silent."""
    out = io.StringIO()
    progress = BakeProgress(ProgressDisplay.NONE, Console(file=out))
    with progress.shown():
        _follow(io.BytesIO(LOG * 30), deque(maxlen=2), progress)
        progress.stage("layer", "x")
    assert out.getvalue() == ""


def test_argv_names_packages_and_filters_and_no_download_host(tmp_path: Path) -> None:
    """The command holds the definition; where packages come from is the machine's matter."""
    argv = mmdebstrap_argv(_bake(tmp_path), root=True, preferences=None)
    include = next(word for word in argv if word.startswith("--include="))
    assert "chromium" in include.split("=")[1].split(",")
    assert "--dpkgopt=path-exclude=/usr/share/man/*" in argv
    assert any(word.startswith("--customize-hook=ln ") and word.endswith("/chrome") for word in argv)


def test_ordinary_users_bake_in_a_user_namespace(tmp_path: Path) -> None:
    """Without root the mode is unshare and the cache goes in and out as a stream."""
    argv = mmdebstrap_argv(_bake(tmp_path), root=False, preferences=None)
    assert "--mode=unshare" in argv
    assert any(word.startswith("--setup-hook=sync-in '") for word in argv), "the path is quoted"
    assert any(word.startswith("--customize-hook=sync-out") for word in argv)


def test_pins_do_not_stay_in_the_image(tmp_path: Path) -> None:
    """A lock is copied in as apt preferences and taken out again."""
    argv = mmdebstrap_argv(_bake(tmp_path), root=True, preferences=tmp_path / "lock.pref")
    assert any("copy-in" in word and "lock.pref" in word for word in argv)
    assert any(word.startswith("--customize-hook=rm -f") and "lock.pref" in word for word in argv)
