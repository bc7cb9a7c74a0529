"""Desktops behind OpenEnv's server: ``python examples/trainers/openenv_server.py tasks/ 8000``."""

from __future__ import annotations

import sys
from typing import Any

import uvicorn
from openenv.core import GenericEnvClient

from osgym_sdk.integrations.openenv import app


def play(url: str, actions: list[str]) -> list[Any]:
    """Play the server's first task by some actions, and return what each step gave."""
    with GenericEnvClient(base_url=url).sync() as env:
        return [env.reset(index=0), *(env.step({"action": action}) for action in actions)]


if __name__ == "__main__":
    uvicorn.run(app(sys.argv[1]), port=int(sys.argv[2]))
