"""Options of episodes: those that callers complete in their editor are those of the protocol."""

from __future__ import annotations

import dataclasses
from typing import Any

import pytest

from osgym_protocol.codes import ThinkCharge, ThinkMode
from osgym_protocol.episode_options import EpisodeOptions
from osgym_sdk import AsyncClient, ConfigError, Decision, EpisodeArguments, RunArguments
from osgym_sdk._batch.options import BatchOptions, read_run_arguments
from osgym_sdk._environment import EnvironmentOptions
from osgym_sdk._episode.plan import plan_episode
from osgym_sdk._inputs.decision import charge_of

IN_THE_CLIENT = {"keep_frames", "reuse_frames", "actions", "coordinates", "record"}
TO_THE_HOST: EpisodeArguments = {
    "wait_s": 1.5,
    "lease_ttl_s": 7.0,
    "max_steps": 3,
    "settle": "fast",
    "observe": "jpeg",
    "strict_setup": True,
    "clock": "2026-01-01T09:00",
    "image": "small",
    "think": "paused",
    "think_charge": "real",
    "run": "grpo-7",
}


def test_every_option_of_the_protocol_is_an_argument() -> None:
    """A new option is written in one module of the protocol, and nowhere in the SDK."""
    arguments = EpisodeArguments.__optional_keys__
    assert arguments - IN_THE_CLIENT == set(EpisodeOptions.field_names()) - {"task", "checkpoint"}
    assert arguments >= IN_THE_CLIENT and not EpisodeArguments.__required_keys__


def test_every_option_of_a_batch_is_an_argument() -> None:
    """Its own and its episodes'."""
    own = {field.name for field in dataclasses.fields(BatchOptions)} - {"recorder"}
    assert RunArguments.__optional_keys__ == own | {"progress"} | EpisodeArguments.__optional_keys__


def test_options_reach_the_host_by_every_way() -> None:
    """A single episode, a batch and an environment pass on what they do not know."""
    assert TO_THE_HOST.keys() == EpisodeArguments.__optional_keys__ - IN_THE_CLIENT
    sent = plan_episode(None, TO_THE_HOST).options
    assert (sent.wait_s, sent.lease_ttl_s, sent.max_steps, sent.run) == (1.5, 7.0, 3, "grpo-7")
    assert (sent.think, sent.think_charge) == (ThinkMode.PAUSED, ThinkCharge.REAL)
    assert sent.strict_setup and sent.settle is not None and sent.observe is not None
    batch: Any = {"concurrency": 2, **TO_THE_HOST}
    assert plan_episode(None, read_run_arguments(batch)[1]).options == sent
    assert plan_episode(None, EnvironmentOptions.read(TO_THE_HOST).episode).options == sent


def test_a_clients_own_think_is_for_all_its_episodes() -> None:
    """Unless an episode says otherwise; a charge is for desktops that stand still."""
    client = AsyncClient("http://127.0.0.1:9", think="paused", think_charge=0.02, handle_sigterm=False)
    plan = client.episode()._context.plan
    assert (plan.options.think, plan.options.think_charge) == (ThinkMode.PAUSED, None)
    assert plan.think_s_per_token == 0.02
    real = client.episode(think_charge="real")._context.plan
    assert (real.options.think_charge, real.think_s_per_token) == (ThinkCharge.REAL, 0.0)
    live = client.episode(think="live")._context.plan
    assert (live.options.think, live.think_s_per_token) == (ThinkMode.LIVE, 0.0)
    assert client.run([], lambda *_: None, think_charge=0.5) is not None
    for wrong in ({"think": "asleep"}, {"think_charge": "real"}, {"think": "paused", "think_charge": -1}):
        with pytest.raises(ConfigError, match="think"):
            AsyncClient("http://127.0.0.1:9", handle_sigterm=False, **wrong)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("given", "think_s", "charge_s"),
    [
        ("wait()", None, 0.0),
        ("wait()", 4, 4.0),
        (Decision("wait()", {"usage": {"output_tokens": 50}}), None, 1.0),
        (Decision("wait()", {"usage": {"output_tokens": 50}}, think_s=3.0), None, 3.0),
        (Decision("wait()", {"usage": {"output_tokens": 50}}, think_s=3.0), 4.0, 4.0),
        (Decision("wait()", {"usage": {"output_tokens": 10**9}}), None, 3600.0),
        (Decision("wait()", {"usage": "much"}), None, 0.0),
        (Decision("wait()", ["logprobs"]), None, 0.0),
    ],
)
def test_charges_of_thoughts(given: Any, think_s: float | None, charge_s: float) -> None:
    """What the caller says, else the decision, else its tokens; without any the host decides."""
    assert charge_of(given, think_s, 0.02) == charge_s
    if think_s is None and getattr(given, "think_s", None) is None:
        assert charge_of(given, None, 0.0) is None


@pytest.mark.parametrize("think_s", [-1, 3601, "4", True, float("nan")])
def test_what_is_no_charge_is_refused(think_s: Any) -> None:
    """Before anything is sent."""
    with pytest.raises(ConfigError, match="think_s must be a number of seconds from 0 to 3600"):
        charge_of("wait()", think_s, 0.0)


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({"lease_ttl_s": 0}, "lease_ttl_s"),
        ({"lease_ttl_s": "60"}, "lease_ttl_s"),
        ({"max_steps": 0}, "max_steps"),
        ({"run": ""}, "run"),
        ({"think": "asleep"}, "think"),
        ({"think_charge": "real"}, "think_charge"),
        ({"think_charge": 0.5}, "think_charge"),
        ({"think": "paused", "think_charge": -1}, "think_charge"),
        ({"think": "paused", "think_charge": True}, "think_charge"),
        ({"pause_s": 1}, "'pause_s'"),
    ],
)
def test_a_wrong_option_is_named(given: Any, said: str) -> None:
    """When the episode is opened, the batch is begun, or the environment is made."""
    client = AsyncClient("http://127.0.0.1:9", handle_sigterm=False)
    for use in (
        lambda: client.episode(**given),
        lambda: client.run([], lambda *_: None, **given),
        lambda: EnvironmentOptions.read(given),
    ):
        with pytest.raises(ConfigError, match=said):
            use()
