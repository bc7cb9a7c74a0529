"""Which hosts let replicas rest when the settings leave it to them."""

from __future__ import annotations

import pytest

from osgym_host import app
from osgym_host.runtimes.swap import Swap
from osgym_host.settings import Settings


@pytest.mark.parametrize(
    ("runtime", "compressed", "rest", "rests"),
    [
        ("local", True, "auto", True),
        ("local", False, "auto", False),
        ("qemu", True, "auto", False),
        ("qemu", True, "reclaim", True),
    ],
)
def test_replicas_rest_by_default_on_local_with_compressed_swap(
    monkeypatch: pytest.MonkeyPatch, runtime: str, compressed: bool, rest: str, rests: bool
) -> None:
    """Virtual machines rest only where it is asked for: their rest was measured by emulation only."""
    monkeypatch.setattr(app, "read_swap", lambda: Swap(8192, 8192, compressed, 0.25))
    terms = app._rest_terms(Settings(runtime=runtime, rest=rest))
    assert (terms is not None) == rests
