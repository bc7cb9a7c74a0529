"""Host API v1 and OSGym's: an episode whose desktop the policy broke has the reward 0, which stays."""

from __future__ import annotations

import asyncio
import base64
import resource
import time
from pathlib import Path
from typing import Any

import pytest
from tests.support.api_answers import error
from tests.support.fake_runtime import TASK, Service, record, running_service, slow_task
from tests.support.waiting import until

from osgym_host.core.reasons import Reason
from osgym_host.episodes import journal
from osgym_host.runtimes import base
from osgym_protocol.codes import ErrorClass
from osgym_sdk import wire

INSIDE = {
    base.ExitReason.SESSION_ENDED: "guest_dead",
    base.ExitReason.DISPLAY_LOST: "guest_dead",
    base.ExitReason.GUEST_SHUTDOWN: "guest_dead",
    base.ExitReason.OUT_OF_MEMORY: "out_of_memory",
    base.ExitReason.DISK_FULL: "disk",
    base.ExitReason.HUNG: "guest_hung",
    base.ExitReason.GUEST_PANIC: "guest_panic",
    base.ExitReason.GUEST_REBOOTED: "guest_rebooted",
}
OUTSIDE = {
    base.ExitReason.HOST_OUT_OF_MEMORY: "host_out_of_memory",
    base.ExitReason.KILLED: "killed",
    base.ExitReason.STOPPED: "stopped",
    base.ExitReason.RUNTIME_LOST: "runtime_lost",
    base.ExitReason.HOST_DISK_FULL: "disk_full",
    base.ExitReason.IO_ERROR: "io_error",
    base.ExitReason.EMULATOR_FAILED: "emulator_failed",
}


async def evaluated(service: Service, episode: dict[str, Any]) -> Any:
    """Ask for the score; return the HTTP response."""
    path = f"/v1/episodes/{episode['episode_id']}/evaluate"
    return await service.http.post(path, json={"lease": episode["lease"]})


async def score(service: Service, episode: dict[str, Any]) -> wire.EvaluationAnswer:
    """Ask for the score; return the evaluation."""
    answer = await evaluated(service, episode)
    assert answer.status_code == 200, answer.text
    return wire.EvaluationAnswer.from_dict(answer.json())


async def ended(service: Service, episode: dict[str, Any]) -> None:
    """Wait until the host knows that the episode's replica is gone."""
    found = service.agent.episodes.find(episode["episode_id"])
    await until(lambda: found.over is not None)


def test_every_exit_of_a_replica_is_in_the_tables() -> None:
    """Every exit reason is the policy's or the host's, except for a requested end."""
    assert set(base.ExitReason) == {*INSIDE, *OUTSIDE, base.ExitReason.DESTROYED}


@pytest.mark.parametrize("how", list(INSIDE))
async def test_a_desktop_that_breaks_under_the_policy_earns_0(service: Service, how: base.ExitReason) -> None:
    """The step's error names the party at fault; each evaluation is a valid 0 with the reason."""
    episode = await service.create(task=TASK)
    await service.step(episode, 1, "click(1,2)")
    service.guest_of(episode).die(how)
    lost = await service.step(episode, 2, "click(1,2)")
    assert error(lost) == (410, "episode_lost")
    details = lost.json()["details"]
    assert (details["cause"], details["error_class"]) == (INSIDE[how], "policy")
    first = await score(service, episode)
    assert (first.reward, first.valid_for_training, first.error) == (0.0, True, None)
    assert (first.error_class, first.termination_reason) == (ErrorClass.POLICY, "replica_lost")
    assert first.loss is not None
    assert first.loss.details["cause"] == INSIDE[how]
    assert await score(service, episode) == first
    assert error(await service.step(episode, 2, "click(1,2)")) == (410, "episode_lost")
    assert service.agent.pool.retired[Reason(INSIDE[how])] == 1


async def test_a_guest_that_talks_nonsense_under_the_policy_earns_0(service: Service) -> None:
    """Malformed answers of the guest are the policy's loss once it has acted."""
    episode = await service.create(task=TASK)
    await service.step(episode, 1, "click(1,2)")
    service.guest_of(episode).agent.nonsense = True
    lost = await service.step(episode, 2, "click(1,2)")
    assert lost.json()["details"]["cause"] == "guest_protocol"
    assert ((await score(service, episode)).reward, lost.json()["details"]["error_class"]) == (0.0, "policy")


