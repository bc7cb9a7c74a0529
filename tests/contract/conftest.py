"""The service that the tests of the host's API talk to; those that need another bring their own."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from tests.support.fake_runtime import Service, running_service


@pytest.fixture
async def service(tmp_path: Path) -> AsyncIterator[Service]:
    """A service with one warm fake replica."""
    async with running_service(tmp_path, warm=1, max_replicas=4) as running:
        yield running
