"""Episodes that begin from task templates, over the host API; shared by the tests of each runtime."""

from __future__ import annotations

import io
import secrets
from typing import Any

import httpx
from PIL import Image

from osgym_protocol.records import Record, decode_record
from tests.support.host_process import HostProcess

PANEL_PX = 60
"""The height at the top and at the bottom of the screen within which a clock may be."""


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


def between_panels(record: Record) -> Image.Image:
    """The first frame without the edges in which a clock may be."""
    image = Image.open(io.BytesIO(bytes(record.blob))).convert("RGB")
    return image.crop((0, PANEL_PX, image.width, image.height - PANEL_PX))