@pytest.mark.parametrize("how", [*OUTSIDE])
async def test_what_the_host_did_earns_nothing(service: Service, how: base.ExitReason) -> None:
    """A cause in the host leaves no reward after steps too; its class has the task tried again."""
    episode = await service.create(task=TASK)
    await service.step(episode, 1, "click(1,2)")
    service.guest_of(episode).die(how)
    await ended(service, episode)
    lost = await evaluated(service, episode)
    assert error(lost) == (410, "episode_lost")
    details = lost.json()["details"]
    assert (details["cause"], details["error_class"]) == (OUTSIDE[how], "infra")


@pytest.mark.parametrize("how", [base.ExitReason.SESSION_ENDED, base.ExitReason.DISPLAY_LOST])
async def test_a_desktop_that_ends_as_the_host_agent_stops_earns_nothing(
    service: Service, how: base.ExitReason
) -> None:
    """A machine that shuts down ends the processes of desktops and the host agent in any order."""
    episode = await service.create(task=TASK)
    await service.step(episode, 1, "click(1,2)")
    guest = service.guest_of(episode)
    guest.agent.step_gate.clear()
    step = asyncio.create_task(service.step(episode, 2, "click(1,2)"))
    await until(lambda: guest.agent.steps_begun == 2)
    guest.die(how)
    service.agent.begin_stop()
    details = (await step).json()["details"]
    assert (details["cause"], details["error_class"]) == ("shutdown", "infra")
    assert (await evaluated(service, episode)).status_code != 200


async def test_a_host_without_descriptors_earns_nothing(service: Service) -> None:
    """A host that lacks file descriptors cannot connect to the desktop: its own loss."""
    episode = await service.create(task=TASK)
    await service.step(episode, 1, "click(1,2)")
    service.agent.episodes.find(episode["episode_id"]).replica.guest.drop_idle()
    bounds = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (3, bounds[1]))
    try:
        lost = await service.step(episode, 2, "click(1,2)")
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, bounds)
    details = lost.json()["details"]
    assert (details["cause"], details["error_class"]) == ("internal", "infra")
    assert "Too many open files" in details["detail"]
    assert (await evaluated(service, episode)).status_code != 200


