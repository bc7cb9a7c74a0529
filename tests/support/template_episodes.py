"""Episodes that begin from task templates, over the host API; shared by the tests of each runtime."""

from __future__ import annotations

import io
import secrets
from typing import Any

import httpx
from PIL import Image, ImageChops

from osgym_host.tasks.shipped import ShippedTask, load_shipped
from osgym_protocol.records import Record, decode_record
from tests.support.host_process import HostProcess

PANEL_PX = 60
"""The height at the top and at the bottom of the screen within which a clock may be."""


SHIPPED = next(entry for entry in load_shipped() if entry.task["id"] == "multiply")
"""The task that most of these episodes play."""


class Api:
    """The host API, with what these tests call of it."""

    def __init__(self, host: HostProcess) -> None:
        self.http = httpx.Client(base_url=host.url, timeout=300)

    def __enter__(self) -> Api:
        return self

    def __exit__(self, *_: object) -> None:
        self.http.close()

    def create(self, task: dict[str, Any], name: str) -> Record:
        """A new episode: its answer and first frame."""
        body = {"request_id": name, "task": task, "wait_s": 120, "lease_ttl_s": 300}
        answer = self.http.post("/v1/episodes", json=body)
        assert answer.status_code == 200, answer.text
        return decode_record(answer.content)

    def step(self, episode: dict[str, Any], seq: int, actions: list[Any]) -> dict[str, Any]:
        """One step."""
        body = {"lease": episode["lease"], "seq": seq, "actions": actions, "settle": {"policy": "certain"}}
        answer = self.http.post(f"/v1/episodes/{episode['episode_id']}/step", json=body)
        assert answer.status_code == 200, answer.text
        return decode_record(answer.content).meta

    def run(self, episode: dict[str, Any], command: str) -> list[str]:
        """The lines that a command in the desktop says."""
        body = {
            "request_id": secrets.token_hex(8),
            "lease": episode["lease"],
            "command": [command],
            "shell": True,
        }
        answer = self.http.post(f"/v1/episodes/{episode['episode_id']}/execute", json=body)
        assert answer.status_code == 200, answer.text
        return str(answer.json()["stdout"]).splitlines()

    def score(self, episode: dict[str, Any]) -> float | None:
        """The reward."""
        answer = self.http.post(
            f"/v1/episodes/{episode['episode_id']}/evaluate", json={"lease": episode["lease"]}
        )
        assert answer.status_code == 200, answer.text
        reward: float | None = answer.json()["reward"]
        return reward

    def close(self, episode: dict[str, Any]) -> None:
        """End an episode."""
        headers = {"OSGym-Lease": episode["lease"]}
        self.http.delete(f"/v1/episodes/{episode['episode_id']}", headers=headers)


def assert_clones_begin_alike(api: Api, made: Record, task: dict[str, Any]) -> list[Record]:
    """Two clones of the set-up that `made` had, which begin with the same frame."""
    hits = [api.create({**task, "id": f"twin-{n}"}, f"hit-{n}") for n in range(2)]
    assert [hit.meta["template"] for hit in hits] == ["hit", "hit"]
    print("timing_ms", made.meta["timing_ms"], *(hit.meta["timing_ms"] for hit in hits))
    for hit in hits:
        box = ImageChops.difference(between_panels(made), between_panels(hit)).getbbox()
        assert box is None, f"the first frames differ in {box}"
    return hits


def assert_oracle_earns_all(api: Api, episode: dict[str, Any], entry: ShippedTask) -> None:
    """Its actions are carried out, and the reward is 1."""
    for seq, actions in enumerate(entry.oracle, 1):
        assert api.step(episode, seq, list(actions))["step"] == seq
    assert api.score(episode) == 1.0


def between_panels(record: Record) -> Image.Image:
    """The first frame without the edges in which a clock may be."""
    image = Image.open(io.BytesIO(bytes(record.blob))).convert("RGB")
    return image.crop((0, PANEL_PX, image.width, image.height - PANEL_PX))
