"""Fixtures that several integration tests share."""

from __future__ import annotations

import pytest

from osgym_host.images.errors import ImageError
from osgym_host.images.idmap import IdMap, current_idmap


@pytest.fixture(scope="module")
def idmap() -> IdMap:
    """The ids of whoever runs the tests."""
    try:
        return current_idmap()
    except ImageError as exc:
        pytest.skip(f"missing: {exc}")
