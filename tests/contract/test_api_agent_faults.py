"""Host API v1: the first faults of guest agents in a task are the host's loss, further ones the policy's."""

from __future__ import annotations

from typing import Any

import pytest
from tests.support.fake_runtime import TASK, FakeRuntime, Service

from osgym_host.episodes.agent_faults import EXCUSED, KEEP, AgentFaults
from osgym_host.runtimes import base


async def loss(service: Service, code: str, *, run: str = "r") -> tuple[str, str]:
    """Cause and class of the loss of an episode whose guest refuses its second step."""
    episode = await service.create(task=TASK, run=run)
    await service.step(episode, 1, "click(1,2)")
    agent = service.guest_of(episode).agent
    agent.refuses, agent.refused_paths = code, frozenset({"/v1/step"})
    details: dict[str, Any] = (await service.step(episode, 2, "click(1,2)")).json()["details"]
    return details["cause"], details["error_class"]


@pytest.fixture
def attested(monkeypatch: pytest.MonkeyPatch) -> None:
    """Make attestations of guest agents conclusive."""

    async def attest(self: FakeRuntime, replica: base.Replica, sockets: object) -> bool:
        return True

    monkeypatch.setattr(FakeRuntime, "attest", attest)


@pytest.mark.usefixtures("attested")
async def test_an_agent_that_fails_on_an_honest_action_earns_nothing(service: Service) -> None:
    """The first two internal faults in a task of a run are the host's, later ones the policy's."""
    for _ in range(EXCUSED):
        assert await loss(service, "internal") == ("guest_failed", "infra")
    assert await loss(service, "internal") == ("guest_protocol", "policy")
    assert await loss(service, "internal", run="another") == ("guest_failed", "infra")


@pytest.mark.usefixtures("attested")
async def test_what_no_desktop_can_bring_about_is_always_the_hosts(service: Service) -> None:
    """An agent that refuses the host's token is the host's fault however often: no policy can cause that."""
    for _ in range(EXCUSED + 1):
        assert await loss(service, "unauthorized") == ("guest_failed", "infra")


@pytest.mark.usefixtures("attested")
@pytest.mark.parametrize("code", ["display_gone", "too_many_connections"])
async def test_what_a_policy_can_use_up_is_the_policys(service: Service, code: str) -> None:
    """The agent fails because the policy used up what it needs, such as connections of the display."""
    assert await loss(service, code) == ("guest_protocol", "policy")


@pytest.mark.parametrize("code", ["internal", "unauthorized"])
async def test_the_word_of_an_agent_that_may_be_another_is_no_evidence(service: Service, code: str) -> None:
    """Without a conclusive attestation, root inside may have answered in the agent's place."""
    assert await loss(service, code) == ("guest_protocol", "policy")


@pytest.mark.parametrize("error", [base.GuestTampered("it is gone"), base.RuntimeFault("no answer")])
async def test_an_agent_that_was_changed_says_nothing(
    service: Service, error: base.RuntimeFault, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An agent that was tampered with, or cannot be checked, is no evidence for the host's loss."""

    async def attest(self: FakeRuntime, replica: base.Replica, sockets: object) -> bool:
        raise error

    monkeypatch.setattr(FakeRuntime, "attest", attest)
    assert await loss(service, "internal") == ("guest_protocol", "policy")


def test_faults_are_counted_in_bounded_memory() -> None:
    """The tasks whose last fault is oldest are forgotten first."""
    faults = AgentFaults()
    assert [faults.is_excused("r", "t") for _ in range(EXCUSED + 1)] == [True] * EXCUSED + [False]
    for number in range(KEEP):
        assert faults.is_excused("r", f"t{number}")
    assert faults.is_excused("r", "t")
