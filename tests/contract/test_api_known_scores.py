"""Host API v1: a known score stays available, whatever ends the episode after it."""

from __future__ import annotations

from pathlib import Path

import pytest
from tests.contract.test_api_policy_losses import evaluated, score
from tests.support.api_answers import error
from tests.support.fake_runtime import TASK, running_service

from osgym_host.core.reasons import Reason


@pytest.mark.parametrize("reason", [Reason.SHUTDOWN, Reason.HOST_GOING])
async def test_a_score_outlives_the_host_agent(tmp_path: Path, reason: Reason) -> None:
    """A client that missed the answer gets it later; an episode without a score is lost."""
    async with running_service(tmp_path, warm=2) as service:
        scored, other = [await service.create(task=TASK) for _ in range(2)]
        await service.step(scored, 1, "click(1,2)")
        first = await score(service, scored)
        assert first.reward == 1
        service.agent.episodes.end_all(reason)
        assert await score(service, scored) == first
        assert error(await evaluated(service, other)) == (410, "episode_lost")
    async with running_service(tmp_path) as service:
        assert await score(service, scored) == first
        assert error(await service.step(scored, 2, "click(1,2)")) == (410, "episode_lost")
        assert error(await evaluated(service, other)) == (410, "episode_lost")