@pytest.mark.parametrize("how", list(INSIDE))
async def test_what_ends_while_the_hosts_disk_is_full_is_the_hosts(
    service: Service, how: base.ExitReason, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Programs that cannot write may end in any way; only a replica over its own limit is at fault."""
    episode = await service.create(task=TASK)
    await service.step(episode, 1, "click(1,2)")
    monkeypatch.setattr(journal, "FULL_BELOW_BYTES", 1 << 62)
    service.guest_of(episode).die(how)
    lost = await service.step(episode, 2, "click(1,2)")
    details = lost.json()["details"]
    wanted = ("disk", "policy") if how is base.ExitReason.DISK_FULL else ("disk_full", "infra")
    assert (details["cause"], details["error_class"]) == wanted
    assert ((await evaluated(service, episode)).status_code == 200) is (wanted[1] == "policy")


async def test_what_was_set_up_while_the_hosts_disk_was_full_is_the_hosts(
    service: Service, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A step of the set-up that could write nothing is a warning only, and the disk is free again since."""
    await until(lambda: service.agent.pool.view().ready > 0)
    creating = asyncio.create_task(service.create(task=slow_task(service)))
    await until(lambda: any(replica.agent.commands for replica in service.runtime.alive.values()))
    began = time.monotonic()
    with monkeypatch.context() as full:
        full.setattr(journal, "FULL_BELOW_BYTES", 1 << 62)
        await until(lambda: service.agent.episodes._disk_full_at >= began)
    for replica in service.runtime.alive.values():
        replica.agent.execute_gate.set()
    episode = await creating
    await service.step(episode, 1, "click(1,2)")
    answer = await score(service, episode)
    assert (answer.reward, answer.error_class) == (None, ErrorClass.INFRA)
    assert answer.error is not None
    assert answer.error.details["cause"] == "disk_full"


@pytest.mark.parametrize("how", list(INSIDE))
async def test_an_untouched_desktop_that_breaks_is_the_hosts(service: Service, how: base.ExitReason) -> None:
    """Before its first action the policy cannot have broken the desktop."""
    episode = await service.create(task=TASK)
    service.guest_of(episode).die(how)
    await ended(service, episode)
    lost = await evaluated(service, episode)
    assert (error(lost), lost.json()["details"]["error_class"]) == ((410, "episode_lost"), "infra")


@pytest.mark.parametrize("how", list(INSIDE))
async def test_an_action_that_comes_after_the_end_of_the_desktop_did_not_end_it(
    service: Service, how: base.ExitReason
) -> None:
    """The end counts from when it happened, though the host may learn its reason a second later."""
    episode = await service.create(task=TASK)
    service.guest_of(episode).die(how)
    lost = await service.step(episode, 1, "click(1,2)")
    assert (error(lost), lost.json()["details"]["error_class"]) == ((410, "episode_lost"), "infra")
    assert error(await evaluated(service, episode)) == (410, "episode_lost")


async def test_a_command_that_comes_after_the_end_of_the_desktop_did_not_end_it(service: Service) -> None:
    """What a client does past the screen counts as an action of the policy."""
    episode = await service.create(task=TASK)
    service.guest_of(episode).die(base.ExitReason.SESSION_ENDED)
    body = {"lease": episode["lease"], "request_id": "q", "command": ["true"]}
    lost = await service.http.post(f"/v1/episodes/{episode['episode_id']}/execute", json=body)
    assert (error(lost), lost.json()["details"]["error_class"]) == ((410, "episode_lost"), "infra")


@pytest.mark.parametrize("how", list(INSIDE))
async def test_a_desktop_that_breaks_in_the_check_earns_0(service: Service, how: base.ExitReason) -> None:
    """A program that the policy left running breaks the desktop during the check."""
    episode = await service.create(task=TASK)
    await service.step(episode, 1, "click(1,2)")
    guest = service.guest_of(episode)
    guest.agent.execute_gate.clear()
    asked = asyncio.create_task(evaluated(service, episode))
    await until(lambda: ["answer"] in guest.agent.commands)
    guest.die(how)
    answer = wire.EvaluationAnswer.from_dict((await asked).json())
    assert (answer.reward, answer.error_class) == (0.0, ErrorClass.POLICY)
    assert await score(service, episode) == answer


async def test_a_guest_that_talks_nonsense_in_the_check_earns_0(service: Service) -> None:
    """The host learns only from the answers to its check that the agent makes no sense any more."""
    episode = await service.create(task=TASK)
    await service.step(episode, 1, "click(1,2)")
    service.guest_of(episode).agent.nonsense = True
    answer = await score(service, episode)
    assert (answer.reward, answer.valid_for_training, answer.error_class) == (0.0, True, ErrorClass.POLICY)
    assert answer.loss is not None and answer.loss.details["cause"] == "guest_protocol"


BREAKS: dict[str, Any] = {**TASK, "config": []}


async def test_a_check_that_the_policy_broke_earns_0(service: Service) -> None:
    """The same check works on an untouched desktop, so the policy broke it."""
    episode = await service.create(task=BREAKS)
    await service.step(episode, 1, "click(1,2)")
    agent = service.guest_of(episode).agent
    agent.refuses, agent.refused_paths = "internal", frozenset({"/setup/execute"})
    answer = await score(service, episode)
    assert (answer.reward, answer.valid_for_training, answer.error_class) == (0.0, True, ErrorClass.POLICY)
    assert answer.loss is not None
    assert (answer.loss.code, answer.loss.details["guest_code"]) == ("evaluator_error", "internal")
    assert await score(service, episode) == answer
    await until(lambda: service.agent.pool.view().leased == 1)


@pytest.mark.parametrize("config", [[], TASK["config"]], ids=["check", "set-up"])
async def test_a_check_that_fails_on_an_untouched_desktop_as_well_is_ours(
    service: Service, monkeypatch: pytest.MonkeyPatch, config: list[Any]
) -> None:
    """There is no reward; the trial runs once for a task, and its desktop is released."""
    episodes = [await service.create(task={**TASK, "config": config}) for _ in range(2)]
    for replica in service.runtime.alive.values():
        replica.agent.refuses, replica.agent.refused_paths = "internal", frozenset({"/setup/execute"})
    create = service.runtime.create

    async def broken(spec: base.ReplicaSpec) -> base.Replica:
        made = await create(spec)
        made.agent.refuses, made.agent.refused_paths = "internal", frozenset({"/setup/execute"})
        return made

    monkeypatch.setattr(service.runtime, "create", broken)
    for episode in episodes:
        assert record(await service.step(episode, 1, "click(1,2)")).meta["step"] == 1
        answer = await score(service, episode)
        assert (answer.reward, answer.error_class) == (None, ErrorClass.INFRA)
        assert answer.error is not None
        assert answer.error.details["untouched"] == "the check also fails on an untouched desktop"
    await until(lambda: service.agent.pool.view().leased == 2)


async def test_a_check_that_breaks_before_the_policy_acted_is_ours(service: Service) -> None:
    """A check that fails before any action is the host's, without a trial."""
    episode = await service.create(task=BREAKS)
    agent = service.guest_of(episode).agent
    agent.refuses, agent.refused_paths = "internal", frozenset({"/setup/execute"})
    answer = await score(service, episode)
    assert (answer.reward, answer.error_class) == (None, ErrorClass.INFRA)


async def test_a_score_that_was_given_stays(service: Service) -> None:
    """A desktop that breaks after the check changes nothing about the score."""
    episode = await service.create(task=TASK)
    await service.step(episode, 1, "click(1,2)")
    first = await score(service, episode)
    assert first.reward == 1.0
    service.guest_of(episode).die(base.ExitReason.SESSION_ENDED)
    await ended(service, episode)
    assert await score(service, episode) == first


async def test_an_episode_without_a_task_has_no_score(service: Service) -> None:
    """Without a task there is no score, but the loss is still the policy's."""
    episode = await service.create()
    await service.step(episode, 1, "click(1,2)")
    service.guest_of(episode).die(base.ExitReason.SESSION_ENDED)
    await ended(service, episode)
    lost = await evaluated(service, episode)
    assert (error(lost), lost.json()["details"]["error_class"]) == ((410, "episode_lost"), "policy")


async def test_a_person_who_acted_too_makes_the_0_no_lesson(service: Service) -> None:
    """After a person's action, who may have broken the desktop, the 0 is not valid for training."""
    episode = await service.create(task=TASK)
    await service.step(episode, 1, "click(1,2)")
    path = f"/v1/replicas/{episode['replica_id']}/intervene"
    acted = await service.http.post(path, json={"session": "me", "seq": 1, "actions": ["click(3,4)"]})
    assert acted.status_code == 200, acted.text
    service.guest_of(episode).die(base.ExitReason.SESSION_ENDED)
    await ended(service, episode)
    answer = await score(service, episode)
    assert (answer.reward, answer.valid_for_training) == (0.0, False)


async def test_the_0_is_in_the_trajectory_and_outlives_the_host_agent(tmp_path: Path) -> None:
    """A client that comes back after a restart gets the same answers."""
    async with running_service(tmp_path) as service:
        episode = await service.create(task=TASK)
        await service.step(episode, 1, "click(1,2)")
        service.guest_of(episode).die(base.ExitReason.SESSION_ENDED)
        await ended(service, episode)
        first = await score(service, episode)
        stream = await service.http.get(f"/v1/episodes/{episode['episode_id']}/trajectory")
        lines = [one.meta for one in wire.RecordDecoder().feed(stream.content)]
        assert [line["kind"] for line in lines] == ["start", "step", "evaluation", "end"]
        assert (lines[2]["reward"], lines[2]["error_class"]) == (0.0, "policy")
    async with running_service(tmp_path) as service:
        assert await score(service, episode) == first
        lost = await service.step(episode, 2, "click(1,2)")
        assert (error(lost), lost.json()["details"]["error_class"]) == ((410, "episode_lost"), "policy")


async def test_a_run_counts_it_as_scored(service: Service) -> None:
    """The page of a run counts the episode as scored, not as lost."""
    for how in (base.ExitReason.SESSION_ENDED, base.ExitReason.KILLED):
        episode = await service.create(task=TASK, run="grpo-7")
        await service.step(episode, 1, "click(1,2)")
        service.guest_of(episode).die(how)
        await ended(service, episode)
    [run] = (await service.http.get("/v1/runs")).json()
    assert (run["episodes"], run["scored"], run["mean_reward"], run["lost"]) == (2, 1, 0.0, 1)


async def test_osgyms_step_finishes_with_0(service: Service) -> None:
    """The step finishes with the newest frame and the reward 0; the VM is released."""
    made = await service.http.post("/reset", json={"task_config": TASK, "timeout": 60})
    vm_id = made.json()["vm_id"]
    for _ in range(2):
        step = await service.http.post("/step", json={"vm_id": vm_id, "action": "click(1,2)"})
    service.runtime.by_generation(vm_id).die(base.ExitReason.SESSION_ENDED)
    last = await service.http.post("/step", json={"vm_id": vm_id, "action": "click(1,2)"})
    assert last.status_code == 200, last.text
    assert (last.json()["is_finish"], last.json()["reward"]) == (True, 0)
    assert base64.b64decode(last.json()["screenshot"]) == base64.b64decode(step.json()["screenshot"])
    gone = await service.http.post("/step", json={"vm_id": vm_id, "action": "click(1,2)"})
    assert gone.status_code == 400
