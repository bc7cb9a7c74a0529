"""What `pulumi up` runs: the program of the provider that the stack's configuration names."""

from __future__ import annotations

import importlib
import os
import signal

import pulumi

from osgym_infra.args import KEYS, Provider
from osgym_infra.errors import OsgymInfraError
from osgym_infra.stack import configured


def leave(_signal: int, _frame: object) -> None:
    """Ends the program without a word: the engine, which interrupts it after a failure, has said all."""
    os._exit(1)


def main() -> None:
    """Runs `stacks.<provider>`; a mistake in the configuration ends the program with its sentence only."""
    try:
        # Another provider is what `parse` finds wrong; any program gets there.
        name = str(configured().get("provider", ""))
        if name not in set(Provider):
            KEYS["provider"].read("provider", name)
        importlib.import_module(f"stacks.{name}").main()
    except OsgymInfraError as error:
        raise pulumi.RunError(str(error)) from None


signal.signal(signal.SIGINT, leave)
main()
