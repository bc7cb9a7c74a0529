"""Program of `pulumi up`: the provider's program that the stack's configuration names."""

from __future__ import annotations

import os
import signal

import pulumi

from osgym_infra.config.providers import read_provider
from osgym_infra.errors import OsgymInfraError
from stacks.fleet import configured, run


def leave(_signal: int, _frame: object) -> None:
    """End the program silently: the engine, which interrupts it after a failure, has reported it."""
    os._exit(1)


def main() -> None:
    """Make the fleet of the configuration; a mistake in it ends the program with its sentence only."""
    try:
        run(read_provider("provider", configured().get("provider", "")))
    except OsgymInfraError as error:
        raise pulumi.RunError(str(error)) from None


signal.signal(signal.SIGINT, leave)
main()
