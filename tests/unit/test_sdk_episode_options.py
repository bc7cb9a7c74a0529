"""Options of episodes: those that callers complete in their editor are those of the protocol."""

from __future__ import annotations

import dataclasses
from typing import Any

import pytest

from osgym_protocol.episode_options import EpisodeOptions
from osgym_sdk import AsyncClient, ConfigError, EpisodeArguments, RunArguments
from osgym_sdk._batch.options import BatchOptions, read_run_arguments
from osgym_sdk._environment import EnvironmentOptions
from osgym_sdk._episode.plan import plan_episode

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
    assert sent.strict_setup and sent.settle is not None and sent.observe is not None
    batch: Any = {"concurrency": 2, **TO_THE_HOST}
    assert plan_episode(None, read_run_arguments(batch)[1]).options == sent
    assert plan_episode(None, EnvironmentOptions.read(TO_THE_HOST).episode).options == sent


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({"lease_ttl_s": 0}, "lease_ttl_s"),
        ({"lease_ttl_s": "60"}, "lease_ttl_s"),
        ({"max_steps": 0}, "max_steps"),
        ({"run": ""}, "run"),
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
