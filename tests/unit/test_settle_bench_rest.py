"""The settle benchmark's wait for rest, against a server that answers as a host agent does."""

from __future__ import annotations

import json
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler

import pytest
from benchmarks.settle import rest
from tests.support.local_http import serving_http


@pytest.fixture
def stages() -> list[str | None]:
    """Stages that the host tells, one for each question; the last one stays."""
    return []


@pytest.fixture
def host(stages: list[str | None]) -> Iterator[str]:
    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            assert self.path == "/v1/replicas"
            stage = stages.pop(0) if len(stages) > 1 else stages[0]
            body = json.dumps([{"episode_id": None, "rest": "awake"}, {"episode_id": "e1", "rest": stage}])
            self.send_response(200)
            self.end_headers()
            self.wfile.write(body.encode())

        def log_message(self, format: str, *args: object) -> None:
            pass

    with serving_http(Handler) as url:
        yield url


def test_it_waits_until_the_stage_is_reached(host: str, stages: list[str | None]) -> None:
    """And asks no longer; an awake replica is not waited for."""
    stages += ["awake", "paused", "reclaimed", "awake"]
    rest.wait_for_stage(host, "e1", "awake")
    assert len(stages) == 4
    rest.wait_for_stage(host, "e1", "reclaimed")
    assert stages == ["awake"]


@pytest.mark.parametrize(("found", "words"), [("reclaimed", "not paused"), (None, "--set rest=reclaim")])
def test_settings_that_do_not_fit_are_told(
    host: str, stages: list[str | None], found: str | None, words: str
) -> None:
    """A stage that was passed, and a host without rest."""
    stages.append(found)
    with pytest.raises(rest.RestError, match=words):
        rest.wait_for_stage(host, "e1", "paused")


def test_a_true_screen_is_that_of_an_awake_replica(host: str, stages: list[str | None]) -> None:
    """A paused program draws nothing, so the picture would not be the truth."""
    stages += ["awake", "paused"]
    rest.require_awake(host, "e1")
    with pytest.raises(rest.RestError, match="rest_after_s"):
        rest.require_awake(host, "e1")
